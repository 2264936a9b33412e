-- Names the prefix of a request, so that requests with the same system prompt or of the same conversation reach the
-- replica that holds their KV cache. The name is a hash: no prompt text leaves the process.
--
-- Looked at: the first texts of the body in their order (instructions, system, the first messages, prompt or input),
-- until they are long enough to be worth sharing. A short system prompt by itself names nothing: its blocks are cheap
-- and it would send all traffic to one replica.
local ENOUGH = 1024 -- bytes of text; about 256 tokens
local MOST = 16384 -- bytes of text that are hashed
local TEXTS = 3 -- texts at most: a system prompt and the first exchange are the same in every turn

-- The JSON string that starts behind the quote at `from`: its raw bytes, at most `most`, and where it ends.
local function raw_string(body, from, most)
  local at = from
  while true do
    local stop = body:find('["\\]', at)
    if stop == nil or stop - from >= most then
      return body:sub(from, from + most - 1), from + most
    end
    if body:sub(stop, stop) == '"' then
      return body:sub(from, stop - 1), stop
    end
    at = stop + 2
  end
end

-- FNV-1a over 32 bits in two halves, since numbers are doubles.
local function fnv(text, seed)
  local high, low = math.floor(seed / 65536), seed % 65536
  for i = 1, #text do
    low = bit.bxor(low, text:byte(i))
    local product = low * 403
    high = (high * 403 + low * 256 + math.floor(product / 65536)) % 65536
    low = product % 65536
  end
  return high * 65536 + low
end

local function prefix_of(body)
  local texts, size, at = {}, 0, 1
  while #texts < TEXTS and size < ENOUGH do
    local first, last, key = body:find('"(%l+)"%s*:%s*"', at)
    if first == nil then
      break
    end
    local text, stop = raw_string(body, last + 1, MOST)
    if key == "content" or key == "text" or key == "prompt" or key == "input" or key == "instructions" or key == "system" then
      texts[#texts + 1] = text
      size = size + #text
    end
    at = stop + 1
  end
  if #texts == 0 then
    return nil
  end
  local all = table.concat(texts, "\n"):sub(1, MOST)
  return string.format("%08x%08x", fnv(all, 2166136261), fnv(all, 40389))
end

function envoy_on_request(request)
  local body = request:body()
  if body == nil or body:length() == 0 then
    return
  end
  local prefix = prefix_of(body:getBytes(0, math.min(body:length(), 65536)))
  if prefix ~= nil then
    request:headers():replace("x-reasoningpool-prefix", prefix)
  end
end
