-- KEYS R L D C T N K A · ARGV run delay(ms) status version header awaited wake(ms) lane format tenant fixed-header wait names idempotency-key owner lifetime(s) log-bytes guard entries…
--   names: those that lists find the run by, one per line; those of its metadata come last
--   K is the idempotency key, if owner is not '': this script takes it for owner, only if the key is free
--   A is the agent, if guard is not '': a new run needs the token of the agent's latest version as guard
-- returns create, taken {'taken', owner}, verdict {'exists'}, {'deleted'} or {'changed'}
local R, L, D, C, T, N = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local K, A = ARGV[15] ~= '' and KEYS[7], ARGV[18] ~= '' and KEYS[#KEYS]
local owner = K and redis.call('GET', K)
if owner then return {'taken', owner} end
if A and redis.call('EXISTS', R) == 0 then
  local latest, deleted = unpack(redis.call('HMGET', A, 'latest', 'deleted'))
  if not latest or deleted == '1' or redis.call('HGET', A, 'k' .. latest) ~= ARGV[18] then return {'changed'} end
end
if K then redis.call('SET', K, ARGV[15], 'EX', ARGV[16]) end
if redis.call('HEXISTS', R, 'st') == 1 then return {'exists'} end
if absent(R) == 'deleted' then return {'deleted'} end
redis.call('HSET', R, 'h', ARGV[5], 'st', ARGV[3], 'ver', ARGV[4], 'tok', '', 'own', '', 'lease', 0, 'att', 0, 'sa', 0, 'ab', '',
  'aw', ARGV[6], 'cid', '', 'cst', '', 'ln', ARGV[8], 'fin', 0, 'base', #ARGV - 18, 'wake', ARGV[7], 'sw', 0, 'f', ARGV[9],
  'hf', ARGV[11], 'tn', ARGV[10], 'qa', ARGV[3] == 'queued' and now() or 0)
push(L, 19)
if ARGV[17] ~= '' then redis.call('HSET', R, 'lb', ARGV[17]) end
if ARGV[14] ~= '' then redis.call('HSET', R, 'ik', ARGV[14]) end
enlist(N, ARGV[1], ARGV[10], ARGV[13])
local indexed = string.match(ARGV[13], '\nmeta:.*')
if indexed then redis.call('HSET', R, 'ix', indexed) end
relist(R, N, ARGV[1], ARGV[10], '', ARGV[3], ARGV[12])
redis.call('HINCRBY', C, ARGV[3], 1)
countTenant(T, ARGV[10], '', ARGV[3])
local at, wake = now() + tonumber(ARGV[2]), tonumber(ARGV[7])
if wake > 0 and wake < at then at = wake end
due(D, ARGV[1], at)
local noisy = isNoisy(T, ARGV[10], ARGV[3])
return {'ok', noisy}
