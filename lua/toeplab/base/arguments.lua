-- base/arguments.lua: parses the words after a verb into GNU-style options and other words.
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local arguments = {}

local function find(options, name)
  for _, o in ipairs(options) do
    if o.name == name or o.short == name then return o end
  end
end

-- Returns the options that help and reference list.
function arguments.listed(options)
  local list = {}
  for _, o in ipairs(options) do list[#list + 1] = not o.unlisted and o or nil end
  return list
end

local function known(options)
  local names = { "help" }
  for _, o in ipairs(arguments.listed(options)) do names[#names + 1] = o.name end
  return names
end

local function unknown(verb, options, word)
  local hint = suggest.hint(word:gsub("^%-+", ""), known(options)):gsub("'([^']+)'", "'--%1'")
  errors.usage("%s: unknown option '%s'%s (see toeplab %s --help)", verb, word, hint, verb)
end

-- Raises if an unknown option is one of the keys of every experiment: --seeds 3 means seeds=3.
local function as_key(verb, name, value)
  for _, key in ipairs { "seed", "seeds", "scale", "draws", "compare", "device", "precision" } do
    if name == key then
      errors.usage("%s: %s is no option: give %s=%s", verb, name, name, value or name:upper())
    end
  end
end

-- Splits "--name=value", "--name" or "-x" into the option's name and its value, if it has one.
local function split(word)
  local name, value = word:match("^%-%-([^=]+)=(.*)$")
  if name then return name, value end
  return word:match("^%-%-(.+)$") or word:match("^%-(.)$") or word:sub(2)
end

-- Raises a usage error unless a value is among the choices of an option.
local function check_choice(verb, o, value)
  if not o.choices or o.list then return end
  local known, why = suggest.choose(o.value:lower(), value, o.choices)
  if not known then errors.usage("%s: --%s: %s", verb, o.name, why) end
end

-- Parses words for a verb. options is a list of {name=, short=, value=, help=, more=, many=,
-- choices=, of=, list=, writes=, unlisted=}: value is the word for the option's value in the help,
-- nil for a switch; help is one clause, and more are further sentences of the reference; one with
-- many may be repeated, and its value is a list. choices are all values that there are, of is
-- the kind of value that shells complete (commands/unlisted/complete.lua), list says that commas
-- separate values, writes that the verb writes the file or folder that the value names, unlisted
-- that neither help nor reference names the option. keys: whether the verb takes key=value, too.
-- Returns a table option name -> value (true for a switch), and the list of the other words; nil if
-- they ask for help. An unknown option, or a value that is none of the choices, is a usage error.
function arguments.parse(verb, options, words, keys)
  local set, rest, i = {}, {}, 1
  while i <= #words do
    local word = words[i]
    if word == "--" then
      table.move(words, i + 1, #words, #rest + 1, rest)
      break
    elseif word:find("^%-.") then
      if word == "--help" or word == "-h" then return nil end
      local name, value = split(word)
      local o = find(options, name)
      local first = word:match("^%-([^-]).+$")
      if not o and first and find(options, first) then -- joined short options, as in -nq or -oFILE
        name, o, value = first, find(options, first), word:sub(3)
        if not o.value then
          table.insert(words, i + 1, "-" .. value)
          value = nil
        end
      end
      if not o then
        if keys then as_key(verb, name, value or (words[i + 1] or ""):match "^[^-].*") end
        unknown(verb, options, word)
      end
      if o.value and value == nil then
        i = i + 1
        value = words[i]
        if value == nil then errors.usage("%s: %s needs %s", verb, word, o.value) end
      elseif not o.value and value ~= nil then
        errors.usage("%s: --%s takes no value", verb, o.name)
      end
      check_choice(verb, o, value)
      if o.many then
        set[o.name] = set[o.name] or {}
        table.insert(set[o.name], value)
      else
        set[o.name] = o.value and value or true
      end
    else
      rest[#rest + 1] = word
    end
    i = i + 1
  end
  return set, rest
end

-- Returns the value of an option as a number, nil if it is not given. Raises a usage error unless
-- the number is at least `least` and, if that is given, at most `most`.
function arguments.number(verb, set, name, least, most)
  if set[name] == nil then return nil end
  local x = tonumber(set[name])
  if not x or x < least or x == math.huge or most and x > most then
    local range = most and ("from %s to %s"):format(least, most) or "of at least " .. least
    errors.usage("%s: --%s takes a number %s, got '%s'", verb, name, range, set[name])
  end
  return x
end

-- Returns the same as an integer.
function arguments.integer(verb, set, name, least, most)
  local number = arguments.number(verb, set, name, least, most)
  local x = math.tointeger(number)
  if number and not x then
    errors.usage("%s: --%s takes an integer%s, got '%s'", verb, name,
      number >= 2 ^ 63 and " below 2^63" or "", set[name])
  end
  return x
end

-- Returns the words in the value of an option, or in the values of a repeated one, which commas
-- separate; nil if the option is not given. Raises a usage error if there is no word.
function arguments.list(verb, set, name)
  local text, list = set[name], {}
  if text == nil then return nil end
  if type(text) == "table" then text = table.concat(text, ",") end
  for word in text:gmatch "[^,%s]+" do list[#list + 1] = word end
  if #list == 0 then
    errors.usage("%s: --%s takes words like A or A,B, got '%s'", verb, name, text)
  end
  return list
end

return arguments
