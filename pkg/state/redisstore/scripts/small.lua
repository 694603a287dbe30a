-- KEYS R · ARGV bytes · returns stored, verdict {'large'}
--   reads a run for a list, or only the size of its header if that has more bytes
local header = stored(KEYS[1], tonumber(ARGV[1]))
return header
