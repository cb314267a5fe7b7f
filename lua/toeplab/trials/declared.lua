-- trials/declared.lua: checks the fields of an experiment that shape its trials (zip, random, when,
-- except) and those that supervise them (guard, prune, budget, checkpoint).
--
--   zip    = { length = {512, 1024}, batch = {16, 8} }   the i-th values go together; or a list of
--                                                        such tables
--   random = { draws = 20, seed = 0, lr = {"log", 1e-4, 1e-2}, dropout = {"uniform", 0.0, 0.5},
--              layers = {"integer", 2, 6}, act = {"choice", "relu", "silu"} }
--   when   = { { where = {model = "ski"}, fixed = {layers = 1}, grid = {lr = {1, 2}} } }
--   except = { { where = {model = "ski", causal = true}, reason = "..." } }
--   guard  = { metric = "loss", nan = "stop", zscore = 6, window = 128, retries = 2,
--              lr_factor = 0.5, every = 100 }
--   prune  = { metric = "val_ppl", rule = "asha", eta = 3, min_steps = 100 }
--   better = { margin = "higher" }                       for metrics whose names do not say it
--   budget = { trial = "30m", total = "4h", memory = "6G" }
--   tune   = { key = "lr", values = {1e-3, 3e-3, 1e-2}, metric = "best_val_ppl", seed = 101,
--              fixed = {steps = 1000}, without = {"smoke"} }   tuning.lua
--   compare = { with = {decay = 0.99}, metric = "test_ppl" }              sequential.lua
--   success = { metric = "test_accuracy", above = 0.8 }   or below: reports count successful seeds
--   checkpoint = { steps = 500, seconds = 60 }
--
-- where: key -> value or list of values, or a function of the configuration. In guard, prune and
-- tune, goal = "max" or "min" declares better for their metric.
local config = require "toeplab.base.config"
local direction = require "toeplab.base.direction"
local options = require "toeplab.base.options"
local overlay = require "toeplab.base.overlay"
local quantity = require "toeplab.base.quantity"
local rows = require "toeplab.trials.rows"
local published_tables = require "toeplab.trials.published_tables"
local sequential = require "toeplab.trials.sequential"
local space = require "toeplab.trials.space"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local declared = {}

local field = options.field

local goal = field { type = "string", choices = { "min", "max" }, optional = true }

local watch = {
  guard = {
    metric = "string",
    goal = goal,
    nan = field { default = "stop", choices = { "stop", "rollback" } },
    zscore = field { type = "number", min = 1, optional = true },
    window = field { default = 128, min = 8, max = 100000 },
    every = field { type = "int", min = 1, optional = true },
    retries = field { default = 2, min = 0, max = 100 },
    lr_factor = field { default = 0.5, min = 1e-6, max = 1 },
  },
  prune = {
    metric = "string",
    rule = field { default = "asha", choices = { "asha", "median" } },
    eta = field { default = 3.0, min = 1.1 },
    min_steps = field { default = 1, min = 1 },
    goal = goal,
  },
  budget = {
    trial = field { type = "number|string", optional = true },
    total = field { type = "number|string", optional = true },
    memory = field { type = "number|string", optional = true },
  },
  tune = {
    key = "string",
    values = "table",
    metric = "string",
    goal = goal,
    seed = field { type = "int", min = 0 },
    within = field { default = 0.03, min = 0.0, max = 1.0 },
    fixed = {},
    without = {},
  },
  compare = {
    with = "table",
    metric = field { type = "string", optional = true },
  },
  success = {
    metric = "string",
    above = field { type = "number", optional = true },
    below = field { type = "number", optional = true },
  },
  checkpoint = {
    steps = field { type = "int", min = 1, optional = true },
    seconds = field { type = "number", optional = true,
      check = function(v) return v > 0 and v < math.huge, "must be above 0 and finite" end },
  },
}

local function complain(exp, key, format, ...)
  errors.usage("%s: %s", exp:where(key), format:format(...))
end

local function names(exp, set, what)
  for key in pairs(set) do
    if type(key) ~= "string" then complain(exp, what, "%s has a value without a key", what) end
  end
  return sorted_keys(set)
end

local function is_list(v) return config.is_list(v) and #v > 0 end

-- ---- Axes -------------------------------------------------------------------------------------

-- Raises if an axis is already declared elsewhere.
local function check_not_declared(exp, key, what)
  for _, other in ipairs { "fixed", "grid" } do
    if exp[other][key] ~= nil then
      complain(exp, key, "%s is declared twice, in %s and in %s", key, other, what)
    end
  end
end

