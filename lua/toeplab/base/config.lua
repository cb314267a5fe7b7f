-- base/config.lua: makes the read-only configuration that a trial receives, and parses values of
-- the command line by the types of the declared ones.
local cut = require("toeplab.base.characters").cut
local options = require "toeplab.base.options"

local config = {}

local function copy(v)
  if type(v) ~= "table" then return v end
  local t = {}
  for k, x in pairs(v) do t[k] = copy(x) end
  return t
end

config.copy = copy

-- Returns whether v is a list, which may be empty.
function config.is_list(v)
  if type(v) ~= "table" then return false end
  local count = 0
  for _ in pairs(v) do count = count + 1 end
  return count == #v
end

-- Flattens values: { backend_options = { taps = 16 } } becomes { ["backend_options.taps"] = 16 },
-- the form of the command line. A list is a value. Calls refuse(key, why), which must raise, for a
-- key in both forms, because the order of pairs would choose its value, and for a table that
-- contains itself. around: the set of the enclosing tables; nil: none.
function config.flat(values, refuse, around)
  local all = {}
  around = around or {}
  around[values] = true
  local function put(key, value)
    if all[key] ~= nil then refuse(key, "is declared twice") end
    all[key] = value
  end
  for key, value in pairs(values) do
    if type(value) ~= "table" or #value > 0 or not next(value) then
      put(key, value)
    else
      local outer = tostring(key) .. "."
      if around[value] then refuse(key, "contains itself") end
      local function refuse_inner(inner, why) refuse(outer .. inner, why) end
      for inner, v in pairs(config.flat(value, refuse_inner, around)) do
        put(outer .. tostring(inner), v)
      end
    end
  end
  around[values] = nil
  return all
end

-- Reverses config.flat.
function config.nested(values)
  local all = {}
  for key, value in pairs(values) do
    local at = all
    for name in key:gmatch "([^.]+)%." do
      at[name] = type(at[name]) == "table" and at[name] or {}
      at = at[name]
    end
    local name = key:match "[^.]+$"
    if type(at[name]) ~= "table" then at[name] = copy(value) end
  end
  return all
end

-- Returns a read-only configuration of flat values. Reading an undeclared key is an error with a
-- suggestion.
function config.new(values)
  local c = options.shared("the configuration", config.nested(values))
  getmetatable(c).__values = values
  return c
end

-- Adds to the set reads the keys that have been read from c, which config.new made. Reading a table
-- counts as reading all its keys.
function config.add_reads(c, reads)
  local meta = getmetatable(c)
  for key in pairs(meta.__values) do
    reads[key] = reads[key] or meta.__read[key:match "^[^.]+"]
  end
end

-- Returns the name of the kind of the value v for messages.
function config.kind(v)
  if type(v) == "number" then return math.type(v) == "integer" and "integer" or "number" end
  if type(v) == "table" then return "list" end
  return type(v)
end

local articles = {
  integer = "an integer", number = "a number", boolean = "true or false", string = "a string",
  list = "a list like [8,16]",
}

local function scalar(text, like)
  local kind = config.kind(like)
  if kind == "integer" then return math.tointeger(tonumber(text)) end
  if kind == "number" then
    local x = tonumber(text)
    return x and x - x == 0 and x + 0.0 or nil -- refuses inf, as which 1e999 is read
  end
  if kind == "boolean" then
    if text == "true" then return true end
    if text == "false" then return false end
    return nil
  end
  if kind == "list" then
    local inner = text:match "^%[(.*)%]$"
    return inner and config.parse_list(inner, like) or nil
  end
  if kind == "string" then return text:match '^"([^"]*)"$' or text end
  return nil
end

