-- KEYS K · ARGV run · returns verdict {'ok'}
-- K is an idempotency key: another run may own it by now.
local owner = redis.call('GET', KEYS[1])
if owner and string.match(owner, '^%S+') == ARGV[1] then redis.call('DEL', KEYS[1]) end
return {'ok'}
