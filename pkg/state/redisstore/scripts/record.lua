-- KEYS R L J · ARGV token version from started results entries, then the ids of started calls, then id and entry
--   of each result, then the entries
-- returns {'ok', entries appended}, {'fenced'} or {'gap', loglen}
local R, L, J = KEYS[1], KEYS[2], KEYS[3]
local h = redis.call('HMGET', R, 'st', 'tok', 'ver')
if h[1] ~= 'running' or h[2] ~= ARGV[1] or h[3] ~= ARGV[2] then return {'fenced'} end
local from, started, results, entries = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local len = redis.call('LLEN', L)
local repeated = entries > 0 and len == from + entries
if not repeated and len ~= from then return {'gap', len} end
local at = 7
for _ = 1, started do redis.call('HSETNX', J, 's:' .. ARGV[at], '1'); at = at + 1 end
for _ = 1, results do redis.call('HSETNX', J, 'r:' .. ARGV[at], ARGV[at + 1]); at = at + 2 end
if repeated then return {'ok', 0} end
push(L, at)
return {'ok', entries}
