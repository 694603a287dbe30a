-- KEYS R L · ARGV after limit bytes, 0 means no bound · reads a page of the log, a few entries at a time: a page of large ones ends early
-- returns log, verdict {'missing'}, {'deleted'} or {'newer'}
local R, L = KEYS[1], KEYS[2]
local status, format = unpack(redis.call('HMGET', R, 'st', 'f'))
if not status then local word = absent(R); return {word} end
if newer(format) then return {'newer'} end
local last, bytes, size = redis.call('LLEN', L), tonumber(ARGV[3]), 0
local entries, next = {}, tonumber(ARGV[1])
local stop = last
if ARGV[2] ~= '0' then stop = math.min(last, next + tonumber(ARGV[2])) end
while next < stop and (bytes == 0 or size < bytes) do
  for _, entry in ipairs(redis.call('LRANGE', L, next, math.min(next + 8, stop) - 1)) do
    if bytes > 0 and size >= bytes then break end
    entries[#entries + 1], size, next = entry, size + #entry, next + 1
  end
end
local more = next < last and 1 or 0
return {'ok', entries, more}
