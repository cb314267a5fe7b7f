-- docs/make/functions.lua: reads the functions that the pages of docs/reference declare, with their
-- types. In a block that is fenced as ```signatures a line declares one or several,
--   tl.matmul(a, b [, trans_a, trans_b: boolean]): Tensor  products of the last two axes
--   t:shape(): integer[]  t:dim(axis): integer
-- and what stands after two spaces, or in indented lines below, is its text. Brackets enclose what
-- may be left out. A parameter without a type has its name's type, from a line "with NAMES: TYPE"
-- above. Other lines are "class NAME" and a field, "PATH: TYPE". A function without a type returns
-- nothing.
local markdown = require "markdown"

local functions = {}

-- ---- Reading a signature ------------------------------------------------------------------------

-- Returns the type that begins at a place of text, up to a comma, a bracket that is not its own, or
-- two spaces; and the place behind it.
local function read_type(text, at)
  local start, depth = at, 0
  while at <= #text do
    local c = text:sub(at, at)
    if depth == 0 and (c == "," or c == ")" or text:find("^ %[", at) or text:find("^  ", at)
      or (c == "]" and text:sub(at - 1, at - 1) ~= "[")) then
      break
    end
    if c:find "[(<{]" then depth = depth + 1 elseif c:find "[)>}]" then depth = depth - 1 end
    at = at + 1
  end
  return text:sub(start, at - 1), at
end

-- Reads parameters from text, what is between the parentheses. Returns a list of {name=, type= (nil
-- if its name gives it), optional=}.
local function read_parameters(text)
  local list, at, depth = {}, 1, 0
  while at <= #text do
    local c = text:sub(at, at)
    local name, optional, next_ = text:match("^(%.%.%.)()()", at)
    if not name then name, optional, next_ = text:match("^([%a_][%w_]*)(%??)()", at) end
    if name then
      local entry = { name = name, optional = depth > 0 or optional == "?" }
      at = next_
      if text:find("^: ", at) then entry.type, at = read_type(text, at + 2) end
      list[#list + 1] = entry
    else
      if c == "[" then depth = depth + 1 elseif c == "]" then depth = depth - 1 end
      if not c:find "[%[%],%s]" then return nil end
      at = at + 1
    end
  end
  return list
end

-- Reads a signature at a place of a line. Returns {path=, parameters=, returns= (types), names= (of
-- the results, if given)}, and the place behind it; nil if there is none.
local function read_signature(line, at)
  local names, path, open = line:match("^([%a_, ]+) = ([%a][%w_.:%-]*)()%(", at)
  if not names then path, open = line:match("^([%a][%w_.:%-]*)()%(", at) end
  local inside = path and path:find "[.:]" and line:match("^%b()", open)
  local behind = inside and open + #inside
  local typed = inside and line:find("^: ", behind)
  local parameters = inside and read_parameters(inside:sub(2, -2))
  if not parameters then return nil end
  local s = { path = path, parameters = parameters, returns = {} }
  if names then
    s.names = {}
    for name in names:gmatch "[^, ]+" do s.names[#s.names + 1] = name end
  end
  at = typed and behind + 2 or behind
  while typed do
    s.returns[#s.returns + 1], at = read_type(line, at)
    if not line:find("^, ", at) then break end
    at = at + 2
  end
  if s.returns[1] == "nil" then s.returns = {} end
  return s, at
end

-- ---- Reading the pages --------------------------------------------------------------------------

-- Gives the parameters without a type the types of their names, and self the receiver's type.
local function resolve(s, types)
  for _, p in ipairs(s.parameters) do
    p.type = p.type or types[p.name] or p.name == "..." and "any"
    if not p.type then error(("%s: the type of '%s' is not known"):format(s.path, p.name), 0) end
  end
  local receiver, method = s.path:match "^([%w_]+):([%w_]+)$"
  if receiver then
    s.class, s.method = receiver:find "^%u" and receiver or types[receiver], method
    if not s.class then error(s.path .. ": the type of the receiver is not known", 0) end
  end
  return s
end

-- Reads the declarations of a line. Returns a list of them, and the place behind the last.
local function read_line(line)
  local names, kind = line:match "^with (.*): ([^:]+)$"
  if names then return { { with = names, type = kind } }, #line + 1 end
  local class, behind = line:match "^class (%w+)()"
  if class then return { { class_name = class } }, behind end
  local path, at = line:match "^([%a][%w_.]*): ()"
  if path then
    local field = { field = path }
    field.type, behind = read_type(line, at)
    return { field }, behind
  end
  local list, start = {}, 1
  while start do
    local s, next_ = read_signature(line, start)
    if not s then break end
    list[#list + 1], behind = s, next_
    start = line:match("^  +()", behind)
  end
  if #list == 0 then error("not a declaration: " .. line, 0) end
  return list, behind
end

-- Returns the entries of a block of signatures: {head= (as it stands), text=, list= (what the head
-- declares)}.
function functions.entries(lines)
  local entries = {}
  for _, line in ipairs(lines) do
    local last = entries[#entries]
    local more = line:match "^%s+(%S.*)$"
    if more then
      if not last then error("text before a declaration: " .. more, 0) end
      last.text = (last.text == "" and "" or last.text .. " ") .. more
    elseif line ~= "" then
      local list, behind = read_line(line)
      local rest = line:sub(behind)
      local text = rest:match "^  +(.*)$" or ""
      if rest ~= "" and text == "" then error("not a declaration: " .. line, 0) end
      entries[#entries + 1] = { head = line:sub(1, behind - 1), text = text, list = list }
    end
  end
  return entries
end

-- Reads pages, a list of texts: the types of names in the first hold in all. Returns {functions=,
-- fields=, classes=}.
function functions.read(pages)
  local result, common, types = { functions = {}, fields = {}, classes = {} }, nil, {}
  local function keep(d, text)
    if d.with then
      for name in d.with:gmatch "[^, ]+" do types[name] = d.type end
    elseif d.class_name then
      result.classes[#result.classes + 1] = d.class_name
    elseif d.field then
      result.fields[#result.fields + 1] = { path = d.field, type = d.type }
    else
      d.text = text ~= "" and text or nil
      result.functions[#result.functions + 1] = resolve(d, types)
    end
  end
  for _, page in ipairs(pages) do
    types = setmetatable({}, { __index = common })
    common = common or types
    for _, block in ipairs(markdown.read(page)) do
      if block.info == "signatures" then
        for _, entry in ipairs(functions.entries(block.lines)) do
          for _, d in ipairs(entry.list) do keep(d, entry.text) end
        end
      end
    end
  end
  return result
end

return functions
