-- KEYS R L D · ARGV run seq · returns verdict {'ok'}, {'missing'}, {'deleted'} or {'newer'}
local R, L, D = KEYS[1], KEYS[2], KEYS[3]
local status, finalized, wake, format, awaits = unpack(redis.call('HMGET', R, 'st', 'fin', 'wake', 'f', 'aw'))
if not status then local word = absent(R); return {word} end
if newer(format) then return {'newer'} end
local len = redis.call('LLEN', L)
finalized = math.max(tonumber(finalized), math.min(tonumber(ARGV[2]), len))
redis.call('HSET', R, 'fin', finalized)
if finalized == len and status ~= 'queued' and status ~= 'running' and not dependent(status, awaits) then
  due(D, ARGV[1], tonumber(wake))
end
return {'ok'}
