-- KEYS A · ARGV token · deletes the agent; returns verdict {'ok'} or {'missing'}
--   token identifies this call: the client retries it if the reply is lost.
local A = KEYS[1]
local latest, deleted, deletedBy = unpack(redis.call('HMGET', A, 'latest', 'deleted', 'del'))
if not latest then return {'missing'} end
if deleted == '1' and deletedBy ~= ARGV[1] then return {'missing'} end
redis.call('HSET', A, 'deleted', '1', 'del', ARGV[1])
return {'ok'}
