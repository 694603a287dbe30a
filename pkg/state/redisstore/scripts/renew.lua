-- KEYS R D · ARGV run token version lease(ms) grace(ms) · returns {'ok', abort} or {'fenced'}
local h = redis.call('HMGET', KEYS[1], 'st', 'tok', 'ver', 'ab')
if h[1] ~= 'running' or h[2] ~= ARGV[2] or h[3] ~= ARGV[3] then return {'fenced'} end
local lease = now() + tonumber(ARGV[4])
redis.call('HSET', KEYS[1], 'lease', lease, 'kp', '')
redis.call('ZADD', KEYS[2], lease + tonumber(ARGV[5]), ARGV[1])
return {'ok', h[4]}
