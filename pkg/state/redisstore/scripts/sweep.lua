-- KEYS R L D C T · ARGV run grace(ms) · returns {'none'} or {what, version, lane, sweeps, finalized, crowded(0/1), tenant}, what is 'turn' or 'finalize'
local R, L, D, C, T = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local run, grace = ARGV[1], tonumber(ARGV[2])
local h = redis.call('HMGET', R, 'st', 'ver', 'lease', 'ln', 'ann', 'wake', 'sw', 'f', 'aw', 'tn', 'ab')
local st = h[1]
if not st then redis.call('ZREM', D, run); return {'none'} end
if newer(h[8]) then return {'none'} end
local n, at = now(), redis.call('ZSCORE', D, run)
if not at or tonumber(at) > n then return {'none'} end
local lease, wake, sw, what = tonumber(h[3]), tonumber(h[6]), tonumber(h[7]), nil
if st == 'running' and lease > n then due(D, run, lease + grace); return {'none'} end
if st == 'waiting' and wake > 0 and wake <= n then
  queue(R, C, D, run, st, grace, T, h[10]); sw = 0; what = 'turn'
elseif st == 'queued' or st == 'running' then
  count(C, st, 'queued')
  redis.call('HSET', R, 'st', 'queued', 'tok', '', 'own', '')
  what = 'turn'
elseif tonumber(h[5]) < redis.call('LLEN', L) or dependent(st, h[9]) then
  what = 'finalize'
else
  due(D, run, wake)
  return {'none'}
end
local next = n + grace * 2 ^ math.min(sw, 6)
if what == 'finalize' and wake > 0 and wake < next then next = wake end
due(D, run, next)
redis.call('HSET', R, 'sw', sw + 1)
return {what, h[2], h[11] ~= '' and 'high' or h[4], sw + 1, h[5], crowded(T, h[10], what == 'turn' and 'queued'), h[10] or ''}
