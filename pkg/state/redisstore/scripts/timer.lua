-- KEYS W E V M · ARGV timer due(ms) version note · returns verdict {'ok'} or {'fenced'}
--   due '' removes the timer. version '' changes the timer as it is, else only the claim with that version does.
--   W has the timers of a kind in a shard by the time (ms) from which they can be claimed: due, or the end of a lease.
--   E has the version of each, the time at which it is due and its note, V the latest version, M the timers in order.
local W, E, V, M, timer = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local entry = redis.call('HGET', E, timer)
if ARGV[3] ~= '' and (not entry or string.match(entry, '^%d+') ~= ARGV[3]) then return {'fenced'} end
if ARGV[2] == '' then
  redis.call('ZREM', W, timer)
  redis.call('ZREM', M, timer)
  redis.call('HDEL', E, timer)
  return {'ok'}
end
redis.call('HSET', E, timer, versionAfter(V) .. ' ' .. ARGV[2] .. ' ' .. ARGV[4])
redis.call('ZADD', W, ARGV[2], timer)
redis.call('ZADD', M, '0', timer)
return {'ok'}
