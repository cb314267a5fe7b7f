-- trials/tuning.lua: narrows the values of a key for each point of an experiment by a small sweep
-- before the experiment, with the same values for all points, at a seed that the experiment does
-- not use.
--
--   tune = { key = "lr", values = { 1e-3, 3e-3, 1e-2 }, metric = "best_val_ppl", seed = 101,
--            fixed = { steps = 1000 }, within = 0.03 }
--
-- tries each learning rate at each point for 1,000 steps (or the number that the command line
-- sets). The rates whose best_val_ppl is within 3 % (the default) of the best then run with all
-- seeds of the experiment, and tables and comparisons take the rate whose best_val_ppl has the
-- better mean over these seeds (report/choice.lua). One seed of a short training must not choose
-- alone: two equal models that get different rates by chance would then differ significantly in
-- half of all experiments, instead of 5 %. A schedule that ends, such as cosine, makes short
-- trainings rank rates like long ones. A key that the command line sets is not tuned, nor is any
-- key in the scales that `without` lists. The trials of the small sweep belong to an experiment
-- named NAME-tuning.
local config = require "toeplab.base.config"
local errors = require "toeplab.base.errors"
local identity = require "toeplab.trials.identity"
local json = require "toeplab.base.json"
local overrides = require "toeplab.trials.overrides"
local plan = require "toeplab.trials.plan"
local rows = require "toeplab.trials.rows"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local tuning = {}

local SUFFIX = "-tuning"

