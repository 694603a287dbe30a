-- Shared by all scripts. names.go lists the fields of hashes and the places of replies, and TestScripts checks the scripts
-- against it: a field is read into a variable of its name, and a place of a reply is filled from one, or with a constant.
--   R hash of the run · L log · J journal · I inbox · X ids of past signals · D index of due runs
--   C counts of the shard's runs by status · T of those that are queued or running by tenant · H index of leases · N index of lists · U index of runs set aside · G descendants of the run
--   F the shard's stream of figures that are not folded · Z the sums of a tenant in an hour · K up to where Z has the streams of shards
--   M the mark of the shard, see mark.lua
-- A number argument of a command is formatted as a float, which takes longer than the command: constants are strings.
-- LOOK is state.BacklogLook, FORMAT the newest format that this build knows, and NOISY is state.NoisyAbove. Scripts do not touch a run in
-- a newer format; the holder of a lease checked the format at its claim.
-- The clock is the server's: those of workers do not matter.
local function now() local t = redis.call('TIME'); return t[1] * 1000 + math.floor(t[2] / 1000) end

local function newer(format) return format and tonumber(format) > FORMAT end

-- behind reports whether the shard belongs to an older copy of the store: its mark is below floor.
local function behind(M, floor) return floor ~= '0' and tonumber(redis.call('GET', M) or 0) < tonumber(floor) end

-- absent returns the reason why a run has no status: 'deleted' if a deletion left a marker.
local function absent(R) return redis.call('EXISTS', R) == 1 and 'deleted' or 'missing' end

-- mark leaves the marker of a deleted run for lifetime ms.
local function mark(R, tenant, lifetime)
  redis.call('HSET', R, 'gone', '1', 'tn', tenant)
  redis.call('PEXPIRE', R, lifetime)
end

-- stored returns the header of a run for a list, and its size; 'large' and 0 if it has more than most bytes: Lua copies it several times.
local function stored(R, most)
  local size = redis.call('HSTRLEN', R, 'h') + redis.call('HSTRLEN', R, 'hf')
  if size > most then return {'large', size}, 0 end
  local header, status, started, fixed, key, marker, sealed = unpack(redis.call('HMGET', R, 'h', 'st', 'sa', 'hf', 'ik', 'gone', 'sl'))
  return {header, status, started, fixed, key, marker, sealed}, size
end

local function terminal(status) return status == 'completed' or status == 'incomplete' or status == 'failed' or status == 'cancelled' end

-- count updates the counts of statuses when a run moves from one to another.
local function count(C, old, new)
  if old ~= new then redis.call('HINCRBY', C, old, -1); redis.call('HINCRBY', C, new, 1) end
end

local function active(status) return status == 'queued' or status == 'running' end

-- countTenant maintains, in T, the number of queued or running runs per tenant.
local function countTenant(T, tenant, old, new)
  if active(old) == active(new) then return end
  if active(new) then redis.call('HINCRBY', T, tenant, 1); return end
  if redis.call('HINCRBY', T, tenant, -1) <= 0 then redis.call('HDEL', T, tenant) end
end

-- isNoisy returns 1 if a run is queued and its tenant has more than NOISY runs in flight, else 0.
local function isNoisy(T, tenant, status)
  if status == 'queued' and tonumber(redis.call('HGET', T, tenant) or 0) > NOISY then return 1 end
  return 0
end

-- due sets the time at which the index of due runs has a run; 0 removes it.
local function due(D, run, at)
  if at > 0 then redis.call('ZADD', D, at, run) else redis.call('ZREM', D, run) end
end

-- Due runs that this build cannot read are set aside, in an index by format: each costs one look, and does not delay the others. A build that can read them takes them
-- back, see sweep.lua.
local function aside(format, run) return string.format('%04d', format) .. '\0' .. run end

-- hold moves a run in the index of leases from one worker to another, '' means none.
local function hold(H, run, old, new)
  if old == new then return end
  if old ~= '' then redis.call('ZREM', H, old .. '\0' .. run) end
  if new ~= '' then redis.call('ZADD', H, '0', new .. '\0' .. run) end
end

-- The index of lists has a run under each name that a list may select, within its tenant.
local function listing(tenant, name, run) return tenant .. '\0' .. name .. '\0' .. run end

