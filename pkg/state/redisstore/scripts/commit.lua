-- KEYS R L J I D C T · ARGV run token version commit-id status next-version header awaited wake(ms) consumed
--   grace(ms) from keep worker entries…
-- returns {'ok', status, version, applied(0/1), crowded(0/1), kept(0/1)}, {'fenced'}, {'missing'} or {'gap', loglen}
local R, L, J, I, D, C, T = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local h = redis.call('HMGET', R, 'st', 'tok', 'ver', 'cid', 'cst', 'cver', 'ab', 'ann', 'abr', 'tn')
if not h[1] then return {'missing'} end
local keep = ARGV[13]
if h[4] == ARGV[4] then
  return {'ok', h[5], h[6], 0, crowded(T, h[10], h[5]), keep ~= '' and h[1] == 'running' and h[2] == keep and 1 or 0}
end
if h[1] ~= 'running' or h[2] ~= ARGV[2] or h[3] ~= ARGV[3] then return {'fenced'} end
local len = redis.call('LLEN', L)
if len ~= tonumber(ARGV[12]) then return {'gap', len} end
push(L, 15)
len = len + #ARGV - 14
redis.call('DEL', J)
local gone, reach = tonumber(ARGV[10]), tonumber(h[9] or 0)
if terminal(ARGV[5]) then gone = math.max(gone, reach) end
if gone > 0 then redis.call('LTRIM', I, gone, -1) end
local st, ab, aw = ARGV[5], h[7], ARGV[8]
local rest = redis.call('LRANGE', I, 0, -1)
if terminal(st) then
  -- What came too late is dropped, but for what the user says: that continues the run.
  ab = ''
  local keep = {}
  for _, s in ipairs(rest) do
    local _, kind = parts(s)
    if kind == 'm' then keep[#keep + 1] = s end
  end
  if #keep < #rest then
    redis.call('DEL', I)
    for _, s in ipairs(keep) do redis.call('RPUSH', I, s) end
    rest = keep
  end
end
if #rest > 0 then
  -- A signal in hand whose wait the turn has opened again stays answered. Each wait
  -- by itself: the turn may have opened only some of them.
  local open = decode(aw)
  for _, s in ipairs(rest) do
    for _, name in ipairs(decode((parts(s)))) do answer(open, {name}) end
  end
  aw = encode(open)
end
if st ~= 'queued' and (ab ~= '' or #rest > 0) then st = 'queued' end
if reach > 0 then redis.call('HSET', R, 'abr', math.max(0, reach - gone)) end
if keep ~= '' and st == 'queued' and ab == '' and #rest == 0 then
  -- Claimed by the same step, see claim.lua; the lease ends when the sweeper looks.
  local lease = now() + tonumber(ARGV[11])
  redis.call('HSET', R, 'h', ARGV[7], 'ver', ARGV[6], 'tok', keep, 'kp', keep, 'own', ARGV[14], 'lease', lease, 'att', '1', 'aw', aw,
    'cid', ARGV[4], 'cst', st, 'cver', ARGV[6], 'base', len, 'wake', '0', 'sw', '0', 'f', FORMAT)
  redis.call('ZADD', D, lease, ARGV[1])
  return {'ok', st, ARGV[6], 1, crowded(T, h[10], st), 1}
end
count(C, 'running', st)
crowd(T, C, h[10], 'running', st)
local wake = tonumber(ARGV[9])
if st ~= 'waiting' then wake = 0 end
redis.call('HSET', R, 'st', st, 'h', ARGV[7], 'ver', ARGV[6], 'tok', '', 'own', '', 'lease', '0', 'att', '0', 'ab', ab, 'aw', aw,
  'cid', ARGV[4], 'cst', st, 'cver', ARGV[6], 'base', len, 'wake', wake > 0 and ARGV[9] or '0', 'sw', '0', 'f', FORMAT)
local at = wake
if st == 'queued' or tonumber(h[8]) < len then
  at = now() + tonumber(ARGV[11])
  if wake > 0 and wake < at then at = wake end
end
due(D, ARGV[1], at)
return {'ok', st, ARGV[6], 1, crowded(T, h[10], st), 0}
