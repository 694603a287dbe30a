-- KEYS W E V · ARGV limit lease(ms) · claims timers, see timer.lua; returns timers {'ok', version, claimed}
--   claimed has each timer and the time at which it was due (ms).
local W, E, V = KEYS[1], KEYS[2], KEYS[3]
local clock, claimed, version = now(), {}, '0'
local found = redis.call('ZRANGEBYSCORE', W, '-inf', clock, 'LIMIT', '0', ARGV[1])
if #found > 0 then version = versionAfter(V) end
for _, timer in ipairs(found) do
  local due = string.match(redis.call('HGET', E, timer), '%-?%d+$')
  redis.call('HSET', E, timer, version .. ' ' .. due)
  redis.call('ZADD', W, clock + tonumber(ARGV[2]), timer)
  claimed[#claimed + 1] = timer
  claimed[#claimed + 1] = due
end
return {'ok', version, claimed}
