-- KEYS M · ARGV floor to · returns mark
--   raises the mark of a shard, unless the shard is behind. The mark never falls, so a call may be repeated or late.
local M, floor, to = KEYS[1], ARGV[1], ARGV[2]
local reached = tonumber(redis.call('GET', M) or 0)
if reached < tonumber(to) and not behind(M, floor) then
  reached = tonumber(to)
  redis.call('SET', M, to)
end
return {reached}
