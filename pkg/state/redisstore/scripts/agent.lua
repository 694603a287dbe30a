-- KEYS A · ARGV name definition · appends a version, unless the latest has the definition; returns agent
local A = KEYS[1]
local latest, deleted = unpack(redis.call('HMGET', A, 'latest', 'deleted'))
if latest and deleted ~= '1' and redis.call('HGET', A, 'v' .. latest) == ARGV[2] then
  local version, created = tonumber(latest), tonumber(redis.call('HGET', A, 't' .. latest))
  return {version, created}
end
local created = now()
local version = redis.call('HINCRBY', A, 'latest', 1)
redis.call('HSET', A, 'v' .. version, ARGV[2], 't' .. version, created, 'deleted', 0)
return {version, created}
