-- KEYS R L J I D C · ARGV run version token worker lease(ms) grace(ms) have sum commit-id
--   have, sum: how many entries of the log the caller knows, and the sha1 of the last; commit-id: if that is the last
--   commit's, the caller knows its header and all entries up to there
-- returns {'missing'}, {'newer'} or {outcome, status, version, lane, finalized, loglen, busy(ms), now(ms)} and for 'claimed' also
--   header ('' if known), base, attempt, started(ms), abort, index of the first entry, entries, journal, inbox
--   The entries are left out if they are more than some: what passes through a script costs ten times as much.
local R, L, J, I, D, C = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local h = redis.call('HMGET', R, 'st', 'ver', 'tok', 'lease', 'att', 'ln', 'ann', 'cid', 'base', 'sa', 'ab', 'abr', 'f', 'kp')
local st, ver = h[1], tonumber(h[2])
if not st then return {'missing'} end
if newer(h[13]) then return {'newer'} end
local n, want, lease = now(), tonumber(ARGV[2]), tonumber(h[4])
local function no(outcome, busy) return {outcome, st, ver, h[6], h[7], redis.call('LLEN', L), busy or 0, n} end
if terminal(st) then return no('terminal') end
if want < ver then return no('stale') end
if want > ver then return no('ahead') end
if st == 'waiting' then return no('waiting') end
local att, sa = tonumber(h[5]), tonumber(h[10])
if h[3] ~= ARGV[3] then
  local idle = false
  if st == 'running' and lease > n then
    idle = h[14] == h[3] and redis.call('LLEN', L) == tonumber(h[9]) and redis.call('EXISTS', J) == 0
    if not idle then return no('busy', lease - n) end
  end
  if not idle then att = att + 1 end
end
if sa == 0 then sa = n end
lease = n + tonumber(ARGV[5])
count(C, st, 'running')
redis.call('HSET', R, 'st', 'running', 'tok', ARGV[3], 'own', ARGV[4], 'lease', lease, 'att', att, 'sa', sa, 'kp', '')
redis.call('ZADD', D, lease + tonumber(ARGV[6]), ARGV[1])
local inbox = redis.call('LRANGE', I, 0, -1)
if h[11] ~= '' then
  for i = #inbox, tonumber(h[12] or 0) + 1, -1 do inbox[i] = nil end
end
local have, header = tonumber(ARGV[7]), ''
if ARGV[9] == '' or ARGV[9] ~= h[8] then
  header = redis.call('HGET', R, 'h')
  if have > 0 then
    local last = redis.call('LINDEX', L, have - 1)
    if not last or redis.sha1hex(last) ~= ARGV[8] then have = 0 end
  end
end
local len, tail = redis.call('LLEN', L), {}
if len - have <= 32 then tail = redis.call('LRANGE', L, have, -1) end
return {'claimed', 'running', ver, h[6], h[7], len, 0, n, header, h[9], att, sa, h[11], have, tail, redis.call('HGETALL', J), inbox}
