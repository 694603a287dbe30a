-- KEYS Z K · ARGV shard first last expiry(ms) marks-lifetime(ms) max-series {agent\0model, counters}…
--   adds to the sums of an hour what the stream of a shard has from id first to id last; each id is added once:
--   if some of it was added before, the script adds nothing, and mark is the last id of that.
-- returns figures {'ok'} or {'seen', mark}
local Z, K, shard, first = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local mark = redis.call('HGET', K, shard) or '0-0'
local function split(id) local ms, n = string.match(id, '(%d+)-(%d+)'); return tonumber(ms), tonumber(n) end
local ms, n = split(first)
local seenMS, seenN = split(mark)
if ms < seenMS or ms == seenMS and n <= seenN then return {'seen', mark} end
local other = '\0'
local function add(series, counters)
  local have = redis.call('HGET', Z, series)
  if not have and redis.call('HLEN', Z) - redis.call('HEXISTS', Z, other) >= tonumber(ARGV[6]) - 1 then
    series = other
    have = redis.call('HGET', Z, series)
  end
  local sums, names = {}, {}
  for _, text in ipairs({have or '', counters}) do
    for name, value in string.gmatch(text, '(%S+)=(%-?%d+)') do
      if not sums[name] then names[#names + 1] = name end
      sums[name] = (sums[name] or 0) + tonumber(value)
    end
  end
  for i, name in ipairs(names) do names[i] = name .. '=' .. string.format('%.0f', sums[name]) end
  redis.call('HSET', Z, series, table.concat(names, ' '))
end
for i = 7, #ARGV, 2 do add(ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIREAT', Z, ARGV[4])
redis.call('HSET', K, shard, ARGV[3])
redis.call('PEXPIRE', K, ARGV[5])
return {'ok'}
