-- KEYS R L D C T N · ARGV run delay(ms) status version header awaited wake(ms) lane format tenant fixed-header wait names idempotency-key entries…
--   names: what lists find the run by, one below the other; none in format 1
-- returns create, verdict {'exists'}
local R, L, D, C, T, N = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
if redis.call('EXISTS', R) == 1 then return {'exists'} end
redis.call('HSET', R, 'h', ARGV[5], 'st', ARGV[3], 'ver', ARGV[4], 'tok', '', 'own', '', 'lease', 0, 'att', 0, 'sa', 0, 'ab', '',
  'aw', ARGV[6], 'cid', '', 'cst', '', 'cver', 0, 'ln', ARGV[8], 'ann', 0, 'base', #ARGV - 14, 'wake', ARGV[7], 'sw', 0, 'f', ARGV[9],
  'tn', ARGV[10], 'qa', ARGV[3] == 'queued' and now() or 0)
if ARGV[11] ~= '' then redis.call('HSET', R, 'hf', ARGV[11]) end
push(L, 15)
if ARGV[14] ~= '' then redis.call('HSET', R, 'ik', ARGV[14]) end
if ARGV[13] ~= '' then
  enlist(N, ARGV[1], ARGV[10], ARGV[13])
  relist(R, N, ARGV[1], ARGV[10], '', ARGV[3], ARGV[12])
end
redis.call('HINCRBY', C, ARGV[3], 1)
countTenant(T, C, ARGV[10], '', ARGV[3])
local at, wake = now() + tonumber(ARGV[2]), tonumber(ARGV[7])
if wake > 0 and wake < at then at = wake end
due(D, ARGV[1], at)
local noisy = isNoisy(T, ARGV[10], ARGV[3])
return {'ok', noisy}
