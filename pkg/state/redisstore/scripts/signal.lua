-- KEYS R I X D C T · ARGV run signal-id names(JSON) kind('m' or '-') signal delay(ms) remembered
-- returns wake, closed {'closed', status, name}, verdict {'missing'}, {'newer'} or {'seen'}
local R, I, X, D, C, T = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local status, version, lane, awaits, format, tenant = unpack(redis.call('HMGET', R, 'st', 'ver', 'ln', 'aw', 'f', 'tn'))
if not status then return {'missing'} end
if newer(format) then return {'newer'} end
if redis.call('ZSCORE', X, ARGV[2]) then return {'seen'} end
local open, names = decode(awaits), decode(ARGV[3])
local ok, name = answer(open, names)
if not ok then return {'closed', status, name} end
redis.call('HSET', R, 'aw', encode(open))
redis.call('RPUSH', I, ARGV[3] .. '\n' .. ARGV[4] .. '\n' .. ARGV[5])
local last = redis.call('ZRANGE', X, -1, -1, 'WITHSCORES')
redis.call('ZADD', X, (last[2] or 0) + 1, ARGV[2])
redis.call('ZREMRANGEBYRANK', X, 0, -tonumber(ARGV[7]) - 1)
if status ~= 'waiting' and not terminal(status) then return {'ok', 0, version, lane, 0} end
queue(R, C, D, ARGV[1], status, tonumber(ARGV[6]), T, tenant)
local noisy = isNoisy(T, tenant, 'queued')
return {'ok', 1, version, lane, noisy}
