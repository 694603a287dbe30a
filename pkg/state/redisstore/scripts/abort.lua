-- KEYS R D C I T N · ARGV run abort(JSON) delay(ms)
-- returns wake, closed {'terminal', status}, verdict {'missing'}, {'deleted'} or {'newer'}
local R, D, C, I, T, N = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local status, version, lane, abort, format, tenant, listed = unpack(redis.call('HMGET', R, 'st', 'ver', 'ln', 'ab', 'f', 'tn', 'li'))
if not status then local word = absent(R); return {word} end
if newer(format) then return {'newer'} end
if terminal(status) then return {'terminal', status} end
if abort == '' then redis.call('HSET', R, 'ab', ARGV[2]) end
-- The abort also consumes the signals that arrived before it, and nothing else.
redis.call('HSET', R, 'abr', redis.call('LLEN', I))
local publish = 0
if status == 'waiting' then
  queue(R, C, D, ARGV[1], status, tonumber(ARGV[3]), T, tenant)
  relist(R, N, ARGV[1], tenant, listed, 'queued')
end
if status == 'waiting' or status == 'queued' then publish = 1 end
return {'ok', publish, version, lane, tenant}
