-- KEYS R D · ARGV run token version lease(ms) delay(ms) · returns renew, verdict {'fenced'}
local R, D = KEYS[1], KEYS[2]
local status, token, version, abort, interrupt = unpack(redis.call('HMGET', R, 'st', 'tok', 'ver', 'ab', 'itr'))
if status ~= 'running' or token ~= ARGV[2] or version ~= ARGV[3] then return {'fenced'} end
local lease = now() + tonumber(ARGV[4])
redis.call('HSET', R, 'lease', lease, 'eag', '')
redis.call('ZADD', D, lease + tonumber(ARGV[5]), ARGV[1])
if abort == '' then abort = interrupt or '' end
return {'ok', abort}
