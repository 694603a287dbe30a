-- KEYS R G · ARGV token · returns seal, closed {'live', status}, verdict {'missing'}, {'deleted'} or {'newer'}
local R, G = KEYS[1], KEYS[2]
local status, format = unpack(redis.call('HMGET', R, 'st', 'f'))
if not status then local word = absent(R); return {word} end
if newer(format) then return {'newer'} end
if not terminal(status) then return {'live', status} end
redis.call('HSET', R, 'sl', ARGV[1])
local admitted = redis.call('SMEMBERS', G)
return {'ok', admitted}
