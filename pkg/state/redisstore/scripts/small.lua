-- KEYS R · ARGV bytes · returns stored, verdict {'large'}
--   reads a run for a list, which asks for the sizes of large runs before it reads them.
local R = KEYS[1]
if redis.call('HSTRLEN', R, 'h') + redis.call('HSTRLEN', R, 'hf') > tonumber(ARGV[1]) then return {'large'} end
local header, status, started, fixed, key, marker, sealed = unpack(redis.call('HMGET', R, 'h', 'st', 'sa', 'hf', 'ik', 'gone', 'sl'))
return {header, status, started, fixed, key, marker, sealed}
