-- KEYS R G · ARGV limit runs… · returns admit, verdict {'missing'}, {'deleted'} or {'newer'}
local R, G = KEYS[1], KEYS[2]
local status, abort, format = unpack(redis.call('HMGET', R, 'st', 'ab', 'f'))
if not status then local word = absent(R); return {word} end
if newer(format) then return {'newer'} end
local ended = (terminal(status) or abort ~= '') and 1 or 0
local count, refused = redis.call('SCARD', G), {}
for i = 2, #ARGV do
  if redis.call('SISMEMBER', G, ARGV[i]) == 0 then
    if ended == 1 or count >= tonumber(ARGV[1]) then
      refused[#refused + 1] = ARGV[i]
    else
      redis.call('SADD', G, ARGV[i])
      count = count + 1
    end
  end
end
return {'ok', ended, refused}
