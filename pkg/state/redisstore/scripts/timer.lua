-- KEYS W E V · ARGV timer due(ms) version · returns verdict {'ok'} or {'fenced'}
--   due '' removes the timer. version '' changes the timer as it is, else only the claim with that version does.
--   W has the timers of a kind in a shard by the time (ms) from which they can be claimed: due, or the end of a lease.
--   E has the version of each and the time at which it is due, V the latest version.
local W, E, V, timer = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local entry = redis.call('HGET', E, timer)
if ARGV[3] ~= '' and (not entry or string.match(entry, '^%d+') ~= ARGV[3]) then return {'fenced'} end
if ARGV[2] == '' then
  redis.call('ZREM', W, timer)
  redis.call('HDEL', E, timer)
  return {'ok'}
end
redis.call('HSET', E, timer, versionAfter(V) .. ' ' .. ARGV[2])
redis.call('ZADD', W, ARGV[2], timer)
return {'ok'}
