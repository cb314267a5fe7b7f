-- store/filter.lua: parses filters KEY=VALUE, and reports the existing values if none matches.
local errors = require "toeplab.base.errors"
local config = require "toeplab.base.config"
local suggest = require "toeplab.base.suggest"

local filter = {}

local MOST_VALUES = 20 -- in a message

-- Parses words KEY=VALUE (or KEY=A,B for either value) into a table key -> list of strings.
function filter.read(verb, words)
  local set = {}
  for _, word in ipairs(words) do
    local key, text = word:match "^([%a_][%w_.]*)=(.*)$"
    if not key then errors.usage("%s: '%s' is not a filter; write key=value", verb, word) end
    if set[key] then errors.usage("%s: %s is given twice", verb, key) end
    set[key] = { text }
    for part in text:gmatch "[^,]+" do table.insert(set[key], part) end
  end
  return set
end

-- Returns whether the value of a configuration equals one of the strings.
function filter.matches(value, texts)
  if value == nil then return false end
  local shown = config.show(value)
  for _, text in ipairs(texts) do
    local number = tonumber(text)
    if shown == text or value == text or type(value) == "number" and value == number then
      return true
    end
  end
  return false
end

-- Raises the usage error that no trial has key=text, and lists the existing values. of: the
-- experiment or folder to name; values: the values of the key, in any order, without nil.
function filter.refuse(of, key, text, values)
  local seen, distinct, names = {}, {}, {}
  for _, value in ipairs(values) do
    local shown = config.show(value)
    if not seen[shown] then seen[shown], distinct[#distinct + 1] = true, value end
  end
  table.sort(distinct, function(a, b)
    local first, second = type(a) == "number", type(b) == "number"
    if first and second then return a < b end
    if first ~= second then return first end
    return config.show(a) < config.show(b)
  end)
  for i, value in ipairs(distinct) do names[i] = config.show(value) end
  local more = #names > MOST_VALUES and (", and %d more"):format(#names - MOST_VALUES) or ""
  errors.usage("no trial of %s has %s=%s%s (there are: %s%s)", of, key, text,
    suggest.near(text, names), table.concat(names, ", ", 1, math.min(#names, MOST_VALUES)), more)
end

return filter
