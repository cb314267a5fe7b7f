-- trials/plan.lua: lists the trials of an experiment under the overrides of a command line, before
-- anything runs.
local config = require "toeplab.base.config"
local devices = require "toeplab.trials.devices"
local json = require "toeplab.base.json"
local overlay = require "toeplab.base.overlay"
local overrides = require "toeplab.trials.overrides"
local rows = require "toeplab.trials.rows"
local space = require "toeplab.trials.space"
local secrets = require "toeplab.base.secrets"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"

-- checks: trial functions of the library -> a function that raises if their keys make no sense.
local plan = { checks = setmetatable({}, { __mode = "k" }) }

local MANY = 1000 -- trials whose checks and ids take noticeable time

local function rounded(v, digits) return tonumber(("%%.%dg"):format(digits):format(v)) end

-- Returns the number of digits, at least 4, that distinguishes the numbers of each key in the
-- points: key -> digits.
local function digits_of(points)
  local values, digits = {}, {}
  for _, point in ipairs(points) do
    for key, v in pairs(point) do
      if math.type(v) == "float" then
        values[key] = values[key] or {}
        values[key][v] = true
      end
    end
  end
  for key, set in pairs(values) do
    local n, distinct = 3, false
    while not distinct and n < 17 do
      local seen = {}
      n, distinct = n + 1, true
      for v in pairs(set) do
        local short = rounded(v, n)
        distinct, seen[short] = distinct and not seen[short], true
      end
    end
    digits[key] = n
  end
  return digits
end

local function label(point, seed, many, digits)
  local parts = {}
  for i, key in ipairs(sorted_keys(point)) do
    local v = point[key]
    if math.type(v) == "float" then v = rounded(v, digits[key]) end
    parts[i] = secrets.word(key .. "=" .. (type(v) == "number" and config.text or config.show)(v))
  end
  if many or #parts == 0 then parts[#parts + 1] = "seed=" .. seed end
  return table.concat(parts, " ")
end

-- Returns the values of the tuned key (trials/tuning.lua) at a point; { false } without one.
local function tuned_values(exp, values, point)
  return exp.tuned and exp.tuned.values_at(space.resolved(values, point)) or { false }
end

