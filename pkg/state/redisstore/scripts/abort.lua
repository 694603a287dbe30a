-- KEYS R D C I T · ARGV run abort(JSON) grace(ms)
-- returns {'missing'}, {'newer'}, {'terminal', status} or {'ok', publish(0/1), version, lane}
local R, D, C, I, T = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local h = redis.call('HMGET', R, 'st', 'ver', 'ln', 'ab', 'f', 'tn')
if not h[1] then return {'missing'} end
if newer(h[5]) then return {'newer'} end
if terminal(h[1]) then return {'terminal', h[1]} end
if h[4] == '' then redis.call('HSET', R, 'ab', ARGV[2]) end
-- The abort takes with it what had come before it, and nothing else.
redis.call('HSET', R, 'abr', redis.call('LLEN', I))
local publish = 0
if h[1] == 'waiting' then queue(R, C, D, ARGV[1], h[1], tonumber(ARGV[3]), T, h[6]) end
if h[1] == 'waiting' or h[1] == 'queued' then publish = 1 end
return {'ok', publish, h[2], h[3]}
