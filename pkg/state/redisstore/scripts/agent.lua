-- KEYS A · ARGV token definition always · appends a version, unless the latest one is equal and always is 0; returns agent
--   token identifies this call: the client retries it if the reply is lost. It then finds its version among the latest eight.
local A = KEYS[1]
local created = now()
local version = tonumber(redis.call('HGET', A, 'latest') or 0)
for earlier = version, math.max(1, version - 7), -1 do
  if redis.call('HGET', A, 'k' .. earlier) == ARGV[1] then
    version, created = earlier, redis.call('HGET', A, 't' .. earlier)
    return {version, created}
  end
end
if ARGV[3] == '0' and version > 0 and redis.call('HGET', A, 'deleted') ~= '1' and redis.call('HGET', A, 'v' .. version) == ARGV[2] then
  created = redis.call('HGET', A, 't' .. version)
  return {version, created}
end
version = redis.call('HINCRBY', A, 'latest', 1)
redis.call('HSET', A, 'v' .. version, ARGV[2], 't' .. version, created, 'k' .. version, ARGV[1], 'deleted', 0)
return {version, created}
