-- KEYS R · ARGV token · returns verdict {'ok'} or {'newer'}
local R = KEYS[1]
local format, sealed = unpack(redis.call('HMGET', R, 'f', 'sl'))
if newer(format) then return {'newer'} end
if sealed == ARGV[1] then redis.call('HDEL', R, 'sl') end
return {'ok'}
