-- KEYS R D C H · ARGV run token version delay(ms) · returns verdict {'ok'} or {'fenced'}
local R, D, C, H = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local status, token, version, owner, evicted = unpack(redis.call('HMGET', R, 'st', 'tok', 'ver', 'own', 'ev'))
if status ~= 'running' or token ~= ARGV[2] or version ~= ARGV[3] then
  if (status == 'running' or status == 'queued') and version == ARGV[3] and wasEvicted(evicted, version, ARGV[2]) then
    -- The worker was only paused: its attempt does not count. Once.
    local kept = {}
    for old in string.gmatch(evicted, '[^\n]+') do
      if old ~= version .. ' ' .. ARGV[2] then kept[#kept + 1] = old end
    end
    redis.call('HSET', R, 'ev', table.concat(kept, '\n'))
    redis.call('HINCRBY', R, 'pz', 1)
  end
  return {'fenced'}
end
redis.call('HINCRBY', R, 'att', -1)
hold(H, ARGV[1], owner, '')
queue(R, C, D, ARGV[1], 'running', tonumber(ARGV[4]))
-- No message was published, so no backlog covers the run.
redis.call('HSET', R, 'qa', '0')
return {'ok'}
