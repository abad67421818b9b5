-- Applies the rows of consecutive records and moves the watermark, or does neither: everything that can fail is
-- computed before the first row is written, because Redis keeps what a failing script wrote.
--
-- KEYS  1 watermark, 2 index, 3 scratch, 4 store, then one row key per row
-- ARGV  1 watermark that is expected (nothing: none yet), 2 watermark afterwards, 3 bytes of the row prefix,
--       4 the store (nothing: not told), 5 the record's key, 6 the last record, then per row an operation (p put,
--       d delete, a add) and "<version> <JSON or delta>"
local at = redis.call('GET', KEYS[1]) or ''
local store = redis.call('GET', KEYS[4]) or ARGV[4]
if at ~= ARGV[1] or (at ~= '' and ARGV[4] ~= '' and store ~= ARGV[4]) then
  return redis.error_reply('MOVED ' .. at)
end
local index_type = redis.call('TYPE', KEYS[2]).ok
if index_type ~= 'zset' and index_type ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is no sorted set')
end

-- JSON has a negative zero, Redis' integers do not.
local function integer(text)
  return text == '-0' and '0' or text
end

local order, rows = {}, {}
for i = 5, #KEYS do
  local key, operation, value = KEYS[i], ARGV[2 * i - 3], ARGV[2 * i - 2]
  if operation == 'd' then
    value = false
  elseif operation == 'a' then
    local version, delta = string.match(value, '^(%d+) (.*)$')
    local now = rows[key]
    if now == nil then
      now = redis.pcall('GET', key)
      if type(now) == 'table' then
        return redis.error_reply('WRONGTYPE ' .. key .. ' is no row')
      end
    end
    local number = now and string.match(now, '^%d+ (-?%d+)$')
    if not number then
      return redis.error_reply('NOTANUMBER ' .. key .. ' holds no integer to add to')
    end
    -- Lua counts in doubles; Redis adds 64-bit integers exactly.
    local set = redis.pcall('SET', KEYS[3], integer(number))
    if set.err then
      return set
    end
    local sum = redis.pcall('INCRBY', KEYS[3], integer(delta))
    local text = redis.pcall('GET', KEYS[3])
    redis.call('DEL', KEYS[3])
    if type(sum) == 'table' then
      return redis.error_reply('NOTANUMBER ' .. key .. ' and the delta make no 64-bit integer')
    end
    value = version .. ' ' .. text
  end
  if rows[key] == nil then
    order[#order + 1] = key
  end
  rows[key] = value
end

local prefix = tonumber(ARGV[3])
redis.call('SET', KEYS[1], ARGV[2])
-- Not one of KEYS, and may fail: a user whose permissions are older than this key pushes without it.
redis.pcall('SET', ARGV[5], ARGV[6])
if ARGV[4] ~= '' then
  redis.call('SET', KEYS[4], ARGV[4])
end
for _, key in ipairs(order) do
  local member = string.sub(key, prefix + 1)
  if rows[key] then
    redis.call('SET', key, rows[key])
    redis.call('ZADD', KEYS[2], 0, member)
  else
    redis.call('DEL', key)
    redis.call('ZREM', KEYS[2], member)
  end
end
return redis.status_reply('OK')
