-- report/labels.lua: names keys, metrics and values in tables and figures by the experiment's field
-- `label`.
--
--   label = { test_ppl = "perplexity", decay = { "λ", tex = "$\\lambda$" },
--             ["mixer=tnn"] = "TNN (ours)" }
--
-- The label of KEY=VALUE replaces both; without one, "KEY=VALUE" is shown with the label of KEY.
local config = require "toeplab.base.config"

local labels = {}

local Labels = {}
Labels.__index = Labels

-- These two characters enclose a label in TeX (labels.raw).
local OPEN, CLOSE = "\1", "\2"

-- texts: name -> text, and tex: name -> TeX, each nil for none.
function labels.new(texts, tex)
  return setmetatable({ texts = texts or {}, tex = tex or {} }, Labels)
end

labels.none = labels.new()

local function text_of(self, name)
  return self.tex[name] and OPEN .. self.tex[name] .. CLOSE or self.texts[name]
end

-- Returns the label of a key or a metric. The label of ppl holds for ppl@512, too.
function Labels:name(name)
  local own, at = text_of(self, name), name:match "@(.+)$"
  local base = not own and at and text_of(self, name:match "^[^@]*")
  return own or base and base .. " at " .. at or name
end

-- Returns the label of a key's value.
function Labels:value(key, value)
  if value == nil then return "-" end
  local shown = config.show(value)
  return text_of(self, key .. "=" .. shown) or shown
end

-- Returns the label of KEY=VALUE.
function Labels:part(key, value)
  local shown = config.show(value)
  return text_of(self, key .. "=" .. shown) or self:name(key) .. "=" .. shown
end

-- Returns the parts of the keys that values has, "lr=0.1 width=8"; "" if it has none.
function Labels:parts(values, keys)
  local list = {}
  for _, key in ipairs(keys) do
    if values[key] ~= nil then list[#list + 1] = self:part(key, values[key]) end
  end
  return table.concat(list, " ")
end

-- Returns the values of the keys, "0.1, 8"; "-" for one that is missing.
function Labels:values(values, keys)
  local list = {}
  for i, key in ipairs(keys) do list[i] = self:value(key, values[key]) end
  return table.concat(list, ", ")
end

-- Returns the names of keys or metrics, "lr, width".
function Labels:names(list)
  local names = {}
  for i, name in ipairs(list) do names[i] = self:name(name) end
  return table.concat(names, ", ")
end

-- Returns text with labels in TeX unchanged, and the rest escaped by `escape`.
function labels.raw(text, escape)
  local list, at = {}, 1
  local pattern = "()" .. OPEN .. "([^" .. CLOSE .. "]*)" .. CLOSE .. "()"
  for first, inside, last in text:gmatch(pattern) do
    list[#list + 1] = escape(text:sub(at, first - 1)) .. inside
    at = last
  end
  return table.concat(list) .. escape(text:sub(at))
end

return labels
