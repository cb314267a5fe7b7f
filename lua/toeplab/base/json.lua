-- base/json.lua: encodes values as canonical JSON: equal values give equal text (keys sorted, one
-- form per number), so that the text can be hashed, and decodes files of other programs. SQLite's
-- JSON functions can read the encoded text.
local characters = require "toeplab.base.characters"

local json = {}

local escapes = {
  ['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n",
  ["\r"] = "\\r", ["\t"] = "\\t",
}

local function quote(s)
  if not s:find '[%c"\\]' then return '"' .. s .. '"' end
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

-- The empty list; an empty table is an object.
json.none = setmetatable({}, { __newindex = function() error("it takes no values", 2) end })

-- A value that encode writes as null; a key with the value nil is omitted.
json.null = setmetatable({}, getmetatable(json.none))

local encode

local function object(t)
  local keys = {}
  for k in pairs(t) do
    if type(k) ~= "string" then error("a JSON object needs string keys, got " .. tostring(k), 0) end
    keys[#keys + 1] = k
  end
  table.sort(keys)
  for i, k in ipairs(keys) do keys[i] = quote(k) .. ":" .. encode(t[k]) end
  return "{" .. table.concat(keys, ",") .. "}"
end

-- Raises for keys that are not items of the list: its JSON would lose them, so that two
-- configurations could share a hash.
local function array(t)
  local items = {}
  for k in pairs(t) do
    if math.type(k) ~= "integer" or k < 1 or k > #t then
      error("a JSON list cannot have the key " .. tostring(k), 0)
    end
  end
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
  if v == json.none then return "[]" end
  if v == json.null then return "null" end
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
  return (characters.valid(text):gsub(utf8.charpattern, controls))
end

-- Encodes a value for printing. Unlike the result of encode, which is hashed, the text is always
-- valid UTF-8.
function json.show(v) return valid(encode(v)) end

-- Returns v or, for a number that JSON lacks, its name: "nan", "inf" or "-inf".
function json.named(v)
  if type(v) ~= "number" or v - v == 0 then return v end
  return v ~= v and "nan" or tostring(v)
end

-- Encodes a flat table for other programs as show does, with names for numbers that JSON lacks.
function json.line(record)
  local parts = {}
  for key, v in pairs(record) do
    parts[#parts + 1] = quote(key) .. ":" .. encode(json.named(v))
  end
  table.sort(parts)
  return valid("{" .. table.concat(parts, ",") .. "}")
end

-- ---- Decoding -----------------------------------------------------------------------------------

local unescaped = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\",
  ["/"] = "/" }
local words = { ["true"] = true, ["false"] = false }

-- Raises an error with the line.
local function bad(text, at, wanted)
  local line = select(2, text:sub(1, at - 1):gsub("\n", "")) + 1
  error(("line %d: expected %s, got '%s'"):format(line, wanted, text:sub(at, at + 15)), 0)
end

local function skip(text, at) return text:match("^[ \t\n\r]*()", at) end

-- Returns the character of the four hexadecimal digits at `at`, and the position after it. A
-- character of more than 16 bits needs two such numbers; one alone is an error.
local function decode_code(text, at)
  local code, behind = tonumber(text:sub(at, at + 3), 16), at + 4
  if code < 0xD800 or code > 0xDFFF then return utf8.char(code), behind end
  local second = code < 0xDC00 and text:match("^\\u([Dd][C-Fc-f]%x%x)", behind)
  if not second then return REPLACEMENT, behind end
  return utf8.char(0x10000 + (code - 0xD800 << 10) + tonumber(second, 16) - 0xDC00), behind + 6
end

local function decode_text(text, at)
  local parts, place = {}, at + 1
  while true do
    local plain, stop = text:match('^([^"\\\0-\31]*)()', place)
    local mark, escaped = text:sub(stop, stop), text:sub(stop + 1, stop + 1)
    if mark == '"' then return table.concat(parts) .. plain, stop + 1 end
    if mark == "" then bad(text, at, "the end of the string") end
    if mark ~= "\\" then bad(text, stop, "no control character in a string") end
    parts[#parts + 1] = plain
    if escaped == "u" and text:find("^%x%x%x%x", stop + 2) then
      parts[#parts + 1], place = decode_code(text, stop + 2)
    else
      local character = unescaped[escaped] or bad(text, stop, "an escape of JSON")
      parts[#parts + 1], place = character, stop + 2
    end
  end
end

local decode

-- Decodes the items of an object or an array that begins at `at` and ends with close.
local function items(text, at, close, item)
  at = skip(text, at + 1)
  while text:sub(at, at) ~= close do
    at = skip(text, item(at))
    local mark = text:sub(at, at)
    if mark ~= "," and mark ~= close then bad(text, at, "',' or '" .. close .. "'") end
    if mark == "," then
      at = skip(text, at + 1)
      if text:sub(at, at) == close then bad(text, at, "a value behind the comma") end
    end
  end
  return at + 1
end

-- Converts word to a number; nil if it is not valid JSON, such as 01, .5, 1. and 0x1.
local function number_of(word)
  local whole, fraction, exponent = word:match "^%-?(%d+)(%.?%d*)([eE]?[+-]?%d*)$"
  local fits = whole and (whole == "0" or whole:find "^[1-9]") and fraction ~= "."
    and (exponent == "" or exponent:find "^[eE][+-]?%d")
  return fits and tonumber(word) or nil
end

-- Returns the value that begins at `at`, and the position after it.
function decode(text, at, null, none)
  at = skip(text, at)
  local first, value = text:sub(at, at), {}
  if first == "{" then
    local seen = {} -- also of keys whose value is nil
    return value, items(text, at, "}", function(place)
      if text:sub(place, place) ~= '"' then bad(text, place, "a key") end
      local key, behind = decode_text(text, place)
      if seen[key] then bad(text, place, "a key that is not there yet") end
      seen[key] = true
      behind = skip(text, behind)
      if text:sub(behind, behind) ~= ":" then bad(text, behind, "':'") end
      value[key], behind = decode(text, behind + 1, null, none)
      return behind
    end)
  elseif first == "[" then
    local count = 0
    local behind = items(text, at, "]", function(place)
      count = count + 1
      value[count], place = decode(text, place, null, none)
      return place
    end)
    return count == 0 and none or value, behind
  elseif first == '"' then
    return decode_text(text, at)
  end
  local word = text:match("^[%w.+-]+", at) or ""
  local number = number_of(word)
  if word ~= "null" and words[word] == nil and not number then bad(text, at, "a value") end
  if word == "null" then return null, at + #word end
  local plain = words[word]
  if plain == nil then plain = number end
  return plain, at + #word
end

-- Decodes JSON; raises an error with the line. null becomes the given value, by default nil, and an
-- empty list becomes `none`, by default {}, like an empty object.
function json.decode(text, null, none)
  local value, at = decode(text, 1, null, none)
  at = skip(text, at)
  if at <= #text then bad(text, at, "the end") end
  return value
end

return json
