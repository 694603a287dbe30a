-- KEYS D · ARGV name was data · returns verdict {'ok'} or {'conflict'}
--   '' for was or data means no document.
local D, name, was, data = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if (redis.call('HGET', D, name) or '') ~= was then return {'conflict'} end
if data == '' then
  redis.call('HDEL', D, name)
else
  redis.call('HSET', D, name, data)
end
return {'ok'}
