-- KEYS R D C T H M · ARGV run worker delay(ms) floor · returns due, verdict {'none'}
local R, D, C, T, H, M = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
if behind(M, ARGV[4]) then return {'none'} end
local status, owner, version, lane, format, tenant, abort, token, evicted = unpack(redis.call('HMGET', R, 'st', 'own', 'ver', 'ln', 'f', 'tn', 'ab', 'tok', 'ev'))
if newer(format) then return {'none'} end
hold(H, ARGV[1], ARGV[2], '')
if status ~= 'running' or owner ~= ARGV[2] then return {'none'} end
noteEvicted(R, evicted, version, token)
queue(R, C, D, ARGV[1], 'running', tonumber(ARGV[3]))
redis.call('HSET', R, 'sw', 1)
if abort ~= '' then lane = 'high' end
local noisy = isNoisy(T, tenant, 'queued')
return {'turn', version, lane, 1, 0, noisy, tenant}
