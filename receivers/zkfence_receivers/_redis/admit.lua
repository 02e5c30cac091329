-- One stamped request: judged and carried out in one step on the server. The rule is `admit` of
-- zkfence_receivers.words, and is tested against the same table, admit_vectors.json.
--
-- EVALSHA <sha> 2 <prefix>:{<resource>}:mark <prefix>:{<resource>}:data
--     <protocol> <action> <token> <lock> <holder> <mode> <op> <digest> <payload> [claimed]
--
--   protocol  1
--   action    claim, adopt, read, write or delete
--   token     canonical decimal, 1 to 2^63-1
--   mode      write or read
--   op        canonical decimal, 1 to 2^53-1, or empty: not counted, must never be sent twice
--   digest    SHA-256 of action, a zero byte and payload, in lower-case hex; may be empty where op is
--   payload   the data of a write; otherwise ignored
--   claimed   the word 'claimed' if this token's claim was acknowledged: with neither data nor a mark of at least that
--             token the server has forgotten it, and answers mark-corrupt
--
-- It answers a flat list of bulk strings. Never integers: Lua rounds them above 2^53.
--
--   admitted, existed ("1" or "0": was there data before), data (of a read; null where there is none)
--   duplicate, mark's fields ...     applied before, not applied again; the reply is the mark's last field
--   stale-token, token-collision, out-of-order, wrong-lock, wrong-namespace, read-only, unfenced,
--     mark's fields ...              refused; no fields where there is no mark
--   invalid-token, invalid-stamp, invalid-request, mark-corrupt, wrong-type, reason
--                                    refused
--
-- Whatever is not admitted has changed nothing.

local PROTOCOL, FORMAT = '1', '1'
local MAX_TOKEN, MAX_OP = '9223372036854775807', 9007199254740991
local FIELDS = {'v', 'token', 'written', 'lock', 'holder', 'op', 'digest', 'reply'}
local ACTIONS = {claim = true, adopt = true, read = true, write = true, delete = true}

if #KEYS ~= 2 or #ARGV < 9 or #ARGV > 10 or (ARGV[10] or 'claimed') ~= 'claimed' then
  return {'invalid-request', "it takes 2 keys and 9 arguments, and perhaps the word 'claimed'"}
end
local MARK, DATA = KEYS[1], KEYS[2]
local VERSION, ACTION, TOKEN, LOCK, HOLDER, MODE, OP, DIGEST, PAYLOAD = unpack(ARGV)
local CLAIMS = ACTION == 'claim' or ACTION == 'adopt'

-- Tokens are decimal text, and are compared by length, then in two halves: a token does not fit into a Lua number,
-- and Lua compares text by the server's locale.
local function older(a, b)
  if #a ~= #b then
    return #a < #b
  end
  local upper_a, upper_b = tonumber(a:sub(1, 10)), tonumber(b:sub(1, 10))
  if upper_a ~= upper_b then
    return upper_a < upper_b
  end
  return (tonumber(a:sub(11)) or 0) < (tonumber(b:sub(11)) or 0)
end

local function is_token(text)
  return text:find('^[1-9][0-9]*$') ~= nil and #text <= #MAX_TOKEN and not older(MAX_TOKEN, text)
end

local function is_op(text)
  return text:find('^[1-9][0-9]*$') ~= nil and #text <= 16 and tonumber(text) <= MAX_OP
end

