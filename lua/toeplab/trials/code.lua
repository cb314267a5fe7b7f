-- trials/code.lua: hashes the tokens of a Lua script without its comments and layout, so that a
-- mended comment leaves the ids of trials unchanged.
--
-- Stripped bytecode would not serve: string.dump keeps the line where each function begins, and
-- another release of Lua writes other bytecode.
local core = require "toeplab.core"

local code = {}

-- The patterns of a token in valid source, tried in this order so that the longest one matches.
-- Blanks and comments give no token; after_quoted finds strings.
local tokens = {
  "^0[xX][%x.]*[pP][+-]?%d+()", "^0[xX][%x.]+()", "^%.?%d[%d.]*[eE][+-]?%d+()", "^%.?%d[%d.]*()",
  "^[%a_][%w_]*()", "^%.%.%.?()", "^[=~<>]=()", "^//()", "^::()", "^<<()", "^>>()", "^.()",
}

-- Returns the position after the long bracket that begins at `at`; nil if none begins there.
local function after_long(text, at)
  local level = text:match("^%[(=*)%[", at)
  if not level then return nil end
  local _, stop = text:find("]" .. level .. "]", at, true)
  return (stop or #text) + 1
end

-- Returns the position after the blanks or the comment at `at`; nil if there are none.
local function after_blank(text, at)
  if text:find("^%-%-", at) then
    return after_long(text, at + 2) or text:match("^[^\r\n]*()", at)
  end
  return text:match("^%s+()", at)
end

local function after_quoted(text, at)
  local quote = text:match("^[\"']", at)
  if not quote then return after_long(text, at) end
  local stop = at + 1
  while stop <= #text and text:sub(stop, stop) ~= quote do
    stop = stop + (text:sub(stop, stop) == "\\" and 2 or 1)
  end
  return stop + 1
end

local function after_token(text, at)
  for _, pattern in ipairs(tokens) do
    local stop = text:match(pattern, at)
    if stop then return stop end
  end
end

-- Returns the text of a file of Lua code as loadfile reads it: without a byte order mark and a
-- first line for the shell.
function code.source(text) return (text:gsub("^\xEF\xBB\xBF", ""):gsub("^#[^\n]*", "")) end

-- Returns source with each end of line as Lua reads it, also in strings: \n.
local function with_plain_ends(text)
  return text:find("\r", 1, true) and text:gsub("\r\n", "\n"):gsub("\n?\r", "\n") or text
end

-- Returns the tokens of Lua source as one text, one token per line.
function code.tokens(text)
  text = with_plain_ends(code.source(text))
  local list, at = {}, 1
  while at <= #text do
    local next_at = after_blank(text, at)
    if not next_at then
      next_at = after_quoted(text, at) or after_token(text, at)
      list[#list + 1] = text:sub(at, next_at - 1)
    end
    at = next_at
  end
  return table.concat(list, "\n")
end

-- Returns the sha256 of the tokens of Lua source.
function code.hash(text) return core.sha256(code.tokens(text)) end

return code