-- enlist adds a run under the names that never change, one per line.
local function enlist(N, run, tenant, names)
  for name in string.gmatch(names, '[^\n]+') do redis.call('ZADD', N, '0', listing(tenant, name, run)) end
end

-- relist moves a run to its status and the reason for which it waits. Queued and running share one, so that no turn writes here. listed is the current value, '' if the
-- run is new.
local function relist(R, N, run, tenant, listed, status, wait)
  if active(status) then status = 'active' elseif status == 'waiting' then status = 'waiting ' .. wait end
  if listed == status then return end
  for name in string.gmatch(listed, '%S+') do redis.call('ZREM', N, listing(tenant, 'status:' .. name, run)) end
  for name in string.gmatch(status, '%S+') do redis.call('ZADD', N, '0', listing(tenant, 'status:' .. name, run)) end
  redis.call('HSET', R, 'li', status)
end

-- A worker whose lease was ended may only have been paused. 'ev' keeps the latest eight tokens, each with the version of its turn, one per line; 'eva' has the version
-- and the time of the latest.
local function wasEvicted(evicted, version, token)
  return token ~= '' and string.find('\n' .. (evicted or '') .. '\n', '\n' .. version .. ' ' .. token .. '\n', 1, true) ~= nil
end

local function noteEvicted(R, evicted, version, token)
  local list = {version .. ' ' .. token}
  for old in string.gmatch(evicted or '', '[^\n]+') do
    if #list < 8 and string.find(old, version .. ' ', 1, true) == 1 then list[#list + 1] = old end
  end
  local at = string.format('%.0f %.0f', tonumber(version), now())
  redis.call('HSET', R, 'ev', table.concat(list, '\n'), 'eva', at)
  return at
end

-- queue makes a run claimable; the sweeper checks it after delay. T and tenant are required for a run that may have waited or ended.
local function queue(R, C, D, run, old, delay, T, tenant)
  count(C, old, 'queued')
  countTenant(T, tenant, old, 'queued')
  local n = now()
  redis.call('HSET', R, 'st', 'queued', 'tok', '', 'own', '', 'lease', '0', 'sw', '0', 'qa', n)
  due(D, run, n + delay)
end

-- answer removes names from a list of awaited ones; if one is missing, it returns false, and the list is no longer usable.
local function answer(open, names)
  for _, n in ipairs(names) do
    local found = false
    for k, a in ipairs(open) do
      if a == n then table.remove(open, k); found = true; break end
    end
    if not found then return false, n end
  end
  return true
end

local function decode(list) if not list or list == '' then return {} end return cjson.decode(list) end
local function encode(list) if #list == 0 then return '' end return cjson.encode(list) end

-- dependent reports whether a run waits for other runs: it stays due, with growing delays.
local function dependent(status, awaits)
  if status ~= 'waiting' then return false end
  for _, name in ipairs(decode(awaits)) do
    if name == 'start' or string.sub(name, 1, 6) == 'child:' then return true end
  end
  return false
end

-- uninterrupted returns those of a list of awaited names that an interrupt leaves open: see state.InterruptClosesWait.
local function uninterrupted(names)
  local open = {}
  for _, name in ipairs(names) do
    if name == 'start' or string.sub(name, 1, 7) == 'replay:' then open[#open + 1] = name end
  end
  return open
end

-- The inbox has a signal as names (JSON), 'm' for a user message, 'i' for one that interrupts the run or '-', and its payload, one per line.
local function parts(sig)
  local a = string.find(sig, '\n', 1, true)
  local b = string.find(sig, '\n', a + 1, true)
  return string.sub(sig, 1, a - 1), string.sub(sig, a + 1, b - 1), string.sub(sig, b + 1)
end

local function push(L, from)
  for i = from, #ARGV, 500 do redis.call('RPUSH', L, unpack(ARGV, i, math.min(i + 499, #ARGV))) end
end

-- versionAfter returns a version, as text, that is above all that it has returned before: the time in µs if that is. So an older copy of the store repeats none.
local function versionAfter(V)
  local version = string.format('%.0f', math.max(tonumber(redis.call('GET', V) or 0) + 1, now() * 1000))
  redis.call('SET', V, version)
  return version
end
