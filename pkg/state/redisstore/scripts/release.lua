-- KEYS R D C · ARGV run token version · returns {'ok'} or {'fenced'}
local R, D, C = KEYS[1], KEYS[2], KEYS[3]
local h = redis.call('HMGET', R, 'st', 'tok', 'ver')
if h[1] ~= 'running' or h[2] ~= ARGV[2] or h[3] ~= ARGV[3] then return {'fenced'} end
redis.call('HINCRBY', R, 'att', -1)
queue(R, C, D, ARGV[1], 'running', 0)
return {'ok'}
