-- KEYS R N · ARGV run sum header fixed-header format tenant wait names
--   Takes a run that rests to a newer format, and into the index of lists; sum is the sha1 of the header that the caller has
--   read, and the others are as in create.lua.
-- returns verdict {'ok'}, {'missing'} or {'busy'}
local R, N = KEYS[1], KEYS[2]
local header, status, format, tenant, listed = unpack(redis.call('HMGET', R, 'h', 'st', 'f', 'tn', 'li'))
if not status then return {'missing'} end
if listed then return {'ok'} end
if newer(format) or active(status) or redis.sha1hex(header) ~= ARGV[2] then return {'busy'} end
if not tenant then
  tenant = ARGV[6]
  redis.call('HSET', R, 'tn', tenant)
end
redis.call('HSET', R, 'h', ARGV[3], 'hf', ARGV[4], 'f', ARGV[5])
enlist(N, ARGV[1], tenant, ARGV[8])
relist(R, N, ARGV[1], tenant, '', status, ARGV[7])
return {'ok'}
