-- KEYS N of each shard · ARGV want bytes most, then the lists: set prefix min max of each · returns list
-- reads the newest runs of the set of lists that has the fewest runs, as stored reads them, with that many bytes of headers together. The keys have different slots, and
-- those of runs are derived from N: this is not for a cluster.
local want, left, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

-- An eighth of the shards shows which set has far fewer runs.
local set = 1
if ARGV[#ARGV - 3] ~= '1' then
  local runs = {}
  for i = 4, #ARGV, 4 do
    local of = tonumber(ARGV[i])
    runs[of] = runs[of] or 0
    for k = 1, #KEYS, 8 do runs[of] = runs[of] + redis.call('ZLEXCOUNT', KEYS[k], ARGV[i + 2], ARGV[i + 3]) end
  end
  for of, n in ipairs(runs) do if n < runs[set] then set = of end end
end

-- read finds the newest few runs of a list. Its result is the last of them if there may be more.
local found, of, made = {}, {}, {}
local function read(N, prefix, min, max, few)
  local members = redis.call('ZREVRANGEBYLEX', N, max, min, 'LIMIT', '0', few)
  for _, member in ipairs(members) do
    local run = string.sub(member, #prefix + 1)
    found[#found + 1], of[run], made[run] = run, N, tonumber(string.sub(run, 5, 14), 36)
  end
  return #members == few and found[#found]
end

-- later compares ids as numbers: the order of texts in Lua depends on the locale of the server.
local function digits(run, from) return tonumber(string.sub(run, from, from + 9), 36) end
local function later(a, b)
  if made[a] ~= made[b] then return made[a] > made[b] end
  local x, y = digits(a, 15), digits(b, 15)
  if x ~= y then return x > y end
  return digits(a, 25) > digits(b, 25)
end

-- sort puts the newest found runs in order, and drops others.
local function sort()
  local times, kept = {}, {}
  for k, run in ipairs(found) do times[k] = made[run] end
  table.sort(times)
  local oldest = times[#times - want + 1] or 0
  for _, run in ipairs(found) do if made[run] >= oldest then kept[#kept + 1] = run end end
  table.sort(kept, later)
  found = kept
end

-- The runs are spread over the lists by chance: most lists have none or one of the newest. Only a list whose last
-- found run is among these may have more of them.
local lists, last = 0, {}
for i = 4, #ARGV, 4 do if tonumber(ARGV[i]) == set then lists = lists + #KEYS end end
local few = math.ceil(2 * want / lists)
for i = 4, #ARGV, 4 do
  if tonumber(ARGV[i]) == set then
    last[i] = {}
    for k, N in ipairs(KEYS) do last[i][k] = read(N, ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], few) end
  end
end
sort()
local oldest = found[want]
for i, ends in pairs(last) do
  local prefix = ARGV[i + 1]
  local min = oldest and '(' .. prefix .. oldest or ARGV[i + 2]
  for k, run in ipairs(ends) do
    if run and not (oldest and later(oldest, run)) then read(KEYS[k], prefix, min, '(' .. prefix .. run, want) end
  end
end
sort()

local runs, headers = {}, {}
for k = 1, math.min(want, #found) do
  local size
  runs[k] = found[k]
  headers[k], size = stored(string.gsub(of[runs[k]], 'lists$', 'run:') .. runs[k], math.min(most, left))
  left = left - size
end
return {set, runs, headers}