-- Returns the longest string with a comma in likes that is an item of text at `from`.
local function item_at(text, from, likes)
  local found
  for _, like in ipairs(likes) do
    local fits = type(like) == "string" and like:find(",", 1, true)
      and (text .. ","):sub(from, from + #like) == like .. ","
    if fits and #like > #(found or "") then found = like end
  end
  return found
end

-- Patterns of list items that may contain commas: "a string", [a list], range(1,10).
local WHOLE = { '^"[^"]*"%f[,\0]', "^%b[]%f[,\0]", "^%l+%d*%b()%f[,\0]" }

-- Splits text at commas, except inside the declared strings in likes and inside items of WHOLE.
local function split(text, likes)
  local parts, from = {}, 1
  while from <= #text + 1 do
    local part = item_at(text, from, likes)
    for _, pattern in ipairs(WHOLE) do part = part or text:match(pattern, from) end
    parts[#parts + 1] = part or text:match("^[^,]*", from)
    from = from + #parts[#parts] + 1
  end
  return parts
end

-- Parses text as the type of any of the values in likes: numbers and booleans first, strings last.
local function any(text, likes)
  for _, kind in ipairs { "integer", "number", "boolean", "list", "string" } do
    for _, like in ipairs(likes) do
      if config.kind(like) == kind then
        local value = scalar(text, like)
        if value ~= nil then return value end
      end
    end
  end
end

local MOST = 100000 -- numbers of a range

-- Returns the numbers of range(1,10), range(0,1,0.25) or log2(16,256), including the ends, as
-- strings; nil if the text has another form, gives no numbers or too many, or likes has no number.
local function range(text, likes)
  local zero = any("0", likes)
  if type(zero) ~= "number" then return nil end
  local name, base, inner = text:match "^(%l+)(%d*)%(([^()]+)%)$"
  local first, last, step = (inner or ""):match "^([^,]+),([^,]+),?([^,]*)$"
  first, last = tonumber(first), tonumber(last)
  if not first or not last then return nil end
  local count, by = nil, nil
  if name == "log" and tonumber(base) and step == "" then
    by = tonumber(base)
    count = math.log(last / first, by)
  elseif name == "range" and base == "" then
    by = step == "" and 1 or tonumber(step)
    count = by and (last - first) / by
  end
  if not count or not (count >= 0 and count < MOST) then return nil end
  local list = {}
  for i = 0, math.floor(count + 1e-9) do
    local x = name == "log" and first * by ^ i or first + i * by
    list[i + 1] = i == 0 and config.text(first) or math.tointeger(x) and ("%d"):format(x)
      or ("%.12g"):format(x) -- hides rounding errors such as 0.30000000000000004
  end
  return list
end

local function expected(likes)
  local kinds, seen = {}, {}
  for _, like in ipairs(likes) do
    local word = articles[config.kind(like)]
    if not seen[word] then kinds[#kinds + 1] = word end
    seen[word] = true
  end
  return table.concat(kinds, " or ")
end

-- Parses a comma-separated list, each item as the type of one of the declared items. A declared
-- string with commas is one item, as is any "string" in quotes or [list] in brackets. A range of
-- numbers, range(1,10), range(0,1,0.25) or log2(16,256), gives several items.
function config.parse_list(text, declared)
  local list, likes, parts = {}, #declared > 0 and declared or { "" }, split(text, declared)
  for _, part in ipairs(parts) do
    for _, item in ipairs(range(part, likes) or { part }) do
      local value = any(item, likes)
      if value == nil then
        return nil, expected(declared)
          .. (#parts > 1 and " in each place of a comma-separated list" or "")
      end
      list[#list + 1] = value
    end
  end
  return list
end

-- Returns a value in the syntax of the command line; numbers are exact.
function config.text(value)
  if type(value) == "table" then
    local items = {}
    for i, item in ipairs(value) do
      items[i] = type(item) == "table" and "[" .. config.text(item) .. "]" or config.text(item)
    end
    return table.concat(items, ",")
  elseif type(value) == "string" then
    return value:find "," and '"' .. value .. '"' or value
  end
  local text, digits = tostring(value), 14
  while math.type(value) == "float" and tonumber(text) ~= value and digits < 17 do
    digits = digits + 1
    text = ("%%.%dg"):format(digits):format(value)
  end
  return text
end

local SHOWN = 60 -- bytes of a text in a label

-- Returns a value for labels: decay=0.99, lengths=64,128. Cuts long strings.
function config.show(v)
  if type(v) == "string" then
    v = v:gsub("%c", " ")
    return #v > SHOWN and ("%s... (%d bytes)"):format(cut(v, SHOWN - 20), #v) or v
  end
  if type(v) ~= "table" then return config.text(v) end
  local items = {}
  for i, x in ipairs(v) do items[i] = config.show(x) end
  return table.concat(items, ",")
end

-- Returns the keys that decide the result of a trial: all except ranks, which does not change any
-- bit (unless it is a list, i.e. a key of the experiment with another meaning). sequence_ranks and
-- micro_batches, which change last bits, are included if they are not 1.
function config.result_keys(c)
  local keys = {}
  for key, value in pairs(c) do keys[key] = value end
  if type(keys.ranks) ~= "table" then keys.ranks = nil end
  for _, key in ipairs { "sequence_ranks", "micro_batches" } do
    if keys[key] == 1 then keys[key] = nil end
  end
  return keys
end

return config
