-- Shared by all scripts. A run's header hash R has
--   h header · st status · ver version · tok own lease(ms) att of the claim
--   sa started at (ms) · ab abort as JSON, or '' · aw awaited names as a JSON list, or ''
--   cid cst cver of the last commit · ln lane · ann entries when it was last finalized · base committed entries
--   kp the token that a commit has kept, until it is renewed or nothing else tells that it is used
--   wake when a wait ends (ms), 0 never · sw sweeps of this version · f format, 1 without
--   tn tenant, none if a build made the run that did not count the runs of tenants
-- A number that goes to a command is formatted as a float, which takes longer than the command: constants are strings.
-- FORMAT is that of this build, and CROWD the number in state.Crowd. A run of a newer one is left alone; who holds the lease
-- of a run has found at the claim that it is not.
-- Clocks are the server's own: those of workers do not matter.
local function now() local t = redis.call('TIME'); return t[1] * 1000 + math.floor(t[2] / 1000) end

local function newer(f) return f and tonumber(f) > FORMAT end

local function terminal(st) return st == 'completed' or st == 'incomplete' or st == 'failed' or st == 'cancelled' end

-- count keeps the counts of statuses when a run moves from one to another.
local function count(C, old, new)
  if old ~= new then redis.call('HINCRBY', C, old, -1); redis.call('HINCRBY', C, new, 1) end
end

local function active(st) return st == 'queued' or st == 'running' end

-- crowd keeps in T how many runs of each tenant are queued or running, after count. Builds that do not know of it
-- may have ended a run that was counted, so when nothing is under way nothing is counted.
local function crowd(T, C, tn, old, new)
  if not tn or active(old) == active(new) then return end
  if active(new) then redis.call('HINCRBY', T, tn, 1); return end
  if redis.call('HINCRBY', T, tn, -1) <= 0 then redis.call('HDEL', T, tn) end
  local n = redis.call('HMGET', C, 'queued', 'running')
  if tonumber(n[1] or 0) + tonumber(n[2] or 0) <= 0 then redis.call('DEL', T) end
end

-- crowded is 1 if a run is queued and more of its tenant are under way than make no crowd, else 0.
local function crowded(T, tn, st)
  if st == 'queued' and tn and tonumber(redis.call('HGET', T, tn) or 0) > CROWD then return 1 end
  return 0
end

-- due puts a run into the index of what somebody must look at; 0 takes it out.
local function due(D, run, at)
  if at > 0 then redis.call('ZADD', D, at, run) else redis.call('ZREM', D, run) end
end

-- queue makes a run claimable; the sweeper looks after grace. T and tn are of a run that may have rested.
local function queue(R, C, D, run, old, grace, T, tn)
  count(C, old, 'queued')
  crowd(T, C, tn, old, 'queued')
  redis.call('HSET', R, 'st', 'queued', 'tok', '', 'own', '', 'lease', '0', 'sw', '0')
  due(D, run, now() + grace)
end

-- answer takes names out of a list of awaited ones; false if one is missing, and
-- the list is then of no use.
local function answer(aw, names)
  for _, n in ipairs(names) do
    local found = false
    for k, a in ipairs(aw) do
      if a == n then table.remove(aw, k); found = true; break end
    end
    if not found then return false, n end
  end
  return true
end

local function decode(list) if not list or list == '' then return {} end return cjson.decode(list) end
local function encode(list) if #list == 0 then return '' end return cjson.encode(list) end

-- dependent reports whether a run waits for other runs: it stays due, ever more rarely.
local function dependent(st, aw)
  if st ~= 'waiting' then return false end
  for _, name in ipairs(decode(aw)) do
    if name == 'start' or string.sub(name, 1, 6) == 'child:' then return true end
  end
  return false
end

-- A signal lies in the inbox as names (JSON), 'm' for a user message or '-', and
-- its payload, one below the other.
local function parts(sig)
  local a = string.find(sig, '\n', 1, true)
  local b = string.find(sig, '\n', a + 1, true)
  return string.sub(sig, 1, a - 1), string.sub(sig, a + 1, b - 1)
end

local function push(L, from)
  for i = from, #ARGV, 500 do redis.call('RPUSH', L, unpack(ARGV, i, math.min(i + 499, #ARGV))) end
end
