-- KEYS W E V M · ARGV limit lease(ms) · claims timers, see timer.lua; returns timers {'ok', version, claimed}
--   claimed has each timer, the time at which it was due (ms), and its note.
local W, E, V = KEYS[1], KEYS[2], KEYS[3]
local clock, claimed, version = now(), {}, '0'
local found = redis.call('ZRANGEBYSCORE', W, '-inf', clock, 'LIMIT', '0', ARGV[1])
if #found > 0 then version = versionAfter(V) end
for _, timer in ipairs(found) do
  local due, note = string.match(redis.call('HGET', E, timer), '^%d+ (%-?%d+) ?(.*)$')
  redis.call('HSET', E, timer, version .. ' ' .. due .. ' ' .. note)
  redis.call('ZADD', W, clock + tonumber(ARGV[2]), timer)
  claimed[#claimed + 1] = timer
  claimed[#claimed + 1] = due
  claimed[#claimed + 1] = note
end
return {'ok', version, claimed}
