-- base/json.lua: encodes values as canonical JSON: equal values give equal text (keys sorted, one
-- form per number), so that the text can be hashed. There is no decoder, because the JSON functions
-- of SQLite read what is written here.
local json = {}

local escapes = {
  ['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n",
  ["\r"] = "\\r", ["\t"] = "\\t",
}

local function quote(s)
  return '"' .. s:gsub('[%c"\\]', function(c)
    return escapes[c] or ("\\u%04x"):format(c:byte())
  end) .. '"'
end

-- Returns the shortest decimal text that reads back as x. A float always has a point or an
-- exponent, so 1.0 stays a float.
function json.number(x)
  if math.type(x) == "integer" then return ("%d"):format(x) end
  if x ~= x then error("JSON has no nan", 0) end
  if x == math.huge or x == -math.huge then error("JSON has no " .. tostring(x), 0) end
  for digits = 14, 17 do
    local s = ("%%.%dg"):format(digits):format(x):gsub(",", ".")
    if tonumber(s) == x then return s:find("[.e]") and s or s .. ".0" end
  end
end

local encode

local function object(t)
  local keys = {}
  for k in pairs(t) do
    if type(k) ~= "string" then error("a JSON object needs text keys, got " .. tostring(k), 0) end
    keys[#keys + 1] = k
  end
  table.sort(keys)
  for i, k in ipairs(keys) do keys[i] = quote(k) .. ":" .. encode(t[k]) end
  return "{" .. table.concat(keys, ",") .. "}"
end

local function array(t)
  local items = {}
  for i = 1, #t do items[i] = encode(t[i]) end
  return "[" .. table.concat(items, ",") .. "]"
end

function encode(v)
  local kind = type(v)
  if kind == "string" then return quote(v) end
  if kind == "number" then return json.number(v) end
  if kind == "boolean" then return tostring(v) end
  if kind == "nil" then return "null" end
  if kind ~= "table" then error("JSON cannot hold a " .. kind, 0) end
  return #v > 0 and array(v) or object(v)
end

json.encode = encode

local REPLACEMENT, controls = utf8.char(0xFFFD), {}
for _, range in ipairs { { 0x7F, 0x9F }, { 0x61C, 0x61C }, { 0x200E, 0x200F }, { 0x2028, 0x202E },
  { 0x2066, 0x2069 } } do
  for code = range[1], range[2] do controls[utf8.char(code)] = ("\\u%04x"):format(code) end
end

-- Makes JSON text safe for other programs and terminals: bytes that are not UTF-8 become U+FFFD,
-- and control characters are escaped.
local function valid(text)
  if not text:find "[\x7F-\xFF]" then return text end
  local parts, at = {}, 1
  local length, bad = utf8.len(text)
  while not length do
    parts[#parts + 1] = text:sub(at, bad - 1) .. REPLACEMENT
    at = bad + 1
    length, bad = utf8.len(text, at)
  end
  text = table.concat(parts) .. text:sub(at)
  return (text:gsub(utf8.charpattern, controls))
end

-- Encodes a value for printing. Unlike that of encode, which is hashed, its text is always valid
-- UTF-8.
function json.show(v) return valid(encode(v)) end

-- Encodes a flat table for other programs as show does, but inf and nan, which JSON lacks, become
-- null.
function json.line(record)
  local parts = {}
  for key, v in pairs(record) do
    local finite = type(v) ~= "number" or v - v == 0
    parts[#parts + 1] = quote(key) .. ":" .. (finite and encode(v) or "null")
  end
  table.sort(parts)
  return valid("{" .. table.concat(parts, ",") .. "}")
end

return json
