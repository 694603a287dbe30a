-- KEYS R L J I · ARGV token version from started starts results entries awaits(JSON), then the ids of started calls, then
--   id and start of each call with one, then id and entry of each result, then the entries
-- returns record, verdict {'fenced'} or {'gap', length}
local R, L, J, I = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local status, token, version, awaits, evicted, abort, interrupt = unpack(redis.call('HMGET', R, 'st', 'tok', 'ver', 'aw', 'ev', 'ab', 'itr'))
if status ~= 'running' or token ~= ARGV[1] or version ~= ARGV[2] then
  -- Keep the results of an evicted worker for its calls, if the journal has nothing newer about them.
  if (status == 'running' or status == 'queued') and version == ARGV[2] and wasEvicted(evicted, version, ARGV[1]) then
    local at = 9 + tonumber(ARGV[4]) + 2 * tonumber(ARGV[5])
    for _ = 1, tonumber(ARGV[6]) do
      local start = redis.call('HGET', J, 's:' .. ARGV[at])
      if start and (start == '1' or cjson.decode(start).token == ARGV[1]) then redis.call('HSETNX', J, 'r:' .. ARGV[at], ARGV[at + 1]) end
      at = at + 2
    end
  end
  return {'fenced'}
end
local from, started, starts, results, entries = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local length = redis.call('LLEN', L)
local repeated = entries > 0 and length == from + entries
if not repeated and length ~= from then return {'gap', length} end
if ARGV[8] ~= '' then
  -- Do not reopen a wait that is open, or that a pending signal answers.
  local have = {}
  local open = decode(awaits)
  for _, name in ipairs(open) do have[name] = true end
  for _, s in ipairs(redis.call('LRANGE', I, 0, -1)) do
    local names, kind = parts(s)
    for _, name in ipairs(decode(names)) do have[name] = true end
    have.all = have.all or kind == 'i' -- the names of calls have a colon
  end
  for _, name in ipairs(decode(ARGV[8])) do
    if not have.all and not have[name] then open[#open + 1] = name; have[name] = true end
  end
  redis.call('HSET', R, 'aw', encode(open))
end
local at = 9
-- An eager claim is now in use, see claim.lua. The written data shows that; if none is written, this does.
if (repeated or entries == 0) and started + starts + results == 0 then redis.call('HSET', R, 'eag', '') end
for _ = 1, started do redis.call('HSETNX', J, 's:' .. ARGV[at], '1'); at = at + 1 end
for _ = 1, starts do redis.call('HSET', J, 's:' .. ARGV[at], ARGV[at + 1]); at = at + 2 end
for _ = 1, results do redis.call('HSETNX', J, 'r:' .. ARGV[at], ARGV[at + 1]); at = at + 2 end
if not repeated then push(L, at) end
if abort == '' then abort = interrupt or '' end
return {'ok', abort}
