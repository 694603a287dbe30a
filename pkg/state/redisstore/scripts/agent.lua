-- KEYS A · ARGV token definition · appends a version; returns agent
--   token is of this call: the client repeats it when it has lost the reply. The latest eight versions are known by theirs.
local A = KEYS[1]
local created = now()
local latest = tonumber(redis.call('HGET', A, 'latest') or 0)
for version = latest, math.max(1, latest - 7), -1 do
  if redis.call('HGET', A, 'k' .. version) == ARGV[1] then
    created = redis.call('HGET', A, 't' .. version)
    return {version, created}
  end
end
local version = redis.call('HINCRBY', A, 'latest', 1)
redis.call('HSET', A, 'v' .. version, ARGV[2], 't' .. version, created, 'k' .. version, ARGV[1], 'deleted', 0)
return {version, created}
