-- KEYS R I X D C T N L · ARGV run signal-key names(JSON) kind signal delay(ms) remembered max-signals max-bytes fingerprint,
--   then of a signal with a basis: status version length
--   kind: 'm' for a user message, 'i' for one that interrupts the run, 'r' for one that a busy run rejects, '-' for other signals
-- returns wake, closed {'closed', status, name}, closed {'busy', status}, full, verdict {'missing'}, {'moved'}, {'deleted'}, {'deleting'}, {'newer'}, {'seen'} or {'conflict'}
local R, I, X, D, C, T, N = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local status, version, lane, awaits, format, tenant, inboxBytes, listed, sealed = unpack(redis.call('HMGET', R, 'st', 'ver', 'ln', 'aw', 'f', 'tn', 'ib', 'li', 'sl'))
if not status then local word = absent(R); return {word} end
if newer(format) then return {'newer'} end
local mark = 'mark ' .. ARGV[2] .. '\0' .. ARGV[10]
local known = redis.call('ZSCORE', X, ARGV[2])
if known then
  -- A mark, which no key can be, stores the fingerprint of the signal.
  local told = ARGV[10] ~= '' and redis.call('ZCOUNT', X, known, known) > 1
  if told and not redis.call('ZSCORE', X, mark) then return {'conflict'} end
  return {'seen'}
end
local kind = ARGV[4]
if kind == 'r' then
  if active(status) then return {'busy', status} end
  kind = 'm'
end
if ARGV[11] and (status ~= ARGV[11] or version ~= ARGV[12] or redis.call('LLEN', KEYS[8]) ~= tonumber(ARGV[13])) then return {'moved'} end
local open, names = decode(awaits), decode(ARGV[3])
local ok, name = answer(open, names)
if not ok then return {'closed', status, name} end
if (sealed or '') ~= '' then return {'deleting'} end
local signals = redis.call('LLEN', I)
-- A commit that empties the inbox does not change the byte count.
if signals == 0 then inboxBytes = 0 end
signals, inboxBytes = signals + 1, tonumber(inboxBytes or 0) + #ARGV[5]
if signals > tonumber(ARGV[8]) or inboxBytes > tonumber(ARGV[9]) then return {'full', signals, inboxBytes} end
if kind == 'i' then
  open = uninterrupted(open)
  if status == 'running' then redis.call('HSET', R, 'itr', '{"interrupt":true}') end
end
redis.call('HSET', R, 'aw', encode(open), 'ib', inboxBytes)
redis.call('RPUSH', I, ARGV[3] .. '\n' .. kind .. '\n' .. ARGV[5])
local last = redis.call('ZRANGE', X, -1, -1, 'WITHSCORES')
local place = (last[2] or 0) + 1
redis.call('ZADD', X, place, ARGV[2])
if ARGV[10] ~= '' then redis.call('ZADD', X, place, mark) end
redis.call('ZREMRANGEBYSCORE', X, '-inf', place - ARGV[7])
if status ~= 'waiting' and not terminal(status) then return {'ok', 0, version, lane, tenant, 0} end
queue(R, C, D, ARGV[1], status, tonumber(ARGV[6]), T, tenant)
relist(R, N, ARGV[1], tenant, listed, 'queued')
local noisy = isNoisy(T, tenant, 'queued')
return {'ok', 1, version, lane, tenant, noisy}
