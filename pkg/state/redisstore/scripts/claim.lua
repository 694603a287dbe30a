-- KEYS R L J I D C H M · ARGV run version token worker lease(ms) delay(ms) known sum commit-id refuse-from refuse-to floor max-log-bytes
--   known, sum: the number of log entries that the caller knows, and the sha1 of the last; commit-id: if it is that of
--   the last commit, the caller knows its header and all entries up to there
--   max-log-bytes: a larger log is not in the reply; 0 means no bound
-- returns claim, verdict {'behind'}, {'missing'}, {'deleted'} or {'newer'}
--   The reply ends after clock unless the run was claimed. header and fixed are '' if the caller knows them. known is the number
--   of the caller's entries that are valid: all or nothing. tail has the entries after those, and from the checkpoint on, unless
--   they are many: data that passes through a script costs ten times as much.
local R, L, J, I, D, C, H, M = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
if behind(M, ARGV[12]) then return {'behind'} end
local status, version, token, lease, attempts, lane, finalized, commitID, base, started, abort, abortReach, format, eager, owner, paused, evicted, evictedAt, checkpoint, logBytes = unpack(
  redis.call('HMGET', R, 'st', 'ver', 'tok', 'lease', 'att', 'ln', 'fin', 'cid', 'base', 'sa', 'ab', 'abr', 'f', 'eag', 'own', 'pz', 'ev', 'eva', 'cp', 'lb'))
if not status then local word = absent(R); return {word} end
if newer(format) then return {'newer'} end
local clock, want = now(), tonumber(ARGV[2])
version, lease = tonumber(version), tonumber(lease)
local function no(outcome, busy)
  local length = redis.call('LLEN', L)
  return {outcome, status, version, lane, finalized, length, busy, clock}
end
if terminal(status) then return no('terminal', 0) end
if want < version then return no('stale', 0) end
if want > version then return no('ahead', 0) end
if status == 'waiting' then return no('waiting', 0) end
attempts, started = tonumber(attempts), tonumber(started)
local takesOver = false
if token ~= ARGV[3] then
  local idle = false
  if status == 'running' and lease > clock then
    idle = eager == '1' and redis.call('LLEN', L) == tonumber(base) and redis.call('EXISTS', J) == 0
    if not idle then return no('busy', lease - clock) end
  end
  if not idle then attempts, takesOver = attempts + 1, status == 'running' end
end
local attempt = attempts - tonumber(paused or 0)
if abort == '' and attempt >= tonumber(ARGV[10]) and attempt <= tonumber(ARGV[11]) then return no('deferred', 0) end
if takesOver then evictedAt = noteEvicted(R, evicted, want, token) end -- its lease has run out
if started == 0 then
  started = clock
  redis.call('HSET', R, 'sa', started)
end
if eager ~= '' then redis.call('HSET', R, 'eag', '') end
lease = clock + tonumber(ARGV[5])
count(C, status, 'running')
redis.call('HSET', R, 'st', 'running', 'tok', ARGV[3], 'own', ARGV[4], 'lease', lease, 'att', attempts)
redis.call('ZADD', D, lease + tonumber(ARGV[6]), ARGV[1])
hold(H, ARGV[1], owner, ARGV[4])
local inbox = redis.call('LRANGE', I, 0, -1)
if #inbox > 0 then redis.call('HDEL', R, 'itr') end -- an interrupt is among them
if abort ~= '' then
  for i = #inbox, tonumber(abortReach or 0) + 1, -1 do inbox[i] = nil end
end
local known, header, fixed = tonumber(ARGV[7]), '', ''
if ARGV[9] == '' or ARGV[9] ~= commitID then
  header, fixed = unpack(redis.call('HMGET', R, 'h', 'hf'))
  fixed = fixed or ''
  if known > 0 then
    local last = redis.call('LINDEX', L, known - 1)
    if not last or redis.sha1hex(last) ~= ARGV[8] then known = 0 end
  end
end
local length, tail = redis.call('LLEN', L), {}
local from = math.max(known, tonumber(checkpoint or 1) - 1)
if known < from then known = 0 end
local large = ARGV[13] ~= '0' and (tonumber(logBytes) or 0) > tonumber(ARGV[13])
if length - from <= 32 and not large then tail = redis.call('LRANGE', L, from, -1) end
local journal, takenOver = redis.call('HGETALL', J), string.match(evictedAt or '', '^' .. version .. ' (%d+)$') or 0
return {'claimed', 'running', version, lane, finalized, length, 0, clock, header, base, attempts, started, abort, known, tail, journal, inbox, fixed, paused or 0, takenOver, from}
