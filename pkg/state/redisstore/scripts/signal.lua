-- KEYS R I X D C T · ARGV run signal-id names(JSON) kind('m' or '-') signal grace(ms) remembered
-- returns {'missing'}, {'newer'}, {'seen'}, {'closed', status, name} or {'ok', publish(0/1), version, lane, crowded(0/1)}
local R, I, X, D, C, T = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local h = redis.call('HMGET', R, 'st', 'ver', 'ln', 'aw', 'f', 'tn')
if not h[1] then return {'missing'} end
if newer(h[5]) then return {'newer'} end
if redis.call('ZSCORE', X, ARGV[2]) then return {'seen'} end
local aw, names = decode(h[4]), decode(ARGV[3])
local ok, name = answer(aw, names)
if not ok then return {'closed', h[1], name} end
redis.call('HSET', R, 'aw', encode(aw))
redis.call('RPUSH', I, ARGV[3] .. '\n' .. ARGV[4] .. '\n' .. ARGV[5])
local last = redis.call('ZRANGE', X, -1, -1, 'WITHSCORES')
redis.call('ZADD', X, (last[2] or 0) + 1, ARGV[2])
redis.call('ZREMRANGEBYRANK', X, 0, -tonumber(ARGV[7]) - 1)
if h[1] ~= 'waiting' and not terminal(h[1]) then return {'ok', 0, h[2], h[3], 0} end
queue(R, C, D, ARGV[1], h[1], tonumber(ARGV[6]), T, h[6])
return {'ok', 1, h[2], h[3], crowded(T, h[6], 'queued')}