local function check_zip(exp, axes, seen)
  local length, first
  for _, key in ipairs(names(exp, axes, "zip")) do
    check_not_declared(exp, key, "zip")
    if seen[key] then complain(exp, key, "%s is declared twice in zip", key) end
    seen[key] = true
    local list = axes[key]
    if not is_list(list) then complain(exp, key, "zip: %s must be a list of values", key) end
    exp:check_value(key, list)
    length, first = length or #list, first or key
    if #list ~= length then
      complain(exp, key, "zip: %s has %d values and %s has %d: the lists must have the same "
        .. "length", key, #list, first, length)
    end
  end
  if not length then complain(exp, "zip", "zip: must be a table with at least one list") end
end

local function check_zips(exp)
  if exp.zip == nil then exp.zips = {} return end
  local lists = #exp.zip > 0 and type(exp.zip[1]) == "table" and exp.zip or { exp.zip }
  if not is_list(lists) then
    complain(exp, "zip", "zip: must be a table of lists, or a list of such tables")
  end
  local seen = {}
  exp.zips = {}
  for i, axes in ipairs(lists) do
    if type(axes) ~= "table" then complain(exp, "zip", "zip: must be a list of tables") end
    exp.zips[i] = exp:flat(axes)
    check_zip(exp, exp.zips[i], seen)
  end
end

local needs = { uniform = 2, log = 2, integer = 2 }

-- Returns why a distribution is invalid, or nil.
local function wrong_draw(d)
  if not is_list(d) then return "must be a list: a distribution and its values" end
  local ok, why = suggest.choose("distribution", d[1], space.distributions)
  if not ok then return why end
  if d[1] == "choice" then return #d < 2 and "choice takes at least one value" or nil end
  if #d - 1 ~= needs[d[1]] then return ("%s takes a low and a high value"):format(d[1]) end
  local low, high = d[2], d[3]
  if type(low) ~= "number" or type(high) ~= "number" or not (low <= high) then
    return ("%s: the low value must be a number not above the high value"):format(d[1])
  end
  if d[1] == "log" and low <= 0 then return "log: the low value must be above 0" end
  local far = d[1] == "uniform" and high / 1 - low or d[1] == "log" and high / low
  if far == math.huge then
    return d[1] .. ": the values are too far apart"
  end
  local whole = math.type(low) == "integer" and math.type(high) == "integer"
  if d[1] ~= "integer" then return nil end
  if not whole then return "integer takes two integers" end
  if high / 1 - low >= 2^53 then return "integer: the values are too far apart" end
end

local function check_random(exp)
  local given = exp:flat(exp.random or {})
  exp.draws, exp.draw_seed, exp.random = 0, 0, {}
  for _, key in ipairs(names(exp, given, "random")) do
    local value = given[key]
    if key == "draws" or key == "seed" then
      local least = key == "draws" and 1 or 0
      if math.type(value) ~= "integer" or value < least then
        complain(exp, key, "random: %s must be an integer of at least %d, not %s", key, least,
          tostring(value))
      end
      if key == "draws" then exp.draws = value else exp.draw_seed = value end
    else
      check_not_declared(exp, key, "random")
      local why = wrong_draw(value)
      if why then complain(exp, key, "random: %s %s", key, why) end
      exp:check_value(key, value)
      exp.random[key] = value
    end
  end
  if next(exp.random) and exp.draws == 0 then
    complain(exp, "random", "random: needs draws, the number of points to draw")
  elseif exp.draws > 0 and not next(exp.random) then
    complain(exp, "random", "random: needs a key: write name = {distribution, ...}")
  end
end

-- ---- Rules ------------------------------------------------------------------------------------

local function check_known(exp, what, set)
  for _, key in ipairs(names(exp, set, what)) do
    if not exp:declares(key) then
      complain(exp, key, "%s names '%s', which is not declared%s", what, key,
        suggest.hint(key, exp:keys()))
    end
  end
end

-- Checks that a rule has a `where` and only the fields in `allowed` (name -> type).
local function check_rule(exp, what, rule, allowed)
  if type(rule) ~= "table" then complain(exp, what, "%s: must be a list of tables", what) end
  for _, name in ipairs(names(exp, rule, what)) do
    if not allowed[name] then
      complain(exp, what, "%s: a rule has no field '%s'%s", what, name,
        suggest.hint(name, sorted_keys(allowed)))
    end
    local kind = type(rule[name])
    if kind ~= allowed[name] and not (name == "where" and kind == "function") then
      complain(exp, what, "%s: %s must be a %s", what, name, allowed[name])
    end
  end
  if not rule.where then complain(exp, what, "%s: a rule needs where = {key = value}", what) end
  if type(rule.where) == "table" then check_known(exp, what .. ": where", rule.where) end
end

local function rules(exp, what, allowed)
  local list = exp[what] or {}
  if not config.is_list(list) then
    complain(exp, what, "%s: must be a list of rules {where=...} and nothing else", what)
  end
  local checked = {}
  for i, rule in ipairs(list) do
    local own = type(rule) == "table" and overlay(rule) or rule
    for part, value in pairs(type(own) == "table" and own or {}) do
      if type(value) == "table" then own[part] = exp:flat(value) end
    end
    check_rule(exp, what, own, allowed)
    checked[i] = own
  end
  return checked
end

local function check_when(exp)
  exp.when = rules(exp, "when", { where = "table", fixed = "table", grid = "table" })
  for _, rule in ipairs(exp.when) do
    if not rule.fixed and not rule.grid then
      complain(exp, "when", "when: a rule must set something: fixed = {...} or grid = {...}")
    end
    for key in pairs(rule.fixed or {}) do
      if (rule.grid or {})[key] ~= nil then
        complain(exp, key, "when: a rule sets %s twice, in fixed and in grid", tostring(key))
      end
    end
    for _, part in ipairs { "fixed", "grid" } do
      check_known(exp, "when: " .. part, rule[part] or {})
      for _, key in ipairs(sorted_keys(rule[part] or {})) do
        exp:check_value(key, rule[part][key])
        if part == "grid" and not is_list(rule.grid[key]) then
          complain(exp, key, "when: grid: %s must be a list of at least one value", key)
        end
      end
    end
  end
end

local function check_except(exp)
  exp.except = rules(exp, "except", { where = "table", reason = "string" })
  for _, rule in ipairs(exp.except) do
    if not rule.reason or rule.reason == "" then
      complain(exp, "except", "except: each exception needs a reason = \"...\"")
    end
  end
end

-- Returns the set of the types of a key's possible values.
local function types(exp, key)
  local set = {}
  local function add(value)
    if value ~= nil then set[type(value)] = true end
    for _, item in ipairs(type(value) == "table" and value or {}) do set[type(item)] = true end
  end
  add(exp.fixed[key])
  for _, value in ipairs(rows.values(exp, key)) do add(value) end
  add(exp:axes()[key])
  for _, values in pairs(exp.scale) do add(values[key]) end
  for _, rule in ipairs(exp.when) do
    add((rule.fixed or {})[key])
    add((rule.grid or {})[key])
  end
  return set
end

-- Raises if a `where` compares a key with a table that is not a list, or with a value of a type
-- that the key never has.
local function check_where(exp, what)
  for _, rule in ipairs(exp[what]) do
    local where = type(rule.where) == "table" and rule.where or {}
    for _, key in ipairs(sorted_keys(where)) do
      if type(where[key]) == "table" and not is_list(where[key]) then
        complain(exp, what, "%s: where: %s must be a value or a list of at least one value", what,
          key)
      end
      local may = types(exp, key)
      for _, value in ipairs(type(where[key]) == "table" and where[key] or { where[key] }) do
        if not may[type(value)] then
          complain(exp, what, "%s: where: %s is never a %s", what, key, type(value))
        end
      end
    end
  end
end

-- ---- Supervision -------------------------------------------------------------------------------

local function check_watch(exp, name)
  if not exp[name] then return end
  if name == "prune" and exp.prune.rule == "median" and exp.prune.eta ~= nil then
    complain(exp, name, "prune: eta requires rule = \"asha\"; median judges at doubling steps")
  end
  local ok, resolved = pcall(options.check, name, watch[name], exp[name])
  if not ok then complain(exp, name, "%s", errors.text(resolved)) end
  exp[name] = resolved
end

local function check_budget(exp)
  if not exp.budget then return end
  local b = exp.budget
  for _, key in ipairs { "trial", "total", "memory" } do
    local reader = key == "memory" and quantity.bytes or quantity.seconds
    if b[key] and not reader(b[key]) then
      complain(exp, "budget", "budget: %s must be like %s, not '%s'", key, key == "memory"
        and '"6G" or "512M"' or '"90s", "30m" or "4h"', tostring(b[key]))
    end
    b[key] = b[key] and reader(b[key])
  end
end

-- Raises if a rule of when names the tuned key: the points would depend on it.
local function check_tuned_rules(exp, key)
  for _, rule in ipairs(exp.when) do
    local where = type(rule.where) == "table" and rule.where or {}
    for _, part in ipairs { where, rule.fixed or {}, rule.grid or {} } do
      if part[key] ~= nil then
        complain(exp, "tune", "tune: %s is chosen for every point, so no rule of when may name it",
          key)
      end
    end
  end
end

-- Raises unless tune names fixed keys, several values of the tuned key, and scales.
local function check_tune(exp)
  local tune = exp.tune
  if not tune then return end
  local function check_fixed(key)
    if exp.fixed[key] == nil then
      complain(exp, "tune", "tune: '%s' is not a key of fixed%s", tostring(key),
        suggest.hint(tostring(key), sorted_keys(exp.fixed)))
    end
  end
  check_fixed(tune.key)
  if #rows.values(exp, tune.key) > 0 then
    complain(exp, "tune", "tune: %s is chosen for every point, so no row may set it", tune.key)
  end
  tune.fixed = exp:flat(tune.fixed)
  check_tuned_rules(exp, tune.key)
  for key, value in pairs(tune.fixed) do
    check_fixed(key)
    if key == tune.key then complain(exp, "tune", "tune: fixed sets the tuned key %s", key) end
    exp:check_value(key, value)
  end
  if not is_list(tune.values) or #tune.values < 2 then
    complain(exp, "tune", "tune: values must be a list of at least two values of %s", tune.key)
  end
  exp:check_value(tune.key, tune.values)
  for i, value in ipairs(tune.values) do
    if type(value) ~= type(tune.values[1]) then
      complain(exp, "tune", "tune: values has a %s and a %s: all values of %s must have one type",
        type(tune.values[1]), type(value), tune.key)
    end
    for k = 1, i - 1 do
      if tune.values[k] == value then
        complain(exp, "tune", "tune: values contains %s twice", tostring(value))
      end
    end
  end
  if not config.is_list(tune.without) then
    complain(exp, "tune", "tune: without must be a list of scales")
  end
  for _, name in ipairs(tune.without) do
    local ok, why = suggest.choose("scale", name, sorted_keys(exp.scale))
    if not ok then complain(exp, "tune", "tune: without: %s", why) end
  end
end

-- ---- Answers ----------------------------------------------------------------------------------

local function check_answers(exp)
  if type(exp.answers) == "string" then exp.answers = { exp.answers } end
  if exp.answers and not is_list(exp.answers) then
    complain(exp, "answers", "answers: must be the id of a published table, or a list of ids")
  end
  local ids = exp.answers and published_tables.ids()
  for _, id in ipairs(exp.answers or {}) do
    local ok, why = suggest.choose("published table", id, ids)
    if not ok then complain(exp, "answers", "answers: %s", why) end
  end
end

-- ---- Directions -------------------------------------------------------------------------------

-- Declares that lower or higher values of a metric are better; what: the source, for messages.
local function declare_better(exp, metric, better, what)
  local other = exp.better[metric]
  if other and other ~= better then
    complain(exp, "better", "%s says that %s values of %s are better, and another declaration says "
      .. "%s", what, better, metric, other)
  end
  exp.better[metric] = better
end

-- Sets exp.better to all declared directions (base/direction.lua), and from these the goals of
-- prune, tune and a guard with zscore. Raises if the direction of one of their metrics is unknown.
local function check_better(exp)
  local given = exp.better or {}
  exp.better = {}
  for _, metric in ipairs(names(exp, given, "better")) do
    local ok, why = suggest.choose("direction", given[metric], { "lower", "higher" })
    if not ok then complain(exp, metric, "better: %s: %s", metric, why) end
    exp.better[metric] = given[metric]
  end
  for _, id in ipairs(exp.answers or {}) do
    for _, column in ipairs(published_tables.read(id).columns) do
      for _, metric in ipairs(column.better and column.metrics or {}) do
        declare_better(exp, metric, column.better, id)
      end
    end
  end
  local decides = { prune = exp.prune, tune = exp.tune,
    guard = exp.guard and exp.guard.zscore and exp.guard }
  for name, spec in pairs(decides) do
    if spec.goal then
      declare_better(exp, spec.metric, spec.goal == "max" and "higher" or "lower", name)
    end
  end
  for name, spec in pairs(decides) do
    local better = direction.needed(exp.better, spec.metric, exp:where(name) .. ": " .. name)
    spec.goal = better == "higher" and "max" or "min"
  end
end

-- declared.axes checks zip and random, and sets zips (a list), random, draws and draw_seed of exp.
-- declared.rules, which needs these and the scales, checks and normalises when and except (lists),
-- guard, prune, budget, tune, compare and checkpoint (nil, or complete; in seconds and bytes),
-- answers (nil or a list), and better (a table). Both raise usage errors.
function declared.axes(exp)
  check_zips(exp)
  check_random(exp)
end

function declared.rules(exp)
  check_when(exp)
  check_except(exp)
  check_where(exp, "when")
  check_where(exp, "except")
  for _, name in ipairs { "guard", "prune", "budget", "tune", "compare", "success",
    "checkpoint" } do
    check_watch(exp, name)
  end
  if exp.success and (exp.success.above ~= nil) == (exp.success.below ~= nil) then
    complain(exp, "success", "success requires either above or below, like { metric = "
      .. "\"test_accuracy\", above = 0.8 }")
  end
  sequential.check(exp)
  check_tune(exp)
  if exp.guard then
    exp.guard.every = exp.guard.every or exp.checkpoint.steps or exp.guard.window
  end
  check_budget(exp)
  check_answers(exp)
  check_better(exp)
end

return declared
