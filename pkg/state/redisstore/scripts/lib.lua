-- Shared by all scripts. names.go lists the fields of hashes and the places of replies, and TestScripts holds the scripts
-- to it: a field is read into a variable of its name, and a place of a reply is filled from one, or with a constant.
--   R hash of the run · L log · J journal · I inbox · X ids of signals that were seen · D index of what is due
--   C counts of the shard's runs by status · T of those that are queued or running by tenant · H index of leases · N index of lists · U index of what was put aside · G descendants of the run
--   M the mark of the shard, see mark.lua
-- A number that goes to a command is formatted as a float, which takes longer than the command: constants are strings.
-- LOOK is state.BacklogLook. FORMAT is the newest that this build knows, and NOISY the number in state.NoisyAbove. A run of a newer one is left alone; who
-- holds the lease of a run has found at the claim that it is not.
-- Clocks are the server's own: those of workers do not matter.
local function now() local t = redis.call('TIME'); return t[1] * 1000 + math.floor(t[2] / 1000) end

local function newer(format) return format and tonumber(format) > FORMAT end

-- behind reports whether the shard is of an older copy of the store: its mark is below floor.
local function behind(M, floor) return floor ~= '0' and tonumber(redis.call('GET', M) or 0) < tonumber(floor) end

-- absent says why a run has no status: what a deletion has left is a marker, or there is nothing.
local function absent(R) return redis.call('EXISTS', R) == 1 and 'deleted' or 'missing' end

-- mark leaves the marker of a deleted run for some ms.
local function mark(R, tenant, lifetime)
  redis.call('HSET', R, 'gone', '1', 'tn', tenant)
  redis.call('PEXPIRE', R, lifetime)
end

local function terminal(status) return status == 'completed' or status == 'incomplete' or status == 'failed' or status == 'cancelled' end

-- count keeps the counts of statuses when a run moves from one to another.
local function count(C, old, new)
  if old ~= new then redis.call('HINCRBY', C, old, -1); redis.call('HINCRBY', C, new, 1) end
end

local function active(status) return status == 'queued' or status == 'running' end

-- countTenant keeps in T how many runs of each tenant are queued or running.
local function countTenant(T, tenant, old, new)
  if active(old) == active(new) then return end
  if active(new) then redis.call('HINCRBY', T, tenant, 1); return end
  if redis.call('HINCRBY', T, tenant, -1) <= 0 then redis.call('HDEL', T, tenant) end
end

-- isNoisy is 1 if a run is queued and its tenant has more in flight than one that is not noisy, else 0.
local function isNoisy(T, tenant, status)
  if status == 'queued' and tonumber(redis.call('HGET', T, tenant) or 0) > NOISY then return 1 end
  return 0
end

-- due puts a run into the index of what somebody must look at; 0 takes it out.
local function due(D, run, at)
  if at > 0 then redis.call('ZADD', D, at, run) else redis.call('ZREM', D, run) end
end

-- What is due of runs that this build cannot read is put aside, in an index by format: each costs one look, and is out of the way
-- of what others wait for. A build that can read them takes them back, see sweep.lua.
local function aside(format, run) return string.format('%04d', format) .. '\0' .. run end

-- hold moves a run in the index of leases from one worker to another, '' is none.
local function hold(H, run, old, new)
  if old == new then return end
  if old ~= '' then redis.call('ZREM', H, old .. '\0' .. run) end
  if new ~= '' then redis.call('ZADD', H, '0', new .. '\0' .. run) end
end

-- The index of lists has a run under each name that a list may ask for, below its tenant.
local function listing(tenant, name, run) return tenant .. '\0' .. name .. '\0' .. run end

-- enlist puts a run under the names that never change, one below the other.
local function enlist(N, run, tenant, names)
  for name in string.gmatch(names, '[^\n]+') do redis.call('ZADD', N, '0', listing(tenant, name, run)) end
end

-- relist puts a run under its status, and under what it waits for. Queued and running are one, so that no turn writes here.
-- listed is what it is under, '' if the run is new.
local function relist(R, N, run, tenant, listed, status, wait)
  if active(status) then status = 'active' elseif status == 'waiting' then status = 'waiting ' .. wait end
  if listed == status then return end
  for name in string.gmatch(listed, '%S+') do redis.call('ZREM', N, listing(tenant, 'status:' .. name, run)) end
  for name in string.gmatch(status, '%S+') do redis.call('ZADD', N, '0', listing(tenant, 'status:' .. name, run)) end
  redis.call('HSET', R, 'li', status)
end

-- A worker whose lease was ended may only have been paused. Its tokens are kept with the version of their turn, one below the
-- other, the latest eight; beside them the time at which the latest was ended, with the version too.
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

-- queue makes a run claimable; the sweeper looks after delay. T and tenant are of a run that may have rested.
local function queue(R, C, D, run, old, delay, T, tenant)
  count(C, old, 'queued')
  countTenant(T, tenant, old, 'queued')
  local n = now()
  redis.call('HSET', R, 'st', 'queued', 'tok', '', 'own', '', 'lease', '0', 'sw', '0', 'qa', n)
  due(D, run, n + delay)
end

-- answer takes names out of a list of awaited ones; false if one is missing, and
-- the list is then of no use.
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

-- dependent reports whether a run waits for other runs: it stays due, ever more rarely.
local function dependent(status, awaits)
  if status ~= 'waiting' then return false end
  for _, name in ipairs(decode(awaits)) do
    if name == 'start' or string.sub(name, 1, 6) == 'child:' then return true end
  end
  return false
end

-- A signal lies in the inbox as names (JSON), 'm' for a user message or '-', and
-- its payload, one below the other.
local function parts(sig)
  local a = string.find(sig, '\n', 1, true)
  local b = string.find(sig, '\n', a + 1, true)
  return string.sub(sig, 1, a - 1), string.sub(sig, a + 1, b - 1), string.sub(sig, b + 1)
end

local function push(L, from)
  for i = from, #ARGV, 500 do redis.call('RPUSH', L, unpack(ARGV, i, math.min(i + 499, #ARGV))) end
end
