-- KEYS A · ARGV name definition · appends a version; returns {version, now(ms)}
local n = now()
local v = redis.call('HINCRBY', KEYS[1], 'latest', 1)
redis.call('HSET', KEYS[1], 'v' .. v, ARGV[2], 't' .. v, n, 'deleted', 0)
return {v, n}
