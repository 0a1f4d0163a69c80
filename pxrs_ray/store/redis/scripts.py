"""The Lua scripts of the Redis store: each is one atomic step in the server.

Rules of this file. A group is one hash `state` of plain fields, so that a fence is a comparison
of strings:  gen, ver (last version), n (partitions), seq (writes so far), id (of this life of the
group), o<p> = "epoch;incarnation;owner" and c<p> = "checkpoint;attempts;detail". Members,
history and documents are keys of their own under the same {hash tag}; a member's lease is a key
that expires. Numbers are compared as decimal strings: Lua's are exact to 2**53 only.

A script answers {'gone'}, {'lost', what} or {'fenced'} when the sender may not write, else
{'done', seq, answer}. 'lost' means that this life of the group knows less than the sender was
told: Redis lost accepted writes.
"""

from __future__ import annotations

_OPEN = """
local state, members, changes, documents = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local leases = KEYS[5]
local function older(a, b) return #a < #b or (#a == #b and a < b) end
"""

# ARGV: generation, life of the group and seq that the sender last saw, then the script's own.
_FENCE = (
    _OPEN
    + """
local head = redis.call('HMGET', state, 'gen', 'id', 'seq')
if not head[1] then return {'gone'} end
if older(head[1], ARGV[1]) then return {'lost', 'generation ' .. head[1]} end
if head[2] == ARGV[2] and older(head[3], ARGV[3]) then return {'lost', 'write ' .. head[3]} end
if head[1] ~= ARGV[1] then return {'fenced'} end
"""
)

_DONE = """
return {'done', redis.call('HINCRBY', state, 'seq', 1), answer, head[2]}
"""

LEAD = (
    _OPEN
    + """
-- partitions, fresh id, holder, cause and time for the history, id and seq last seen
local head = redis.call('HMGET', state, 'gen', 'id', 'seq', 'n')
if head[1] then
  if head[4] ~= ARGV[1] then return {'count', head[4]} end
  if head[2] == ARGV[6] and older(head[3], ARGV[7]) then return {'lost', 'write ' .. head[3]} end
else
  redis.call('HSET', state, 'n', ARGV[1], 'id', ARGV[2], 'seq', 0, 'gen', 0, 'ver', 0)
  for p = 0, ARGV[1] - 1 do redis.call('HSET', state, 'o' .. p, '0;0;', 'c' .. p, '0;0;') end
end
local gen = redis.call('HINCRBY', state, 'gen', 1)
local ver = redis.call('HINCRBY', state, 'ver', 1)
local told = {ver, '"led"', -1, ARGV[3], 0, gen, 0, ARGV[4], ARGV[5]}
redis.call('ZADD', changes, ver, '[' .. table.concat(told, ',') .. ']')
redis.call('HINCRBY', state, 'seq', 1)
return {'done', redis.call('HGETALL', state), redis.call('HGETALL', members)}
"""
)

WRITE = (
    _FENCE
    + """
local newest = tonumber(redis.call('HGET', state, 'ver'))
local function tell(version, change)
  redis.call('ZREMRANGEBYSCORE', changes, version, version)
  redis.call('ZADD', changes, version, change)
  if tonumber(version) > newest then newest = tonumber(version) end
end
local out, i = {}, 4
while i <= #ARGV do
  local kind, r = ARGV[i], 'f'
  if kind == 'c' then                        -- commit: partition, own, checkpoint, cell
    local v = redis.call('HMGET', state, 'o' .. ARGV[i + 1], 'c' .. ARGV[i + 1])
    if v[1] == ARGV[i + 2] then
      if older(ARGV[i + 3], string.match(v[2], '^%d+')) then r = 'b' else
        redis.call('HSET', state, 'c' .. ARGV[i + 1], ARGV[i + 4]); r = 'a' end
    end
    i = i + 5
  elseif kind == 'o' then                    -- owner: p, before, after, cell, version, change
    local p, before, after, cell = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
    local v = redis.call('HMGET', state, 'o' .. p, 'c' .. p)
    if v[1] == before then
      redis.call('HSET', state, 'o' .. p, after)
      if cell ~= '' then redis.call('HSET', state, 'c' .. p, cell) end
      tell(ARGV[i + 5], ARGV[i + 6]); r = 'a'
    elseif v[1] == after and (cell == '' or cell == v[2]) then r = 'a' end
    i = i + 7
  elseif kind == 'j' then                    -- join: member, incarnation, words, ms, version, ...
    local m, inc = ARGV[i + 1], ARGV[i + 2]
    local v = redis.call('HGET', members, m)
    if not v or not older(inc, string.match(v, '^%d+')) then
      redis.call('HSET', members, m, inc .. ';' .. ARGV[i + 3])
      redis.call('SET', leases .. m, inc, 'PX', ARGV[i + 4])
      tell(ARGV[i + 5], ARGV[i + 6]); r = 'a'
    end
    i = i + 7
  else                                       -- left: member, incarnation, version, change
    local m = ARGV[i + 1]
    local v = redis.call('HGET', members, m)
    if not v then r = 'a'
    elseif string.match(v, '^%d+') == ARGV[i + 2] then
      redis.call('HDEL', members, m); redis.call('DEL', leases .. m)
      tell(ARGV[i + 3], ARGV[i + 4]); r = 'a'
    end
    i = i + 5
  end
  out[#out + 1] = r
end
redis.call('HSET', state, 'ver', string.format('%.0f', newest))
local answer = table.concat(out)
"""
    + _DONE
)

