-- base/options.lua: checks option tables against a declaration with types and defaults; an unknown
-- name is an error.
--
-- A declaration (spec) maps each name to one of
--   a default value            its type is the option's: 3 is an integer, 3.0 a number
--   a type name, e.g. "int"    the option is required
--   options.field{...}         all details, see below
-- or is a list of {name, default | type | field, help}, which fixes the order in which options are
-- shown. Such a list may have a function check(who, resolved, given), which raises an error if the
-- options do not fit each other. An integer is accepted as a number, but not the reverse.

local overlay = require "toeplab.base.overlay"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local options = {}

local Field, Set = {}, {}

-- By type: a function that returns whether a value has the type, and the value to store.
local types = {
  int = function(v) return math.type(v) == "integer", v end,
  number = function(v) return math.type(v) ~= nil, math.type(v) == "integer" and v + 0.0 or v end,
  string = function(v) return type(v) == "string", v end,
  boolean = function(v) return type(v) == "boolean", v end,
  table = function(v) return type(v) == "table", v end,
  ["function"] = function(v) return type(v) == "function", v end,
  module = function(v) return type(v) == "table" and getmetatable(v) and v.forward ~= nil, v end,
  class = function(v) return type(v) == "table" and rawget(v, "__module") == true, v end,
  tensor = function(v) return type(v) == "userdata", v end,
  any = function(v) return v ~= nil, v end,
}

local function typeof(value)
  if math.type(value) == "integer" then return "int" end
  return type(value) -- a float is "number"
end

-- Declares an option by a table of: type (names joined by '|'), default (without it the option is
-- required, unless optional is true), choices (a list of strings, for string values), min and max
-- (inclusive, for numbers), check (a function of the value that returns true, or false and a
-- reason), help (one line).
function options.field(f)
  f.type = f.type or typeof(f.default)
  for name in f.type:gmatch "[^|]+" do
    if not types[name] then error(("option type '%s' is not known"):format(name), 2) end
  end
  return setmetatable(f, Field)
end

-- Words that are meant as types, with ours; as defaults they would be strings.
local meant = { integer = "int", float = "number", str = "string", bool = "boolean",
  list = "table" }

local function tofield(declared, help)
  if getmetatable(declared) ~= Field then
    if type(declared) == "string" and (meant[declared] or types[declared:match "^(.+)%?$"]) then
      error(("'%s' is not a type of options: write %s"):format(declared, meant[declared]
        and ("'%s'"):format(meant[declared])
        or ("tl.options.field { type = '%s', optional = true }"):format(declared:sub(1, -2))), 0)
    end
    local required = type(declared) == "string" and types[declared] ~= nil
    declared = options.field(required and { type = declared } or { default = declared })
  end
  declared.help = declared.help or help
  return declared
end

