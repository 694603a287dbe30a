-- KEYS R D C · ARGV run token version · returns verdict {'ok'} or {'fenced'}
local R, D, C = KEYS[1], KEYS[2], KEYS[3]
local status, token, version = unpack(redis.call('HMGET', R, 'st', 'tok', 'ver'))
if status ~= 'running' or token ~= ARGV[2] or version ~= ARGV[3] then return {'fenced'} end
redis.call('HINCRBY', R, 'att', -1)
queue(R, C, D, ARGV[1], 'running', 0)
return {'ok'}