RENEW = (
    _FENCE
    + """
local out = {}                               -- lease in ms, then member and incarnation of each
for i = 5, #ARGV, 2 do
  local r = 'f'
  if redis.call('GET', leases .. ARGV[i]) == ARGV[i + 1] then
    redis.call('PEXPIRE', leases .. ARGV[i], ARGV[4]); r = 'a' end
  out[#out + 1] = r
end
local answer = table.concat(out)
"""
    + _DONE
)

TRIM = (
    _FENCE
    + """
redis.call('ZREMRANGEBYRANK', changes, 0, -(ARGV[4] + 1))
local answer = ''
"""
    + _DONE
)

PUT = (
    _FENCE
    + """
if ARGV[5] == '' then redis.call('HDEL', documents, ARGV[4])
else redis.call('HSET', documents, ARGV[4], ARGV[5]) end
local answer = ''
"""
    + _DONE
)

EXPIRED = (
    _OPEN
    + """
local n, out, live = redis.call('HGET', state, 'n'), {}, {}
if not n then return out end
for p = 0, n - 1 do
  local own = redis.call('HGET', state, 'o' .. p)
  local inc, owner = string.match(own, '^%d+;(%d+);(.*)$')
  if owner ~= '' then
    if live[owner] == nil then live[owner] = redis.call('GET', leases .. owner) end
    if live[owner] ~= inc then
      out[#out + 1] = p; out[#out + 1] = own; out[#out + 1] = redis.call('HGET', state, 'c' .. p)
    end
  end
end
return out
"""
)

# A script, for a transaction would be refused while the memory is full.
LOAD = (
    _OPEN
    + """
return {redis.call('HGETALL', state), redis.call('HGETALL', members)}
"""
)

RESTORE = (
    _OPEN
    + """
-- counts of state fields, members and changes; then those pairs, then the documents' pairs
if redis.call('EXISTS', state) == 1 then return {'exists'} end
local i = 4
for _ = 1, ARGV[1] do redis.call('HSET', state, ARGV[i], ARGV[i + 1]); i = i + 2 end
for _ = 1, ARGV[2] do redis.call('HSET', members, ARGV[i], ARGV[i + 1]); i = i + 2 end
for _ = 1, ARGV[3] do redis.call('ZADD', changes, ARGV[i], ARGV[i + 1]); i = i + 2 end
while i < #ARGV do redis.call('HSET', documents, ARGV[i], ARGV[i + 1]); i = i + 2 end
return {'done'}
"""
)

REMOVE = (
    _OPEN
    + """
-- the generation that alone may remove it, or '' for anybody
local gen = redis.call('HGET', state, 'gen')
if not gen then return {'gone'} end
if ARGV[1] ~= '' then
  if older(gen, ARGV[1]) then return {'lost', 'generation ' .. gen} end
  if gen ~= ARGV[1] then return {'fenced'} end
end
for _, member in ipairs(redis.call('HKEYS', members)) do redis.call('DEL', leases .. member) end
redis.call('DEL', state, members, changes, documents)
return {'done'}
"""
)
