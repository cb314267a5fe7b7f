-- base/wire.lua: encodes values as lines of text, for the journal of a trial and for the pipes
-- between the coordinator and its workers.
--
-- A line is a list of words separated by blanks, and a newline. In a word, control characters,
-- blanks and % are written %XX; the empty word is %. Floats are hexadecimal, so that no bit is
-- lost.
local wire = {}

local function escape(word)
  if word == "" then return "%" end
  return (word:gsub("[%c %%]", function(c) return ("%%%02X"):format(c:byte()) end))
end

-- Encodes a value as a word: "-" is nil, "+..." a string; other words are numbers, true or false.
local function word_of(v)
  if v == nil then return "-" end
  if type(v) == "string" then return "+" .. escape(v) end
  if math.type(v) == "float" then
    if v ~= v then return "nan" end
    return (("%a"):format(v):gsub(",", "."))
  end
  return tostring(v)
end

local constants = { ["true"] = true, ["false"] = false, nan = 0 / 0, inf = math.huge,
  ["-inf"] = -math.huge }

local function value_of(word)
  if word:sub(1, 1) == "+" then
    local text = word:sub(2)
    if text == "%" then return "" end
    return (text:gsub("%%(%x%x)", function(x) return string.char(tonumber(x, 16)) end))
  end
  if constants[word] ~= nil then return constants[word] end
  local integer = word:find("^%-?%d+$") and math.tointeger(word)
  return integer or word:find("^%-?0x[%x.]+p[-+]%d+$") and tonumber(word) or nil
end

-- Encodes values as a line: strings, numbers, booleans, nil.
function wire.line(...)
  local words = table.pack(...)
  for i = 1, words.n do words[i] = word_of(words[i]) end
  return table.concat(words, " ") .. "\n"
end

-- Decodes a line without its newline into a list of values with the field n.
function wire.parse(line)
  local values = { n = 0 }
  for word in line:gmatch("[^ ]+") do
    values.n = values.n + 1
    values[values.n] = value_of(word)
  end
  return values
end

-- Returns a decoder for text that arrives in pieces: it takes a piece and returns the list of the
-- decoded lines that are now complete.
function wire.reader()
  local rest = ""
  return function(text)
    local lines = {}
    rest = rest .. text
    local from = 1
    while true do
      local stop = rest:find("\n", from, true)
      if not stop then break end
      lines[#lines + 1] = wire.parse(rest:sub(from, stop - 1))
      from = stop + 1
    end
    rest = rest:sub(from)
    return lines
  end
end

-- Encodes numbers, strings, booleans and tables of these as Lua source; floats are hexadecimal, so
-- that no bit is lost.
function wire.pack(value)
  if type(value) ~= "table" then return ("%q"):format(value) end
  local parts = {}
  for key, item in pairs(value) do
    parts[#parts + 1] = ("[%q]=%s"):format(key, wire.pack(item))
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

-- Decodes the result of wire.pack.
function wire.unpack(text) return load("return " .. text, "=packed", "t", {})() end

return wire
