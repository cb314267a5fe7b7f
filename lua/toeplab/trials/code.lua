-- trials/code.lua: hashes the tokens of a Lua script without its comments and layout, so that a
-- mended comment leaves the ids of trials unchanged.
--
-- Stripped bytecode would not serve: string.dump keeps the line where each function begins, and
-- another release of Lua writes other bytecode.
local core = require "toeplab.core"

local code = {}

-- The patterns of a token in valid source by its first byte, in an order in which the longest one
-- matches. A look at one byte instead of a dozen patterns keeps tables of megabytes quick.
local tokens = {}

local function add(bytes, ...)
  for byte in bytes:gmatch "." do
    local list = {}
    for i, pattern in ipairs { ... } do list[i] = "^(" .. pattern .. ")%s*()" end
    tokens[byte:byte()] = list
  end
end

local float, decimal = "%.?%d[%d.]*[eE][+-]?%d+", "%.?%d[%d.]*"
for byte = 0, 255 do
  local character = string.char(byte)
  add(character, character:find "[%a_]" and "[%a_][%w_]*" or ".")
end
add("123456789", float, decimal)
add("0", "0[xX][%x.]*[pP][+-]?%d+", "0[xX][%x.]+", float, decimal)
add(".", float, decimal, "%.%.%.?", ".")
add("=~<>", "[=~<>]=", "<<", ">>", ".")
add("/", "//", ".")
add(":", "::", ".")

-- Returns the position after the long bracket that begins at `at`; nil if none begins there.
local function after_long(text, at)
  local level = text:match("^%[(=*)%[", at)
  if not level then return nil end
  local _, stop = text:find("]" .. level .. "]", at, true)
  return (stop or #text) + 1
end

local function after_quoted(text, at, byte)
  local pattern = byte == 34 and "[\"\\]" or "['\\]"
  local stop = text:find(pattern, at + 1)
  while stop and text:byte(stop) == 92 do stop = text:find(pattern, stop + 2) end -- a backslash
  return (stop or #text) + 1
end

-- Returns the token at `at`, which begins with the byte, and the position of what follows it and
-- the blanks after it.
local function next_token(text, at, byte)
  local stop
  if byte == 34 or byte == 39 then stop = after_quoted(text, at, byte) end
  if byte == 91 then stop = after_long(text, at) end
  if stop then return text:sub(at, stop - 1), text:match("^%s*()", stop) end
  local patterns = tokens[byte]
  for i = 1, #patterns do
    local token, next_at = text:match(patterns[i], at)
    if token then return token, next_at end
  end
end

-- Returns the text of a file of Lua code as loadfile reads it: without a byte order mark and a
-- first line for the shell.
function code.source(text) return (text:gsub("^\xEF\xBB\xBF", ""):gsub("^#[^\n]*", "")) end

-- Returns source with each end of line as Lua reads it, also in strings: \n.
local function with_plain_ends(text)
  return text:find("\r", 1, true) and text:gsub("\r\n", "\n"):gsub("\n?\r", "\n") or text
end

-- Returns the tokens of source with plain ends of lines; starts: a list that receives their
-- positions, or nil.
local function scan(text, starts)
  local list, count, at = {}, 0, text:match "^%s*()"
  while at <= #text do
    local byte = text:byte(at)
    if byte == 45 and text:byte(at + 1) == 45 then -- a comment
      at = text:match("^%s*()", after_long(text, at + 2) or text:match("^[^\n]*()", at))
    else
      count = count + 1
      if starts then starts[count] = at end
      list[count], at = next_token(text, at, byte)
    end
  end
  return list
end

-- Returns the tokens of Lua source as one text, one token per line.
function code.tokens(text)
  return table.concat(scan(with_plain_ends(code.source(text))), "\n")
end

-- Returns the list of the tokens of Lua source, and that of their lines.
function code.list(text)
  text = with_plain_ends(code.source(text))
  local starts, lines, line = {}, {}, 1
  local list = scan(text, starts)
  local stop = text:find("\n", 1, true) or #text + 1 -- the end of the line
  for i, at in ipairs(starts) do
    while stop < at do
      line, stop = line + 1, text:find("\n", stop + 1, true) or #text + 1
    end
    lines[i] = line
  end
  return list, lines
end

local opens = { ["function"] = true, ["do"] = true, ["if"] = true, ["repeat"] = true }
local closes = { ["end"] = true, ["until"] = true }

-- Returns the functions in a list of tokens (code.list), in the order of their ends: {first=, last=
-- (tokens), line=, head= (the line of its parenthesis), stop= (the line of its end), depth= (how
-- many functions it is in)} each.
function code.spans(list, lines)
  local found, stack, depth = {}, {}, 0
  for i, token in ipairs(list) do
    if opens[token] then
      stack[#stack + 1] = i
      if token == "function" then depth = depth + 1 end
    elseif closes[token] then
      local first = table.remove(stack)
      if first and list[first] == "function" then
        local head = first
        while list[head] ~= "(" do head = head + 1 end
        depth = depth - 1
        found[#found + 1] = { first = first, last = i, line = lines[first], head = lines[head],
          stop = lines[i], depth = depth }
      end
    end
  end
  return found
end

-- Returns the sha256 of the tokens of Lua source.
function code.hash(text) return core.sha256(code.tokens(text)) end

return code
