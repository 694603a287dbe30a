-- KEYS B · ARGV origin(JSON) index status size lifetime(ms) · returns verdict {'ok'}
-- B has the origin of a batch, and the status of each deleted run by its index. It stays while the store has a run of the batch.
local B = KEYS[1]
redis.call('HSET', B, 'origin', ARGV[1], ARGV[2], ARGV[3])
if redis.call('HLEN', B) > tonumber(ARGV[4]) then redis.call('PEXPIRE', B, ARGV[5]) end
return {'ok'}
