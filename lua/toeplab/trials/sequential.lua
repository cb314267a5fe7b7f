-- trials/sequential.lua: parses seeds = "until 2 %" and the field compare, with which a run adds
-- seeds to a row until its ratio to another row is known to 2 %.
--
--
-- compares every other row with the row of decay 0.99, by test_ppl (default: the first column of
-- the report). The command line takes seeds="until 2 %" and compare="decay=0.99 metric=test_ppl".
-- report/verdicts/seed_looks.lua selects and judges the compared rows, runs/rounds.lua runs
-- the seeds.
--
-- The first look at a row comes after the least number of seeds, each other one after half as many
-- again, and every look may be the last. If each look had an interval of 95 %, the interval at
-- which a row stops would miss the truth in more than 5 % of the cases. Therefore the looks share
-- the 5 %: each seed has an equal part, and a look uses the parts of its new seeds. By the union
-- bound the intervals of all looks then jointly cover the truth with at least 95 %. This correction
-- was preferred to the bounds of Pocock and of O'Brien and Fleming because those are constants for
-- normal statistics, which are too small for Student's t of few seeds, and because it holds
-- whatever stops a row: its interval, a failed trial, or the end of a budget.
--
-- Few seeds may agree by chance if a metric has outliers. If every fifth run of a model ends badly,
-- three seeds agree in half of all cases, and their interval cannot show it. Fourteen agree in 4 %;
-- hence the default. If outliers are impossible, "at least 5" saves seeds.
local config = require "toeplab.base.config"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local sequential = { ALPHA = 0.05 }

local LEAST, FIRST, MOST, LIMIT = 3, 14, 18, 1000

local form = ('write "until 2 %%", or in full "until 2 %%, at least 14, at most 18": a percentage '
  .. "above 0 and below 100, and from %d to %d seeds"):format(LEAST, LIMIT)

-- Returns whether a value of seeds is such a rule.
function sequential.is_text(value)
  return type(value) == "string" and value:find "^%s*until%f[^%w]" ~= nil
end

-- Parses a rule: {text= (in full), percent=, most= (seeds), looks= (a list: the seeds of each
-- look), alpha= (a list: the share of cases that the interval of each look may miss)}; nil and the
-- right form if it is invalid. stored: whether the text comes from a store, where rules of earlier
-- releases lack the least number, which was 3.
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
      complain(exp, "%s needs one value, which names the baseline row", key)
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

-- Returns an example of compare for an experiment: "compare = { with = { decay = 0.99 } }".
function sequential.example(exp)
  local axes = exp:axes()
  local key = sorted_keys(axes)[1]
  local value = key and not exp.random[key] and axes[key][1]
  if value == nil or type(value) == "table" then key, value = "decay", 0.99 end
  return ("compare = { with = { %s = %s } }"):format(key,
    type(value) == "string" and ("%q"):format(value) or tostring(value))
end

-- Parses compare="decay=0.99 metric=test_ppl" of a command line: {with=, metric=}. more: the axes
-- that the command line sets, key -> its values.
function sequential.read(exp, text, more)
  local found, axes = { with = {} }, exp:axes()
  for key, list in pairs(more) do axes[key] = list end
  for word in text:gmatch "[^%s,]+" do
    local key, value = word:match "^([^=]+)=(.*)$"
    if not key then
      errors.usage("compare takes key=value of the baseline row, like "
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

-- Returns the comparison of a rule from compare of the command line (given, or nil) or from the
-- declaration; raises a usage error if there is neither.
function sequential.compared(exp, rule, given)
  local declared = exp.compare or {}
  local with = given and given.with or declared.with
  if not with then
    errors.usage("%s: seeds = \"%s\" requires a baseline row: declare %s, or give "
      .. "compare=KEY=VALUE", exp:where("seeds"), rule.text, sequential.example(exp))
  end
  local columns = type(exp.report) == "table" and exp.report.columns
  local metric = given and given.metric or declared.metric or columns and columns[1]
  if not metric then
    errors.usage("%s: seeds = \"%s\" requires a metric: declare metric = \"loss\" in compare, or "
      .. "give compare=\"KEY=VALUE metric=NAME\"", exp:where("seeds"), rule.text)
  end
  if exp.prune then
    errors.usage("%s: seeds = \"%s\" cannot be combined with prune: pruned trials have no result "
      .. "to compare", exp:where("prune"), rule.text)
  end
  return { with = with, metric = metric }
end

return sequential
