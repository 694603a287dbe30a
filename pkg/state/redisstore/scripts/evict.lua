-- KEYS R D C T · ARGV run worker grace(ms) · returns {'none'} or {'turn', version, lane, 1, 0, crowded(0/1), tenant}
local R, D, C, T = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local h = redis.call('HMGET', R, 'st', 'own', 'ver', 'ln', 'f', 'tn', 'ab')
if h[1] ~= 'running' or h[2] ~= ARGV[2] or newer(h[5]) then return {'none'} end
queue(R, C, D, ARGV[1], 'running', tonumber(ARGV[3]))
redis.call('HSET', R, 'sw', 1)
return {'turn', h[3], h[7] ~= '' and 'high' or h[4], 1, 0, crowded(T, h[6], 'queued'), h[6] or ''}
