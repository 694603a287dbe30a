-- KEYS R L J I X D C G N · ARGV run names lifetime(ms) of the marker
-- returns closed {'live', status}, verdict {'ok'}, {'missing'}, {'deleted'} or {'newer'}
local R, L, J, I, X, D, C, G, N = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local status, format, tenant, listed, indexed = unpack(redis.call('HMGET', R, 'st', 'f', 'tn', 'li', 'ix'))
if not status then local word = absent(R); return {word} end
if newer(format) then return {'newer'} end
if not terminal(status) then return {'live', status} end
redis.call('HINCRBY', C, status, -1)
redis.call('ZREM', D, ARGV[1])
for name in string.gmatch(ARGV[2] .. (indexed or ''), '[^\n]+') do redis.call('ZREM', N, listing(tenant, name, ARGV[1])) end
for name in string.gmatch(listed, '%S+') do redis.call('ZREM', N, listing(tenant, 'status:' .. name, ARGV[1])) end
redis.call('DEL', R, L, J, I, X, G)
mark(R, tenant, ARGV[3])
return {'ok'}
