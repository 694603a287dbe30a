-- KEYS S · ARGV from most · returns firsts
--   reads the texts before the first \0 of the members of a sorted set without scores, from a member on; at most that many texts
local S, from, most = KEYS[1], ARGV[1], tonumber(ARGV[2])
local texts = {}
while #texts < most do
  local member = redis.call('ZRANGEBYLEX', S, from, '+', 'LIMIT', '0', '1')[1]
  if not member then break end
  local text = string.match(member, '^%Z*')
  texts[#texts + 1] = text
  from = '(' .. text .. '\1'
end
return {texts}