-- Returns the name of the experiment that has a small sweep of this name, or the name itself.
function tuning.main_name(name)
  return name:sub(-#SUFFIX) == SUFFIX and name:sub(1, -#SUFFIX - 1) or name
end

-- Returns whether the key is to be tuned under the words of a command line.
local function wanted(tune, words)
  for _, word in ipairs(words) do
    local key, text = word:match "^([^=]+)=(.*)$"
    if key == tune.key then return false end
    for _, name in ipairs(key == "scale" and tune.without or {}) do
      if name == text then return false end
    end
  end
  return true
end

-- Returns the words without seeds=, seed= and compare=.
local function without_seeds(words)
  local list = {}
  for _, word in ipairs(words) do
    if not word:find "^seeds?=" and not word:find "^compare=" then list[#list + 1] = word end
  end
  return list
end

-- Returns the words of a stored trial, with settings of the key that exp tunes and, for a trial of
-- the small sweep (by `experiment`, its name), of the keys that this fixes. values: the trial's
-- configuration. Returns the words unchanged if nothing is tuned and the number of seeds is fixed.
function tuning.words_of(exp, words, experiment, values)
  local tune = exp.tune and wanted(exp.tune, words) and exp.tune
  if not tune and not overrides.apply(exp, words).rule then return words end
  local keys, list = { seed = true }, {}
  if tune then keys[tune.key] = true end
  local small = tune and experiment == exp.name .. SUFFIX
  for key in pairs(small and tune.fixed or {}) do keys[key] = true end
  for _, word in ipairs(without_seeds(words)) do
    if not keys[word:match "^[^=]*"] then list[#list + 1] = word end
  end
  for _, key in ipairs(sorted_keys(keys)) do
    list[#list + 1] = ("%s=%s"):format(key, config.text(values[key]))
  end
  return list
end

-- Returns rules of `when` without the keys of a set, which the small sweep sets itself.
local function rules_without(rules, set)
  local list = {}
  for i, rule in ipairs(rules) do
    local fixed, grid = config.copy(rule.fixed or {}), config.copy(rule.grid or {})
    for key in pairs(set) do fixed[key], grid[key] = nil, nil end
    list[i] = { where = rule.where, fixed = fixed, grid = grid }
  end
  return list
end

-- Raises if the words, or a scale among them, give the experiment the seed of the small sweep.
local function check_seeds(exp, words)
  for _, seed in ipairs(overrides.apply(exp, words).seeds) do
    if seed == exp.tune.seed then
      errors.usage("%s: seed %d is used to choose the %s, so the trials cannot use it: take other "
        .. "seeds, or give %s=VALUE", exp:where("tune"), seed, exp.tune.key, exp.tune.key)
    end
  end
end

-- Returns the experiment that tries the values of the key for each point of exp, and its words; nil
-- if exp tunes no key, or the words set it.
function tuning.search(exp, words)
  local tune = exp.tune
  if not tune or not wanted(tune, words) then return nil end
  check_seeds(exp, words)
  local search = {}
  for name, value in pairs(exp) do search[name] = value end
  search.name, search.tune, search.answers, search.prune = exp.name .. SUFFIX, nil, nil, nil
  search.base = exp.name -- of which a trial of the small sweep may be one, with the key given
  search.searches = tune
  search.fixed, search.grid = config.copy(exp.fixed), config.copy(exp.grid)
  search.rows = config.copy(exp.rows)
  search.fixed[tune.key], search.grid[tune.key] = nil, tune.values
  search.scale, search.scale_seeds = config.copy(exp.scale), {}
  for _, values in pairs(search.scale) do values[tune.key] = nil end
  for key, value in pairs(tune.fixed) do
    search.fixed[key] = value
    rows.replace(search.rows, key, nil)
    for _, values in pairs(search.scale) do values[key] = nil end
  end
  search.when = rules_without(exp.when, tune.fixed)
  search.seeds = { tune.seed }
  search.report = { columns = { tune.metric } }
  setmetatable(search, getmetatable(exp))
  local keys = {}
  for key in pairs(search:axes()) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    if (a == tune.key) ~= (b == tune.key) then return b == tune.key end
    return a < b
  end)
  search.report.rows = keys
  return search, without_seeds(words)
end

-- Returns the JSON of a configuration without the keys that the small sweep changes.
local function point_of(values, tune)
  local rest = config.copy(values)
  rest[tune.key], rest.seed = nil, nil
  for key in pairs(tune.fixed) do rest[key] = nil end
  return json.encode(rest)
end

-- Raises unless the small sweep has every value at each point of the experiment. tried: point ->
-- number of its values.
local function check_points(exp, words, search, tried)
  for _, t in ipairs(plan.trials(exp, words)) do
    if (tried[point_of(t.config, exp.tune)] or 0) < #exp.tune.values then
      errors.usage("%s: %s lacks trials like %s of %s: rules of when and except must not depend on "
        .. "%s, nor on a key of tune's fixed", exp:where("tune"), search.name, t.label, exp.name,
        exp.tune.key)
    end
  end
end

-- Returns the smallest and the largest of the values; nil unless all are numbers.
local function ends(values)
  for _, value in ipairs(values) do
    if type(value) ~= "number" then return nil end
  end
  return math.min(table.unpack(values)), math.max(table.unpack(values))
end

-- Returns the values of a point to run, whose results are within a share `within` of the best, and
-- the best one; none if the list is empty. list: the point's trials {value=, result=}.
function tuning.candidates(tune, list)
  local sign, best, values = tune.goal == "max" and -1 or 1, nil, {}
  for _, t in ipairs(list) do
    if not best or sign * t.result < sign * best.result then best = t end
  end
  for _, t in ipairs(list) do
    if math.abs(t.result - best.result) <= tune.within * math.abs(best.result) then
      values[#values + 1] = t.value
    end
  end
  return values, best and best.value
end

-- Returns a note for tables on how the key was chosen; nil if it was not tuned.
function tuning.describe(exp)
  if not exp.tuned then return nil end
  local tune, with = exp.tune, {}
  for i, key in ipairs(sorted_keys(tune.fixed)) do
    with[i] = (" %s=%s"):format(key, config.show(exp.tuned.with[key]))
  end
  return ("%s of each row: of %s, those within %.3g %% of the best %s at seed %d (%s%s) were run, "
    .. "and that with the better mean %s over all seeds counts%s"):format(tune.key,
    config.show(tune.values), 100 * tune.within, tune.metric, tune.seed, exp.name .. SUFFIX,
    table.concat(with), tune.metric, #exp.tuned.at_end > 0
      and ("; at seed %d the lowest or highest of these was best for %s"):format(tune.seed,
        table.concat(exp.tuned.at_end, ", ")) or "")
end

local function is_finite(results)
  for _, value in pairs(results) do
    if value - value ~= 0 then return false end
  end
  return true
end

-- Returns a message if no finished trial of a small sweep logs its metric; nil if one does, or if
-- too few trials are finished to tell. One trial tells unless it diverged or the code may log the
-- metric under a condition; otherwise, as many as there are values. list: the results of each,
-- name -> value.
function tuning.no_metric(search, list)
  local metric, names = search.searches.metric, {}
  local tells = #list >= #search.searches.values
  for _, results in ipairs(list) do
    if results[metric] ~= nil then return nil end
    tells = tells or is_finite(results) and not search:sets(metric)
    for name in pairs(results) do names[name] = true end
  end
  if not tells then return nil end
  local logged = sorted_keys(names)
  return ("%s: the trials of %s log no '%s', but %s%s"):format(search:where("tune"), search.name,
    metric, logged[1] and table.concat(logged, ", ") or "nothing", suggest.near(metric, logged))
end

-- Raises the error that no value of the key gave a finite result at the point of trial t.
local function no_result(exp, t)
  local tune = exp.tune
  errors.raise(errors.FAILED, "%s: no %s of %s gave a finite '%s' at points like %s: give "
    .. "%s=VALUE, declare other values, or remove this row", exp:where("tune"), tune.key,
    config.show(tune.values), tune.metric, t.label, tune.key)
end

-- Reads the results of the small sweep from the store and sets exp.tuned, from which
-- plan.trials(exp, ...) takes the values of each point: {values_at= (a function configuration ->
-- list of values), at_end= (the points whose best value is the lowest or highest), with= (the
-- values in the small sweep of the keys of tune's fixed, which the words may have set)}. Rejects
-- the value of a trial that a guard stopped. Returns the number of unfinished trials of the small
-- sweep; if there are any, does not change exp. Raises if no trial of a point has the metric.
function tuning.choose(exp, words, store)
  local search, own_words = tuning.search(exp, words)
  if not search then return 0 end
  local tune, found, tried, missing, logged = exp.tune, {}, {}, 0, {}
  local trials = plan.trials(search, own_words)
  identity.identify(search, trials, store)
  for _, t in ipairs(trials) do
    local point = point_of(t.config, tune)
    tried[point], found[point] = (tried[point] or 0) + 1, found[point] or { label_of = {} }
    local status = store and store:status(t.id)
    if status == "done" then logged[#logged + 1] = store:results(t.id) end
    local result = status == "done" and logged[#logged][tune.metric]
    if result and result - result == 0 then
      local value = t.config[tune.key]
      table.insert(found[point], { value = value, result = result })
      found[point].label_of[value] = t.label
    end
    if status ~= "done" and status ~= "guard" then missing = missing + 1 end
  end
  check_points(exp, words, search, tried)
  local why = tuning.no_metric(search, logged)
  if why then errors.raise(errors.FAILED, "%s", why) end
  if missing > 0 then return missing end
  local low, high = ends(tune.values)
  local values_at, at_end, with = {}, {}, {}
  for _, t in ipairs(trials) do
    local point, best = point_of(t.config, tune), nil
    if not values_at[point] then
      values_at[point], best = tuning.candidates(tune, found[point])
      if best == nil then no_result(exp, t) end
    end
    if best ~= nil and (best == low or best == high) then
      at_end[#at_end + 1] = found[point].label_of[best]
    end
  end
  table.sort(at_end)
  for key in pairs(tune.fixed) do with[key] = trials[1].config[key] end
  exp.tuned = { at_end = at_end, with = with, values_at = function(values)
    return values_at[point_of(values, tune)]
  end }
  return 0
end

return tuning
