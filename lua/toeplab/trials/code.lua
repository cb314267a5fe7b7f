-- trials/code.lua: hashes the tokens of a Lua script without comments and layout, so that an edited
-- comment does not change the ids of trials.
--
-- Stripped bytecode would not do: string.dump keeps the first line of each function, and bytecode
-- differs between releases of Lua.
local core = require "toeplab.core"

local code = {}

-- The patterns of tokens in valid source by their first byte, the longest match first. The index
-- by a byte instead of a dozen patterns makes tables of megabytes fast.
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

-- Returns the token at `at`, whose first byte is given, and the position after it and the blanks
-- that follow.
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

-- Returns the text of a Lua file as loadfile reads it: without a byte order mark and a #! line.
function code.source(text) return (text:gsub("^\xEF\xBB\xBF", ""):gsub("^#[^\n]*", "")) end

-- Returns source with all line ends, also in strings, as \n, as Lua reads them.
local function with_plain_ends(text)
  return text:find("\r", 1, true) and text:gsub("\r\n", "\n"):gsub("\n?\r", "\n") or text
end

-- Returns the tokens of source with \n as line ends; starts: a list that receives their positions,
-- or nil.
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

-- Returns the tokens of Lua source as one string, one token per line.
function code.tokens(text)
  return table.concat(scan(with_plain_ends(code.source(text))), "\n")
end

-- Returns the list of the tokens of Lua source, and the list of their lines.
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

-- ---- Functions and constants --------------------------------------------------------------------

local function set_of(words)
  local set = {}
  for word in words:gmatch "%S+" do set[word] = true end
  return set
end

local unary, binary = set_of "- ~ not", set_of "+ - * / // % ^ & | ~ << >> and or"
local inner, outer = set_of "( { [ function do if repeat", set_of ") } ] end until"

local function is_literal(token)
  return token:find "^%.?%d" or token:find "^[\"']" or token:find "^%[=*%["
    or token == "true" or token == "false" or token == "nil"
end

-- Returns the position of the token after the expression of literals and constants at `at`; nil if
-- there is none. constants: a set of names.
local function after_constant(list, at, constants)
  while unary[list[at]] do at = at + 1 end
  local token = list[at]
  if token == "(" then
    at = after_constant(list, at + 1, constants)
    if not at or list[at] ~= ")" then return nil end
  elseif not token or not (is_literal(token) or constants[token]) then
    return nil
  end
  local following = list[at + 1]
  if binary[following] then return after_constant(list, at + 2, constants) end
  local calls = not is_literal(token) and following and following ~= "::"
    and following:find "^[.%[({:\"']"
  return not calls and at + 1 or nil
end

-- Returns the constant that the statement `local ...` at position `at` of the list declares,
-- {name=, tokens= (of its expression), first=, last=}; nil if it declares none. Lua folds only the
-- last name of a statement.
local function constant_at(list, at, constants)
  local count, name, kind, i = 0, nil, nil, at
  repeat
    count, name, kind, i = count + 1, list[i + 1], nil, i + 2
    if list[i] == "<" then kind, i = list[i + 1], i + 3 end
  until list[i] ~= ","
  if kind ~= "const" or list[i] ~= "=" then return nil end
  i = i + 1
  local depth = 0
  while count > 1 and list[i] and depth >= 0 do -- goes to the last expression
    if list[i] == "," and depth == 0 then count = count - 1 end
    depth = depth + (inner[list[i]] and 1 or outer[list[i]] and -1 or 0)
    i = i + 1
  end
  local stop = after_constant(list, i, constants)
  return stop and { name = name, first = at, last = stop - 1,
    tokens = table.move(list, i, stop - 1, 1, {}) }
end

local opens = { ["function"] = true, ["do"] = true, ["if"] = true, ["repeat"] = true }
local closes = { ["end"] = true, ["until"] = true }

-- Returns the functions in a list of tokens (code.list), in the order of their ends: {first=, last=
-- (tokens), line=, head= (the line of its parenthesis), stop= (the line of its end), depth= (the
-- number of enclosing functions)} each; and the constants that Lua folds into the functions that
-- use them (`local K <const> = 2 * 3`): name -> list of {name=, tokens= (of the expression),
-- first=, last=, stop= (where their block ends)}.
function code.spans(list, lines)
  local found, stack, depth, constants, visible = {}, {}, 0, {}, {}
  for i, token in ipairs(list) do
    if opens[token] then
      stack[#stack + 1] = i
      if token == "function" then depth = depth + 1 end
    elseif token == "local" then
      local constant = constant_at(list, i, constants)
      if constant then
        constants[constant.name] = constants[constant.name] or {}
        table.insert(constants[constant.name], constant)
        visible[#visible + 1], constant.stop = constant, #list
      end
    elseif closes[token] then
      local first = table.remove(stack)
      -- The condition after `until` belongs to the block.
      while token == "end" and #visible > 0 and visible[#visible].first > (first or 0) do
        table.remove(visible).stop = i
      end
      if first and list[first] == "function" then
        local head = first
        while list[head] ~= "(" do head = head + 1 end
        depth = depth - 1
        found[#found + 1] = { first = first, last = i, line = lines[first], head = lines[head],
          stop = lines[i], depth = depth }
      end
    end
  end
  return found, constants
end

-- Returns the sha256 of the tokens of Lua source.
function code.hash(text) return core.sha256(code.tokens(text)) end

return code
