-- docs/make/functions.lua: reads the functions that toeplab-lua.7.in declares with their types, and
-- makes the page of it. In a literal block a line holds functions and a text,
--   tl.matmul(a, b [, trans_a, trans_b]): Tensor  last two axes; [..,m,k] x [..,k,n]
--   t:shape(): integer[]  t:dim(axis): integer
-- in which brackets enclose what may be left out, and a parameter may say its type: axis: integer.
-- The types of the others are those of their names, by lines .\"@ NAMES: TYPE before. A line
-- .\"= declares what the page shows in another way: a function, NAME: TYPE, or "class NAME".

local functions = {}

local COLUMN = 38 -- of the page, at which texts begin

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
-- if it is that of the name), optional=}, and the text without types.
local function read_parameters(text)
  local list, plain, at, depth = {}, {}, 1, 0
  while at <= #text do
    local c = text:sub(at, at)
    local name, optional, next_ = text:match("^(%.%.%.)()()", at)
    if not name then name, optional, next_ = text:match("^([%a_][%w_]*)(%??)()", at) end
    if name then
      local entry = { name = name, optional = depth > 0 or optional == "?" }
      plain[#plain + 1], at = name, next_
      if text:find("^: ", at) then entry.type, at = read_type(text, at + 2) end
      list[#list + 1] = entry
    else
      if c == "[" then depth = depth + 1 elseif c == "]" then depth = depth - 1 end
      if not c:find "[%[%],%s]" then return nil end
      plain[#plain + 1], at = c, at + 1
    end
  end
  return list, table.concat(plain)
end

-- Reads a signature at a place of a line. Returns {path=, parameters=, returns= (types), names= (of
-- the results, if given)}, its text without types, and the place behind it; nil if there is none.
local function read_signature(line, at, bare)
  local names, path, open = line:match("^([%a_, ]+) = ([%a][%w_.:%-]*)()%(", at)
  if not names then path, open = line:match("^([%a][%w_.:%-]*)()%(", at) end
  local inside = path and line:match("^%b()", open)
  local behind = inside and open + #inside
  local typed = inside and line:find("^: ", behind)
  if not inside or not (typed or bare) then return nil end
  local parameters, plain = read_parameters(inside:sub(2, -2))
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
  return s, (names and names .. " = " or "") .. path .. "(" .. plain .. ")", at
end

-- ---- Reading the page ---------------------------------------------------------------------------

-- Gives the parameters without a type those of their names, and self what the receiver's name says.
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

-- Reads a declaration of a line .\"= into result.
local function declare(line, result, types)
  local class = line:match "^class ([%w]+)$"
  local s = not class and read_signature(line, 1, true)
  if class then
    result.classes[#result.classes + 1] = class
  elseif s then
    result.functions[#result.functions + 1] = resolve(s, types)
  else
    local path, kind = line:match "^([%w_.]+): (.+)$"
    if not path then error("a declaration that cannot be read: " .. line, 0) end
    result.fields[#result.fields + 1] = { path = path, type = kind }
  end
end

-- Returns the line of the page for a line of a literal block, and the functions that it declares.
local function read_line(line, types)
  local list, plain, at = {}, {}, 1
  while true do
    local s, text, behind = read_signature(line, at, false)
    if not s then break end
    list[#list + 1], plain[#plain + 1] = resolve(s, types), text
    at = line:match("^ +()", behind) or behind
  end
  if #list == 0 then return line, list end
  local left, rest = table.concat(plain, "  "), line:sub(at)
  for _, s in ipairs(list) do s.text = rest:match "%S%s%s+(%S.*)$" or rest ~= "" and rest or nil end
  if rest == "" then return left, list end
  return left .. (" "):rep(math.max(2, COLUMN - utf8.len(left))) .. rest, list
end

-- Reads the page's template. Returns {page= (its text), functions=, fields=, classes=}; the text of
-- a function goes on in the lines below that are indented.
function functions.read(template)
  local result, types, out = { functions = {}, fields = {}, classes = {} }, {}, {}
  local literal, last, shown = nil, nil, 1 -- the first function whose example may still come
  for line in template:gmatch "([^\n]*)\n" do
    local names, kind = line:match '^%.\\"@ (.*): ([^:]+)$'
    local declared = line:match '^%.\\"= (.*)$'
    if names then
      for name in names:gmatch "[^, ]+" do types[name] = kind end
    elseif declared then
      declare(declared, result, types)
    else
      literal = (literal or line:find "^%.Bd %-literal") and not line:find "^%.Ed"
      if literal and line:find "^%a" then
        local example = line:match "^.*%S%s%s+(%S.*)$"
        local own
        line, own = read_line(line, types)
        last = table.move(own, 1, #own, 1, {})
        for i = shown, #result.functions do
          local s = result.functions[i]
          if example and line:find(s.path:match "[%w_%-]+$", 1, true) then
            s.text, last[#last + 1] = example, s
          end
        end
        table.move(own, 1, #own, #result.functions + 1, result.functions)
        shown = #result.functions + 1
      elseif literal and line:find "^ %s+%S" and last then
        for _, s in ipairs(last) do
          if s.text then s.text = s.text .. " " .. line:match "^%s*(.*)$" end
        end
      else
        last = nil
      end
      out[#out + 1] = line
    end
  end
  result.page = table.concat(out, "\n") .. "\n"
  return result
end

return functions
