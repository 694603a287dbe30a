-- KEYS R L D C T H N U M · ARGV run delay(ms) oldest(ms) of high, normal and low, 0 is none, then how the run was put aside, or '', then floor · returns due {'turn', …}, {'covered', …} or {'finalize', …}, verdict {'none'}
local R, L, D, C, T, H, N, U, M = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
if behind(M, ARGV[7]) then return {'none'} end
local run, delay = ARGV[1], tonumber(ARGV[2])
-- state.Backlog, minus the skew.
local function explained(lane, at)
  local oldest = tonumber(lane == 'high' and ARGV[3] or lane == 'low' and ARGV[5] or ARGV[4])
  return oldest > 0 and at > 0 and at >= oldest
end
local status, version, lease, lane, finalized, wake, sweeps, format, awaits, tenant, abort, owner, queuedAt, token, evicted, listed = unpack(
  redis.call('HMGET', R, 'st', 'ver', 'lease', 'ln', 'fin', 'wake', 'sw', 'f', 'aw', 'tn', 'ab', 'own', 'qa', 'tok', 'ev', 'li'))
if ARGV[6] ~= '' then redis.call('ZREM', U, ARGV[6]) end
if not status then redis.call('ZREM', D, run); return {'none'} end
if newer(format) then
  redis.call('ZREM', D, run)
  redis.call('ZADD', U, '0', aside(format, run))
  return {'none'}
end
local n, at, what = now(), redis.call('ZSCORE', D, run), nil
if ARGV[6] ~= '' then at = at or n end
if not at or tonumber(at) > n then return {'none'} end
lease, wake, sweeps = tonumber(lease), tonumber(wake), tonumber(sweeps)
if status == 'running' and lease > n then due(D, run, lease + delay); return {'none'} end
if status == 'waiting' and wake > 0 and wake <= n then
  queue(R, C, D, run, status, delay, T, tenant)
  relist(R, N, run, tenant, listed, 'queued')
  sweeps, what = 0, 'turn'
elseif status == 'queued' and explained(abort ~= '' and 'high' or lane, tonumber(queuedAt or 0)) then
  due(D, run, n + math.max(delay * LOOK, n - tonumber(queuedAt)))
  if sweeps > 0 or abort ~= '' then return {'none'} end
  redis.call('HSET', R, 'sw', '1')
  sweeps = 1
  local noisy = isNoisy(T, tenant, 'queued')
  return {'covered', version, lane, sweeps, finalized, noisy, tenant}
elseif status == 'queued' or status == 'running' then
  count(C, status, 'queued')
  hold(H, run, owner, '')
  if status == 'running' then noteEvicted(R, evicted, version, token) end
  redis.call('HSET', R, 'st', 'queued', 'tok', '', 'own', '', 'qa', n)
  what = 'turn'
elseif tonumber(finalized) < redis.call('LLEN', L) or dependent(status, awaits) then
  what = 'finalize'
else
  due(D, run, wake)
  return {'none'}
end
local next = n + delay * 2 ^ math.min(sweeps, 6)
if what == 'finalize' and wake > 0 and wake < next then next = wake end
due(D, run, next)
sweeps = sweeps + 1
redis.call('HSET', R, 'sw', sweeps)
if abort ~= '' then lane = 'high' end
local noisy = isNoisy(T, tenant, what == 'turn' and 'queued')
return {what, version, lane, sweeps, finalized, noisy, tenant}