-- Returns a declaration in its checked form: fields by name and the order of their names. Returns a
-- checked declaration unchanged.
function options.set(spec)
  if getmetatable(spec) == Set then return spec end
  local set = setmetatable({ fields = {}, order = {} }, Set)
  local function add(name, declared, help)
    if set.fields[name] then error(("option '%s' is declared twice"):format(name), 3) end
    set.fields[name] = tofield(declared, help)
    set.order[#set.order + 1] = name
  end
  if #spec > 0 then
    set.check = spec.check
    for _, entry in ipairs(spec) do add(entry[1], entry[2], entry[3]) end
  else
    for _, name in ipairs(sorted_keys(spec)) do add(name, spec[name]) end
  end
  return set
end

-- The declarations of functions, by their names in the library, e.g. "tl.blocks", for the reference
-- and for editors.
options.declared = {}

-- options.declare "tl.blocks" { ... } returns options.set { ... }, and stores it in declared.
function options.declare(name)
  return function(spec)
    options.declared[name] = options.set(spec)
    return options.declared[name]
  end
end

local words = {
  int = "an integer", number = "a number", string = "a string", boolean = "true or false",
  table = "a table", ["function"] = "a function", module = "a module",
  class = "a kind of module", tensor = "a tensor",
  any = "given",
}

local function wanted(field)
  local list = {}
  for name in field.type:gmatch "[^|]+" do list[#list + 1] = words[name] end
  return table.concat(list, " or ")
end

local function show(value)
  if type(value) == "string" then return ("'%s'"):format(value) end
  if type(value) == "number" or type(value) == "boolean" then return tostring(value) end
  return "a " .. type(value)
end

local function inrange(field, value)
  if type(value) ~= "number" then return true end
  if value ~= value then return false end
  return (not field.min or value >= field.min) and (not field.max or value <= field.max)
end

local function range(field)
  if not field.min and not field.max then return "a number" end
  if field.min and field.max then return ("between %s and %s"):format(field.min, field.max) end
  return field.min and ("at least %s"):format(field.min) or ("at most %s"):format(field.max)
end

local function ischoice(field, value)
  if type(value) ~= "string" or not field.choices then return true end
  for _, choice in ipairs(field.choices) do
    if choice == value then return true end
  end
  return false
end

-- Returns the value to store for a field, or raises an error that names who, the option and its
-- valid values.
local function checked(who, name, field, value)
  local fits, stored = false, nil
  if types[field.type] then -- one kind, as of most options: plans check thousands of them
    fits, stored = types[field.type](value)
  else
    for kind in field.type:gmatch "[^|]+" do
      fits, stored = types[kind](value)
      if fits then break end
    end
  end
  if not fits then
    error(("%s: option '%s' must be %s, got %s"):format(who, name, wanted(field), show(value)), 0)
  end
  if not ischoice(field, stored) then
    error(("%s: option '%s' = '%s' is not one of %s%s"):format(who, name, stored,
      table.concat(field.choices, ", "), suggest.near(stored, field.choices)), 0)
  end
  if not inrange(field, stored) then
    error(("%s: option '%s' = %s must be %s"):format(who, name, show(stored), range(field)), 0)
  end
  if field.check then
    local ok, why = field.check(stored)
    if not ok then error(("%s: option '%s' %s"):format(who, name, why), 0) end
  end
  return stored
end

local function copied(default)
  if type(default) ~= "table" or getmetatable(default) then return default end
  local copy = {}
  for key, value in pairs(default) do copy[key] = value end
  return copy
end

-- Makes it an error to read or to add an undeclared option; a declared one without a value is nil.
local function seal(who, set, resolved)
  local function unknown(name)
    error(("%s has no option named '%s'%s"):format(
      who, tostring(name), suggest.hint(name, set.order)), 3)
  end
  return setmetatable(resolved, {
    __resolved = true,
    __index = function(_, name)
      if not set.fields[name] then unknown(name) end
    end,
    __newindex = function(t, name, value)
      if not set.fields[name] then unknown(name) end
      rawset(t, name, value)
    end,
  })
end

local function refuse(who, set, given)
  for key in pairs(given) do
    if not set.fields[key] then
      local name = (type(key) == "number" and "value #%s" or "option '%s'"):format(tostring(key))
      error(("%s: unknown %s%s"):format(who, name, suggest.hint(key, set.order)), 0)
    end
  end
end

-- Returns whether given is a shared configuration (options.shared).
function options.is_shared(given) return (getmetatable(given) or {}).__has ~= nil end

local is_shared = options.is_shared

-- Returns whether given is a result of options.check.
function options.is_resolved(given) return (getmetatable(given) or {}).__resolved == true end

-- Returns the value of name in given, a table of options or a shared configuration; nil if absent.
function options.given(given, name)
  if not is_shared(given) then return rawget(given, name) end
  if getmetatable(given).__has(given, name) then return given[name] end
end

-- Returns the options given to who, checked against a declaration and completed by its defaults.
-- given is nil, a table, in which an unknown key is an error, or a shared configuration, from which
-- it reads only the declared keys. over overrides given.
function options.check(who, spec, given, over)
  local set = options.set(spec)
  given, over = given or {}, over or {}
  if type(given) ~= "table" then
    error(("%s: takes a table of options, not a %s"):format(who, type(given)), 0)
  end
  if not is_shared(given) then refuse(who, set, given) end
  refuse(who, set, over)
  local resolved = {}
  for _, name in ipairs(set.order) do
    local field, value = set.fields[name], over[name]
    if value == nil then value = options.given(given, name) end
    if value ~= nil then
      resolved[name] = checked(who, name, field, value)
    elseif field.default ~= nil then
      resolved[name] = copied(field.default)
    elseif not field.optional then
      error(("%s: option '%s' is required: %s"):format(who, name,
        field.type == "any" and field.help or wanted(field)), 0)
    end
  end
  seal(who, set, resolved)
  if set.check then set.check(who, resolved, given) end
  return resolved
end

-- Returns a read-only configuration that several parts share, such as a model, its optimiser and
-- the training loop: each takes the options that it declares. Reading an absent name is an error
-- with a suggestion. The field __read of the metatable is the set of the names that were read.
function options.shared(who, values)
  local read = {}
  return setmetatable({}, {
    __has = function(_, name) return values[name] ~= nil end,
    __read = read,
    __index = function(_, name)
      if values[name] == nil then
        error(("%s has no '%s'%s"):format(
          who, tostring(name), suggest.hint(name, sorted_keys(values))), 2)
      end
      read[name] = true
      return values[name]
    end,
    __newindex = function(_, name)
      error(("%s: '%s' cannot be changed"):format(who, tostring(name)), 2)
    end,
    __pairs = function() return pairs(values) end,
  })
end

-- Returns the shared configuration c, overridden by the values of more. A name that is read from
-- the result and not in more counts as read from c.
function options.over(c, more)
  if type(c) ~= "table" or type(more) ~= "table" then
    error("options.over: takes a configuration and a table of values that override it", 2)
  end
  local function all() return pairs(overlay(c, more)) end
  local function value_of(_, name)
    if more[name] ~= nil then return more[name] end
    return options.given(c, name)
  end
  return options.shared("the configuration", setmetatable({}, { __index = value_of,
    __pairs = all }))
end

-- Raises an error at the caller's caller unless value, the argument name of who, is an integer of
-- at least 1.
function options.count(who, name, value)
  if math.type(value) == "integer" and value >= 1 then return end
  error(("%s: %s must be an integer of at least 1, got %s"):format(who, name, show(value)), 3)
end

-- Raises an error at the caller's caller unless ids is a stream of tokens, int32 [t].
function options.stream(who, ids)
  if type(ids) == "userdata" and ids:ndim() == 1 and ids:type() == "int32" then return end
  local got = ids == nil and "nil, as an empty part of a corpus is"
    or type(ids) == "userdata" and tostring(ids) or show(ids)
  error(("%s: takes a stream of ids, int32 [t], got %s"):format(who, got), 3)
end

local function constant(text)
  local chunk = load("return " .. text, "=option", "t", {})
  local ok, value = pcall(chunk or error)
  if ok then return value end
end

-- Parses text by the field's types: "3" is 3 for "int" and "3" for "string"; a table is one in Lua,
-- or a list of numbers, "8,16" or "[8,16]", as in the words of a run.
local function value(field, text)
  for kind in field.type:gmatch "[^|]+" do
    local v = nil
    if kind == "int" then v = math.tointeger(tonumber(text))
    elseif kind == "number" then v = tonumber(text)
    elseif kind == "boolean" then v = ({ ["true"] = true, ["false"] = false })[text]
    elseif kind == "table" and text:find "^%s*{" then v = constant(text)
    elseif kind == "table" and text:find "^%[?[%d.,eE+-]+%]?$" then
      v = constant("{" .. text:gsub("[%[%]]", "") .. "}")
    elseif kind == "string" then v = text
    end
    if v ~= nil then return v end
  end
  return text -- the check that follows reports what was wanted
end

-- Parses "key=value" strings into a table of typed values for a declaration. Raises the errors of
-- options.check.
function options.parse(who, spec, texts)
  local set, given = options.set(spec), {}
  for _, text in ipairs(texts) do
    local name, rest = text:match "^([%w_]+)=(.*)$"
    if not name then error(("%s: '%s' must have the form name=value"):format(who, text), 0) end
    if not set.fields[name] then refuse(who, set, { [name] = rest }) end
    if given[name] ~= nil then error(("%s: %s is given twice"):format(who, name), 0) end
    given[name] = value(set.fields[name], rest)
    checked(who, name, set.fields[name], given[name])
  end
  return given
end

-- Returns rows {name=, type=, default=, range=, help=} of strings in declaration order, for help
-- pages.
function options.describe(spec)
  local set, rows = options.set(spec), {}
  for _, name in ipairs(set.order) do
    local field = set.fields[name]
    local default = field.default
    if type(default) == "table" then default = "{" .. table.concat(default, ", ") .. "}" end
    rows[#rows + 1] = {
      name = name, type = field.type, help = field.help or "",
      default = default ~= nil and tostring(default) or (field.optional and "" or "required"),
      range = field.choices and table.concat(field.choices, " ")
        or ((field.min or field.max) and range(field) or ""),
    }
  end
  return rows
end

return options
