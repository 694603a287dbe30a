-- KEYS R · ARGV tenant lifetime(ms) of the marker · returns verdict {'ok'} or {'exists'}
local R = KEYS[1]
if redis.call('EXISTS', R) == 1 then return {'exists'} end
mark(R, ARGV[1], ARGV[2])
return {'ok'}