-- What is wrong with the request, as an answer.
local function malformed()
  if VERSION ~= PROTOCOL then
    return {'invalid-request', 'this script speaks protocol ' .. PROTOCOL}
  elseif not ACTIONS[ACTION] then
    return {'invalid-request', 'an action is claim, adopt, read, write or delete'}
  elseif MARK:sub(-5) ~= ':mark' or DATA ~= MARK:sub(1, -5) .. 'data' then
    return {'invalid-request', 'the keys are <prefix>:{<resource>}:mark and <prefix>:{<resource>}:data'}
  elseif not is_token(TOKEN) then
    return {'invalid-token', 'a token is an integer from 1 to 2^63-1 in canonical decimal'}
  elseif MODE ~= 'write' and MODE ~= 'read' then
    return {'invalid-stamp', 'a mode is write or read'}
  elseif OP ~= '' and not is_op(OP) then
    return {'invalid-stamp', 'an op is an integer from 1 to 2^53-1 in canonical decimal, or empty'}
  elseif OP ~= '' and (#DIGEST ~= 64 or not DIGEST:find('^[0-9a-f]*$')) then
    return {'invalid-stamp', 'a digest is SHA-256 in lower-case hex'}
  end
end

-- The mark as a table, nil where there is none; or nil and what is wrong with it.
local function load_mark()
  local values = redis.pcall('HMGET', MARK, unpack(FIELDS))
  if values.err then
    if not values.err:find('WRONGTYPE', 1, true) then
      redis.call('HMGET', MARK, unpack(FIELDS)) -- raises it
    end
    return nil, 'its key holds no hash'
  end
  local mark, missing = {}, 0
  for i, field in ipairs(FIELDS) do
    mark[field] = values[i]
    missing = missing + (values[i] and 0 or 1)
  end
  if missing == #FIELDS and redis.call('EXISTS', MARK) == 0 then
    return nil
  elseif mark.v and mark.v ~= FORMAT then
    return nil, 'its format is ' .. mark.v .. ', this script reads ' .. FORMAT
  elseif missing > 0 then
    return nil, 'a field is missing'
  elseif not is_token(mark.token) or (mark.written ~= '' and not is_token(mark.written)) then
    return nil, 'it has a token that is none'
  elseif mark.written ~= '' and older(mark.token, mark.written) then
    return nil, 'it was written by a token above its own'
  elseif mark.op ~= '0' and not is_op(mark.op) then
    return nil, 'it has an op that is none'
  elseif not mark.reply:find('^[+-]') then
    return nil, 'it has a reply that is none'
  end
  return mark
end

local function namespace(lock)
  return lock:sub(1, (lock:find('/', 1, true) or #lock + 1) - 1)
end

-- A copy of the mark with the request's token and holder.
local function raised(mark)
  local after = {v = FORMAT, token = TOKEN, written = '', lock = LOCK, holder = HOLDER, op = '0', digest = '', reply = '+'}
  if mark then
    after.written = mark.written
    if mark.token == TOKEN then
      after.op, after.digest, after.reply = mark.op, mark.digest, mark.reply
    end
  end
  return after
end

-- Readers are stopped by writes only: a claim alone does not shut out those who read beside it.
local function admit_reader(mark)
  if not CLAIMS and ACTION ~= 'read' then
    return 'read-only'
  elseif mark and mark.written ~= '' and older(TOKEN, mark.written) then
    return 'stale-token'
  elseif CLAIMS and (not mark or older(mark.token, TOKEN)) then
    return 'admitted', raised(mark)
  end
  return 'admitted', mark
end

local function admit_writer(mark)
  if mark and older(TOKEN, mark.token) then
    return 'stale-token'
  elseif mark and mark.token == TOKEN and OP ~= '' and tonumber(OP) <= tonumber(mark.op) then
    return OP == mark.op and DIGEST == mark.digest and 'duplicate' or 'out-of-order'
  end
  local after = raised(mark)
  if OP ~= '' then
    after.op, after.digest, after.reply = OP, DIGEST, '+'
  end
  if not CLAIMS then
    after.written = TOKEN
  end
  return 'admitted', after
end

-- The verdict and, where the request is admitted, the mark that has to stand afterwards.
local function admit(mark, data_present)
  if not mark then
    if data_present and ACTION ~= 'adopt' then
      return 'unfenced'
    end
  elseif mark.lock ~= LOCK then
    return namespace(mark.lock) == namespace(LOCK) and 'wrong-lock' or 'wrong-namespace'
  elseif mark.token == TOKEN and mark.holder ~= HOLDER then
    return 'token-collision'
  end
  if MODE == 'read' or ACTION == 'read' then
    return admit_reader(mark)
  end
  return admit_writer(mark)
end

-- Store what differs; the error, where it fails.
local function save_mark(before, after)
  local changes = {}
  for _, field in ipairs(FIELDS) do
    if not before or before[field] ~= after[field] then
      changes[#changes + 1] = field
      changes[#changes + 1] = after[field]
    end
  end
  if #changes == 0 then
    return nil
  end
  if CLAIMS then
    -- A new holder must get through at maxmemory too. Redis lets a script go on that has written already, and HDEL of
    -- nothing is a write that it allows.
    redis.call('HDEL', MARK, '')
  end
  local saved = redis.pcall('HSET', MARK, unpack(changes))
  return type(saved) == 'table' and saved.err or nil
end

local function run()
  local mark, corrupt = load_mark()
  if corrupt then
    return {'mark-corrupt', corrupt}
  end
  local kind = redis.call('TYPE', DATA).ok
  local existed = kind ~= 'none'
  local forgotten = not mark and not existed or mark and older(mark.token, TOKEN)
  if ARGV[10] and forgotten then
    return {'mark-corrupt', 'the store has forgotten a claim that it had acknowledged'}
  end
  local verdict, after = admit(mark, existed)
  if verdict ~= 'admitted' then
    local answer = {verdict}
    for i, field in ipairs(mark and FIELDS or {}) do
      answer[i + 1] = mark[field]
    end
    return answer
  end
  if existed and kind ~= 'string' and ACTION ~= 'claim' then
    return {'wrong-type', kind}
  end

  -- The data first: where that fails, the mark must not say that it was done.
  local data, changed = false, nil
  if ACTION == 'read' then
    data = redis.call('GET', DATA)
  elseif ACTION == 'write' then
    changed = redis.pcall('SET', DATA, PAYLOAD)
  elseif ACTION == 'delete' then
    changed = redis.pcall('DEL', DATA)
    if OP ~= '' then
      after.reply = existed and '+1' or '+0'
    end
  end
  if type(changed) == 'table' and changed.err then
    return changed
  end
  if after then
    local failed = save_mark(mark, after)
    if failed then
      -- Memory and types were seen to; what is left is a user who may SET and not HSET.
      return redis.error_reply((changed and 'HALFDONE the data was changed and the mark was not: ' or '') .. failed)
    end
  end
  return {'admitted', existed and '1' or '0', data}
end

return malformed() or run()