-- Returns the number of seeds of a point. With seeds = "until 2 %" this is the number that is
-- needed so far (runs/rounds.lua), at first that of the first look.
local function seed_count(exp, values, point)
  if not values.rule then return #values.seeds end
  return math.min(#values.seeds, exp.asked and exp.asked(point) or values.rule.looks[1])
end

-- Returns the keys of rows, sorted, without those in the set `varied`.
local function row_keys(values, varied)
  local keys = rows.keys(values.rows)
  for key in pairs(varied) do keys[key] = nil end
  return sorted_keys(keys)
end

-- Lists the trials of exp under the overrides in words ("key=value", "scale=NAME", "seeds=N",
-- "seed=N"). Their order depends only on the declaration and, with seeds = "until 2 %", on the
-- results so far. Each trial is {config=, point=, at= (the point without the tuned key), seed=,
-- label=}. The second result describes the plan: axes (the names of the varying keys), row_keys
-- (the keys that named rows set), left_out (the excluded points: {point=, reason=, label=}), seeds
-- (all that may be run), values (the argument of space.points) and counts (its third result).
-- Raises usage errors. tell (or nil): is called with the number of trials, as text, before they are
-- checked, if they are many.
function plan.trials(exp, words, tell)
  local values = overrides.apply(exp, words)
  local points, left_out, counts = space.points(values)
  space.check_count(#points * #values.seeds)
  local trials, varied, all = {}, {}, {}
  for _, point in ipairs(points) do
    for key in pairs(point) do varied[key] = true end
    if exp.tuned then varied[exp.tune.key] = true end
    for _, value in ipairs(tuned_values(exp, values, point)) do
      local here = exp.tuned and overlay(point, { [exp.tune.key] = value }) or point
      for i = 1, seed_count(exp, values, point) do
        local resolved = overlay(space.resolved(values, point), { seed = values.seeds[i] })
        if exp.tuned then resolved[exp.tune.key] = value end
        rows.check_names(exp, resolved)
        trials[#trials + 1] = { config = resolved, point = here, at = point,
          seed = values.seeds[i] }
        all[#all + 1] = here
      end
    end
  end
  for _, out in ipairs(left_out) do all[#all + 1] = out.point end
  if tell and #trials >= MANY then tell(("%d trials are planned"):format(#trials)) end
  local digits = digits_of(all)
  for _, t in ipairs(trials) do t.label = label(t.point, t.seed, #values.seeds > 1, digits) end
  for _, out in ipairs(left_out) do out.label = label(out.point, nil, false, digits) end
  plan.check(exp, trials)
  return trials, { axes = sorted_keys(varied), row_keys = row_keys(values, varied),
    left_out = left_out, seeds = values.seeds,
    values = values, counts = counts }
end

-- Explains why two trials are equal, if the declaration shows it.
local function twice(exp)
  if next(exp.random) then return ", drawn by random: draw fewer, or from more values" end
  local axes = exp:axes()
  for _, rule in ipairs(exp.when) do
    for _, key in ipairs(sorted_keys(rule.fixed or {})) do
      if axes[key] then
        return (": a rule of when fixes the axis %s; where its other values make no sense, leave "
          .. "them out by except"):format(key)
      end
    end
  end
  return ""
end

-- Raises if the experiment's own check, or that of its trial function, rejects a trial.
local function check_keys(exp, trial)
  for _, check in ipairs { exp.check or false, plan.checks[exp.trial] or false } do
    local ok, why = true, nil
    if check then ok, why = pcall(check, config.new(trial.config)) end
    if not ok then
      why = errors.text(why)
      local key = check ~= exp.check and why:match "option '([%w_]+)'" or "check"
      local place = why:find(exp.file, 1, true) and "" or exp:where(key) .. ": "
      errors.usage("%s%s (trial %s)", place, why, trial.label)
    end
  end
end

-- Replaces the floats in a value by equal integers.
local function integral(v)
  if type(v) ~= "table" then return math.type(v) == "float" and math.tointeger(v) or v end
  local list = {}
  for i, item in ipairs(v) do list[i] = integral(item) end
  return list
end

-- Returns a string that is equal for two trials if filters cannot distinguish them: 1 equals 1.0.
local function selected_by(trial)
  local values
  for key, v in pairs(trial.point) do
    local same = integral(v)
    if config.text(same) ~= config.text(v) then
      values = values or config.copy(trial.config)
      values[key] = same
    end
  end
  return values and json.encode(config.result_keys(values)) or trial.json
end

-- Raises if two trials are equal, if a device is invalid or lacks the trial's precision, or if the
-- experiment's own check, or that of its trial function, rejects a trial. Sets the field json of
-- each trial, its configuration as JSON.
function plan.check(exp, trials)
  local seen = {}
  for _, trial in ipairs(trials) do
    trial.json = json.encode(config.result_keys(trial.config))
    local text = selected_by(trial)
    if seen[text] then
      errors.usage("%s: %s appears twice among the trials%s", exp.file, trial.label, twice(exp))
    end
    seen[text] = true
    local wrong = devices.wrong(trial.config.device)
    if wrong then errors.usage("%s: %s", exp:where("device"), wrong) end
    wrong = devices.lacks(trial.config.device, trial.config.precision)
    if wrong then errors.usage("%s: %s", exp:where("precision"), wrong) end
    for _, key in ipairs { "ranks", "sequence_ranks", "micro_batches" } do
      local n = trial.config[key]
      local other = key == "ranks" and type(n) == "table" -- of the experiment, with another meaning
      if not other and (math.type(n) ~= "integer" or n < 1) then
        errors.usage("%s: %s must be an integer of at least 1, not %s", exp:where(key), key,
          type(n) == "table" and "a list" or tostring(n))
      end
    end
    check_keys(exp, trial)
  end
end

return plan
