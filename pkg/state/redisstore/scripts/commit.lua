-- KEYS R L J I D C T H N F · ARGV run token version commit-id status next-version header awaited wake(ms) consumed
--   delay(ms) from eager-token worker format wait require-inbox-consumed figures checkpoint log-bytes entries…
-- returns commit, verdict {'fenced'}, {'missing'}, {'deleted'}, {'unheard'} or {'gap', length}
local R, L, J, I, D, C, T, H, N, F = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local status, token, version, commitID, commitStatus, abort, finalized, abortReach, tenant, owner, listed, format, awaits, attempts, paused, wake, sweeps, checkpoint, logBytes = unpack(
  redis.call('HMGET', R, 'st', 'tok', 'ver', 'cid', 'cst', 'ab', 'fin', 'abr', 'tn', 'own', 'li', 'f', 'aw', 'att', 'pz', 'wake', 'sw', 'cp', 'lb'))
if not status then local word = absent(R); return {word} end
local eager = ARGV[13]
if commitID == ARGV[4] then
  local claimed = eager ~= '' and status == 'running' and token == eager and 1 or 0
  status = commitStatus -- only a commit changes the version
  local noisy = isNoisy(T, tenant, status)
  return {'ok', status, version, 0, noisy, claimed}
end
if status ~= 'running' or token ~= ARGV[2] or version ~= ARGV[3] then return {'fenced'} end
local length = redis.call('LLEN', L)
if length ~= tonumber(ARGV[12]) then return {'gap', length} end
local gone, reach = tonumber(ARGV[10]), tonumber(abortReach or 0)
if ARGV[17] == '1' then
  -- The run would end: refuse if its inbox has signals that the turn has not consumed.
  local heard = reach
  if abort == '' and ARGV[5] ~= 'cancelled' then heard = redis.call('LLEN', I) end
  if heard > gone then return {'unheard'} end
end
push(L, 21)
length = length + #ARGV - 20
if ARGV[18] ~= '' then redis.call('XADD', F, '*', 't', tenant, 'f', ARGV[18]) end
if ARGV[19] ~= '' and ARGV[19] ~= checkpoint then redis.call('HSET', R, 'cp', ARGV[19]) end
if ARGV[20] ~= (logBytes or '') then redis.call('HSET', R, 'lb', ARGV[20]) end
redis.call('DEL', J)
local oldAbort, oldAwaits = abort, awaits
awaits, status, version = ARGV[8], ARGV[5], ARGV[6]
if terminal(status) then gone = math.max(gone, reach) end
if gone > 0 then redis.call('LTRIM', I, gone, -1) end
local rest = redis.call('LRANGE', I, 0, -1)
if terminal(status) then
  -- Drop signals that arrived too late, except user messages, which continue the run.
  abort = ''
  local messages = {}
  for _, s in ipairs(rest) do
    local _, kind = parts(s)
    if kind ~= '-' then messages[#messages + 1] = s end
  end
  if #messages < #rest then
    redis.call('DEL', I)
    for _, s in ipairs(messages) do redis.call('RPUSH', I, s) end
    rest = messages
  end
end
if #rest > 0 then
  local inboxBytes = 0
  for _, s in ipairs(rest) do
    local _, _, payload = parts(s)
    inboxBytes = inboxBytes + #payload
  end
  redis.call('HSET', R, 'ib', inboxBytes)
  -- A pending signal whose wait the turn has reopened keeps it answered. Each wait is checked alone: the turn may have opened only some of them.
  local open = decode(awaits)
  for _, s in ipairs(rest) do
    local names, kind = parts(s)
    for _, name in ipairs(decode(names)) do answer(open, {name}) end
    if kind == 'i' then open = uninterrupted(open) end
  end
  awaits = encode(open)
end
if status ~= 'queued' and (abort ~= '' or #rest > 0) then status = 'queued' end
relist(R, N, ARGV[1], tenant, listed, status, ARGV[16])
if reach > 0 then redis.call('HSET', R, 'abr', math.max(0, reach - gone)) end
-- Most turns do not change these fields. A write costs their bytes in the append-only file.
local same = awaits == oldAwaits and status == commitStatus and paused == '0' and sweeps == '0' and format == ARGV[15]
if eager ~= '' and status == 'queued' and abort == '' and #rest == 0 then
  -- Claimed by the same step, see claim.lua; the lease ends when the sweeper checks the run.
  local lease = now() + tonumber(ARGV[11])
  redis.call('HSET', R, 'h', ARGV[7], 'ver', version, 'tok', eager, 'eag', '1', 'lease', lease, 'cid', ARGV[4], 'base', length)
  if not same or owner ~= ARGV[14] or attempts ~= '1' or wake ~= '0' then
    redis.call('HSET', R, 'own', ARGV[14], 'att', '1', 'pz', '0', 'aw', awaits, 'cst', status, 'wake', '0', 'sw', '0', 'f', ARGV[15])
  end
  redis.call('ZADD', D, lease, ARGV[1])
  hold(H, ARGV[1], owner, ARGV[14])
  local noisy = isNoisy(T, tenant, status)
  return {'ok', status, version, 1, noisy, 1}
end
hold(H, ARGV[1], owner, '')
count(C, 'running', status)
countTenant(T, tenant, 'running', status)
local wakeAt = status == 'waiting' and ARGV[9] or '0'
redis.call('HSET', R, 'st', status, 'h', ARGV[7], 'ver', version, 'tok', '', 'own', '', 'lease', '0', 'att', '0', 'cid', ARGV[4], 'base', length,
  'qa', status == 'queued' and now() or '0')
if not same or abort ~= oldAbort or wake ~= wakeAt then
  redis.call('HSET', R, 'pz', '0', 'ab', abort, 'aw', awaits, 'cst', status, 'wake', wakeAt, 'sw', '0', 'f', ARGV[15])
end
local waited = tonumber(wakeAt)
local at = waited
if status == 'queued' or tonumber(finalized) < length then
  at = now() + tonumber(ARGV[11])
  if waited > 0 and waited < at then at = waited end
end
due(D, ARGV[1], at)
local noisy = isNoisy(T, tenant, status)
return {'ok', status, version, 1, noisy, 0}
