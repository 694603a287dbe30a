-- KEYS R D C H · ARGV run token version · returns verdict {'ok'} or {'fenced'}
local R, D, C, H = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local status, token, version, owner = unpack(redis.call('HMGET', R, 'st', 'tok', 'ver', 'own'))
if status ~= 'running' or token ~= ARGV[2] or version ~= ARGV[3] then return {'fenced'} end
redis.call('HINCRBY', R, 'att', -1)
hold(H, ARGV[1], owner, '')
queue(R, C, D, ARGV[1], 'running', 0)
return {'ok'}
