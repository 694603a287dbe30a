-- KEYS A · ARGV name definition · appends a version; returns agent
local A = KEYS[1]
local created = now()
local version = redis.call('HINCRBY', A, 'latest', 1)
redis.call('HSET', A, 'v' .. version, ARGV[2], 't' .. version, created, 'deleted', 0)
return {version, created}
