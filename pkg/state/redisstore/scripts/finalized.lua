-- KEYS R L D · ARGV run seq · returns {'ok'}, {'missing'} or {'newer'}
local h = redis.call('HMGET', KEYS[1], 'st', 'ann', 'wake', 'f', 'aw')
if not h[1] then return {'missing'} end
if newer(h[4]) then return {'newer'} end
local len = redis.call('LLEN', KEYS[2])
local ann = math.max(tonumber(h[2]), math.min(tonumber(ARGV[2]), len))
redis.call('HSET', KEYS[1], 'ann', ann)
if ann == len and h[1] ~= 'queued' and h[1] ~= 'running' and not dependent(h[1], h[5]) then
  due(KEYS[3], ARGV[1], tonumber(h[3]))
end
return {'ok'}
