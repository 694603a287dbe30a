-- internal/state/quota reimplemented, line by line.
-- KEYS B K · ARGV kept for(ms) now(µs, '' is the server's) · then one of
--   take requests/min tokens/min tokens reservation unreserved(0/1)
--   correct requests/min tokens/min tokens
--   pause d(µs)
-- returns take, pause (of correct and pause)
-- K keeps the reply for half a minute: the client retries a call whose reply is lost.
-- fields is bucketFields, the fields of a bucket's hash B.
local SECOND = 1000000
local BURST, WINDOW, HORIZON, SPACING = 3 * SECOND, 63 * SECOND, 3600 * SECOND, SECOND / 20
local SHORT, LONGEST = 2 * SECOND, 3600 * SECOND
local FULL, SLOWEST, RAISE, EVERY = 100, 5, 5, 10 * SECOND
local max, min, floor = math.max, math.min, math.floor

local B, K = KEYS[1], KEYS[2]
local told = redis.call('LRANGE', K, 0, -1)
if #told > 0 then return told end
local b, h = {}, redis.call('HMGET', B, unpack(fields))
for i, f in ipairs(fields) do b[f] = tonumber(h[i] or 0) or 0 end

local now = tonumber(ARGV[2])
if not now then
  local t = redis.call('TIME')
  now = t[1] * SECOND + t[2]
end

local function cost(n, limit)
  if n <= 0 or limit <= 0 then return 0 end
  return min(floor((min(n, 100000000) * WINDOW + limit - 1) / limit), HORIZON)
end

if b.at == 0 then b.at, b.clk, b.spd = now, now, FULL end
local t = max(b.at, min(b.unt, now))
b.at = max(b.at, now)
while t < b.at do
  local stop = b.at
  if b.spd < FULL then stop = min(stop, b.rse) end
  b.clk = b.clk + floor((stop - t) * b.spd / FULL)
  t = stop
  if b.spd < FULL and t == b.rse then b.spd, b.rse = min(b.spd + RAISE, FULL), b.rse + EVERY end
end

local function untilClock(at)
  local t, left, spd, step = max(b.at, b.unt), at - b.clk, b.spd, b.rse
  while left > 0 do
    if spd == FULL then t = t + left; break end
    local gain = floor((step - t) * spd / FULL)
    if gain >= left then t = t + floor((left * FULL + spd - 1) / spd); break end
    left, t, spd, step = left - gain, step, min(spd + RAISE, FULL), step + EVERY
  end
  return t - b.at
end

local function charge(r, t, at, requests, tokens)
  b[r] = max(b[r], at - BURST) + requests
  b[t] = max(b[t], at - BURST) + tokens
end

local function take(perRequests, perTokens, n, mine, unreserved)
  local requests, tokens = cost(1, perRequests), cost(n, perTokens)
  local spaced = (perRequests > 0 or perTokens > 0) and 0 or SPACING
  local paused = b.unt > b.at and 1 or 0
  local open = max(b.ur, b.ut)
  local first = max(open, mine)
  if mine == 0 then first = max(open, b.rr, b.rt, b.late) end
  if paused == 0 and b.clk >= first then
    charge('ur', 'ut', b.clk, requests, tokens)
    if mine == 0 then charge('rr', 'rt', b.clk, requests, tokens) end
    return {0, 0, 0}
  end
  local at = max(first, b.clk)
  local reservation = at
  if unreserved then
    reservation = 0
  elseif mine > b.clk then -- too early, and the reservation stays
  elseif mine > 0 then
    at = max(open, b.late, b.clk)
    reservation = at
    b.late = at + max(requests, tokens, spaced)
  elseif at > b.clk + HORIZON then
    at, reservation = b.clk + HORIZON / 2, 0
  else
    charge('rr', 'rt', at, requests + spaced, tokens)
  end
  local wait = untilClock(at)
  return {wait, reservation, paused}
end

local op, reply = ARGV[3], {now}
if op == 'take' then
  reply = take(tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1')
elseif op == 'correct' then
  local n, limit = tonumber(ARGV[6]), tonumber(ARGV[5])
  local c = cost(n, limit) - cost(-n, limit)
  b.ut, b.rt = b.ut + c, b.rt + c
else
  if b.unt <= b.at then b.spd = max(floor(b.spd / 2), SLOWEST) end
  local wait = min(tonumber(ARGV[4]), LONGEST)
  if wait <= 0 then wait = SHORT end
  b.unt = max(b.unt, b.at + wait)
  b.rse = b.unt + EVERY
  for _, f in ipairs({'ur', 'ut', 'rr', 'rt'}) do b[f] = max(b[f], b.clk) end
end

local out = {}
for _, f in ipairs(fields) do out[#out + 1] = f; out[#out + 1] = b[f] end
redis.call('HSET', B, unpack(out))
redis.call('PEXPIRE', B, ARGV[1])
redis.call('RPUSH', K, unpack(reply))
redis.call('PEXPIRE', K, 30000)
return reply
