-- trials/sequential.lua: reads seeds = "until 2 %" and the field compare, by which a run adds seeds
-- to a row until its ratio to another row is known to 2 %.
--
--   seeds   = "until 2 %",              -- in full: "until 2 %, at least 14, at most 18"
--   compare = { with = { decay = 0.99 }, metric = "test_ppl" },
--
-- compares every other row with that of decay 0.99, by test_ppl (default: the first column of the
-- report). The command line takes seeds="until 2 %" and compare="decay=0.99 metric=test_ppl".
-- report/verdicts/looks.lua says which rows are compared and judges them, runs/rounds.lua runs the
-- seeds.
--
-- A row is looked at after the least number of seeds, then after half as many again each time, and
-- every look may be its last. If each had an interval of 95 %, the one at which a row stops would
-- miss the truth in more than 5 % of the cases. Therefore the looks share the 5 %: each seed has an
-- equal part of it, and a look has those of the seeds that are new. By the union bound the
-- intervals of all looks then cover the truth together with at least 95 %. This correction was
-- chosen over the bounds of Pocock and of O'Brien and Fleming because theirs are constants for
-- normal statistics, which are too small for Student's t of few seeds, and because it holds
-- whatever makes a row stop: its interval, a trial that failed, or the end of a budget.
--
-- Few seeds may agree by chance where a metric has outliers: three seeds of a model of which every
-- fifth ends badly are alike in half of all cases, and no interval of their own tells. Fourteen are
-- alike in 4 %; hence the default. Where outliers are excluded, "at least 5" saves seeds.
local config = require "toeplab.base.config"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local sequential = { ALPHA = 0.05 }

local LEAST, FIRST, MOST, LIMIT = 3, 14, 18, 1000

local form = ('write "until 2 %%", or in full "until 2 %%, at least 14, at most 18": a percentage '
  .. "above 0 and below 100, and from %d to %d seeds"):format(LEAST, LIMIT)

-- Returns whether a value of seeds is such a text.
function sequential.is_text(value)
  return type(value) == "string" and value:find "^%s*until%f[^%w]" ~= nil
end

-- Returns the rule of a text: {text= (in full), percent=, most= (seeds), looks= (a list: the seeds
-- of each), alpha= (a list: the share of the cases that the interval of each may miss)}; nil and
-- the right form if it has none. stored: whether the text is of a store, where one of an earlier
-- release says no least number, which was 3.
function sequential.rule(text, stored)
  local number, rest = text:match "^%s*until%s+([%d.eE+-]+)%s*%%(.*)$"
  local percent, given = tonumber(number), {}
  for _, name in ipairs { "at least", "at most" } do
    rest = (rest or "?"):gsub(name .. "%s+(%d+)", function(n)
      given[name] = math.tointeger(tonumber(n)) or 0
      return ""
    end, 1)
  end
  local most = given["at most"] or math.max(MOST, given["at least"] or 0)
  local first = given["at least"] or stored and LEAST or math.min(FIRST, most)
  local good = percent and percent > 0 and percent < 100 and first >= LEAST and first <= most
    and most <= LIMIT and rest:gsub("seeds", ""):find "^[%s,]*$"
  if not good then return nil, form end
  local rule = { text = ("until %g %%, at least %d, at most %d"):format(percent, first, most),
    percent = percent, most = most, looks = {}, alpha = {} }
  local n, before = first, 0
  repeat
    rule.looks[#rule.looks + 1] = n
    rule.alpha[#rule.looks] = sequential.ALPHA * (n - before) / most
    before, n = n, math.min(most, n + (n + 1) // 2)
  until before == most
  return rule
end

local function complain(exp, format, ...)
  errors.usage("%s: compare: %s", exp:where("compare"), format:format(...))
end

-- Raises unless the keys of `with` are axes, each with one value.
local function check_with(exp, with, axes)
  for _, key in ipairs(sorted_keys(with)) do
    local ok, why = suggest.choose("axis", key, sorted_keys(axes))
    if not ok then complain(exp, "%s: name the row that the others are compared with", why) end
    if type(with[key]) == "table" then
      complain(exp, "%s needs one value, that of the row that the others are compared with", key)
    end
  end
  if not next(with) then
    complain(exp, "with is empty: name the row that the others are compared with, like %s",
      sequential.example(exp))
  end
end

-- Checks the declared field compare of an experiment: {with=, metric=}.
function sequential.check(exp)
  if not exp.compare then return end
  if type(exp.compare.with) ~= "table" or config.is_list(exp.compare.with)
    and next(exp.compare.with) then
    complain(exp, "with must be a table of keys and values")
  end
  check_with(exp, exp.compare.with, exp:axes())
end

-- Returns how compare would be declared for an experiment: "compare = { with = { decay = 0.99 } }".
function sequential.example(exp)
  local axes = exp:axes()
  local key = sorted_keys(axes)[1]
  local value = key and not exp.random[key] and axes[key][1]
  if value == nil or type(value) == "table" then key, value = "decay", 0.99 end
  return ("compare = { with = { %s = %s } }"):format(key,
    type(value) == "string" and ("%q"):format(value) or tostring(value))
end

-- Reads compare="decay=0.99 metric=test_ppl" of a command line: {with=, metric=}. more: the axes
-- that the command line sets, key -> its values.
function sequential.read(exp, text, more)
  local found, axes = { with = {} }, exp:axes()
  for key, list in pairs(more) do axes[key] = list end
  for word in text:gmatch "[^%s,]+" do
    local key, value = word:match "^([^=]+)=(.*)$"
    if not key then
      errors.usage("compare takes key=value of the row that the others are compared with, like "
        .. "compare=\"decay=0.99 metric=test_ppl\", got '%s'", text)
    end
    if key == "metric" and not axes.metric then
      found.metric = value
    else
      local likes = not exp.random[key] and axes[key] or { 0.5 }
      local list = config.parse_list(value, likes)
      found.with[key] = list and list[1]
      if list == nil then found.with[key] = value end
    end
  end
  check_with(exp, found.with, axes)
  return found
end

-- Returns what a rule compares, from compare of the command line (nil: none) or the declaration;
-- raises a usage error if nothing says it.
function sequential.compared(exp, rule, given)
  local declared = exp.compare or {}
  local with = given and given.with or declared.with
  if not with then
    errors.usage("%s: seeds = \"%s\" needs to know which row the others are compared with: declare "
      .. "%s, or give compare=KEY=VALUE", exp:where("seeds"), rule.text, sequential.example(exp))
  end
  local columns = type(exp.report) == "table" and exp.report.columns
  local metric = given and given.metric or declared.metric or columns and columns[1]
  if not metric then
    errors.usage("%s: seeds = \"%s\" needs to know what is compared: declare metric = \"loss\" in "
      .. "compare, or give compare=\"KEY=VALUE metric=NAME\"", exp:where("seeds"), rule.text)
  end
  if exp.prune then
    errors.usage("%s: seeds = \"%s\" cannot be used with prune: a pruned trial has no result to "
      .. "compare", exp:where("prune"), rule.text)
  end
  return { with = with, metric = metric }
end

return sequential
