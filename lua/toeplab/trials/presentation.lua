-- trials/presentation.lua: checks the fields of an experiment that name things in tables and
-- figures.
--
--   title = "Perplexity of texts longer than in training"     captions
--   label = { test_ppl = "perplexity", decay = { "λ", tex = "$\\lambda$" },
--             ["mixer=tnn"] = "TNN (ours)" }      of a metric, a key, or a value of a key
local errors = require "toeplab.base.errors"
local rows = require "toeplab.trials.rows"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local function check_text(exp, field, what, text)
  if type(text) ~= "string" or text == "" or text:find "%c" or not utf8.len(text) then
    errors.usage("%s: %s must be one line of text", exp:where(field), what)
  end
end

-- Returns the set of the keys of an experiment.
local function keys_of(exp)
  local set = { seed = true }
  for _, keys in ipairs { exp.fixed, exp:axes(), rows.keys(exp.rows) } do
    for key in pairs(keys) do set[key] = true end
  end
  return set
end

-- Raises a usage error for invalid titles and labels. Sets exp.label to a table name -> text, and
-- exp.tex to a table name -> TeX, or to nil if they are empty.
return function(exp)
  if exp.title then check_text(exp, "title", "title", exp.title) end
  local texts, tex, known = {}, {}, keys_of(exp)
  for name, label in pairs(exp.label or {}) do
    if type(name) ~= "string" then
      errors.usage("%s: label has %s without a name: write NAME = \"text\"", exp:where "label",
        type(label) == "string" and ("'%s'"):format(label) or "a value")
    end
    if name:find "^%s*$" or name:find "%s=" or name:find "=%s" or name:find "=$" then
      errors.usage("%s: label of '%s': write NAME or KEY=VALUE, without blanks around =",
        exp:where "label", name)
    end
    local what, key = "label of " .. name, name:match "^([%a_][%w_]*)=."
    if key and not known[key] then
      errors.usage("%s: %s: the experiment has no key '%s'%s", exp:where "label", what, key,
        suggest.hint(key, sorted_keys(known)))
    end
    local whole = type(label) == "table" and label or { label }
    check_text(exp, "label", what, whole[1])
    if whole.tex ~= nil then check_text(exp, "label", what .. ", tex,", whole.tex) end
    for part in pairs(whole) do
      if part ~= 1 and part ~= "tex" then
        errors.usage("%s: %s must be \"text\" or { \"text\", tex = \"TeX\" }, but has '%s'",
          exp:where "label", what, tostring(part))
      end
    end
    texts[name], tex[name] = whole[1], whole.tex
  end
  exp.label, exp.tex = next(texts) and texts or nil, next(tex) and tex or nil
end
