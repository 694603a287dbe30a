-- KEYS R I X D C · ARGV run signal-id names(JSON) kind('m' or '-') signal grace(ms) remembered
-- returns {'missing'}, {'newer'}, {'seen'}, {'closed', status, name} or {'ok', publish(0/1), version, lane}
local R, I, X, D, C = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local h = redis.call('HMGET', R, 'st', 'ver', 'ln', 'aw', 'f')
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
local publish = 0
if h[1] == 'waiting' or terminal(h[1]) then queue(R, C, D, ARGV[1], h[1], tonumber(ARGV[6])); publish = 1 end
return {'ok', publish, h[2], h[3]}
