-- KEYS R · ARGV token · returns verdict {'ok'}
local R = KEYS[1]
if redis.call('HGET', R, 'sl') == ARGV[1] then redis.call('HDEL', R, 'sl') end
return {'ok'}
