-- runs/rounds.lua: decides from the results in the store which seeds of each row a run with seeds =
-- "until 2 %" runs next (trials/sequential.lua). It decides only when all trials of a round have
-- ended, so that neither the speed of workers nor an interruption changes the set of trials.
local errors = require "toeplab.base.errors"
local identity = require "toeplab.trials.identity"
local json = require "toeplab.base.json"
local seed_looks = require "toeplab.report.verdicts.seed_looks"
local overrides = require "toeplab.trials.overrides"
local plan = require "toeplab.trials.plan"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local rounds = {}

local open = { queued = true, running = true, interrupted = true, killed = true }

-- Returns all trials that may be run: point (as JSON) -> list of a table seed -> trial for each
-- value of a tuned key; and the points in order. store: may be nil.
local function all_trials(exp, words, store)
  exp.asked = function() return math.huge end
  local trials, about = plan.trials(exp, words)
  identity.identify(exp, trials, store)
  local found, points, last = {}, {}, nil
  for _, t in ipairs(trials) do
    local text = json.encode(t.at)
    if not found[text] then
      found[text], points[#points + 1] = {}, t.at
    end
    if t.point ~= last then table.insert(found[text], {}) end
    last, found[text][#found[text]][t.seed] = t.point, t
  end
  return found, points, about
end

-- Returns the function value_of of looks.judge. tried: the ids that this run has tried; trials that
-- failed in an earlier run are tried again.
local function reader(exp, found, metric, store, tried)
  local function entry(t)
    local status = store and store:status(t.id)
    if not status or open[status] or status ~= "done" and not tried[t.id] then return nil end
    local results = status == "done" and store:results(t.id) or {}
    if status == "done" and not results[metric] then
      errors.usage("%s: compare: %s logged no '%s'%s", exp:where("compare"), t.label, metric,
        suggest.hint(metric, sorted_keys(results)))
    end
    return { status = status, value = results[metric], label = t.label,
      result = exp.tuned and results[exp.tune.metric] }
  end
  return seed_looks.reader(function(point)
    local list = {}
    for i, trials in ipairs(found[json.encode(point)]) do
      list[i] = {}
      for seed, t in pairs(trials) do list[i][seed] = entry(t) end
    end
    return list
  end, exp.tune and exp.tune.goal, metric)
end

-- Returns the comparisons among the points (seed_looks.comparisons). Raises a usage error for a
-- missing row.
local function compared(exp, points, values)
  local list, why = seed_looks.comparisons(points, values.compared.with)
  return list or errors.usage("%s: compare: %s", exp:where("compare"), why)
end

-- Raises the error of `compared` before the small sweep of an experiment that tunes a key.
function rounds.check(exp, words)
  local values = overrides.apply(exp, words)
  if values.rule then compared(exp, select(2, all_trials(exp, words)), values) end
end

-- Makes plan.trials(exp, words) return the seeds of each point that are needed so far, by the
-- results in store (nil: none). tried: the set of ids that this run has tried. Returns {rule=,
-- metric=, with=, states= (of looks.judge), all= (the number of trials if every row needs all
-- seeds), limit= (a function point -> the greatest number of seeds it may reach)}; nil if the
-- number of seeds is fixed.
function rounds.choose(exp, words, store, tried)
  local values = overrides.apply(exp, words)
  if not values.rule then return nil end
  local found, points = all_trials(exp, words, store)
  local list = compared(exp, points, values)
  local metric = values.compared.metric
  local states = seed_looks.judge(values.rule, list, reader(exp, found, metric, store, tried or {}))
  local first, asked, limit = values.rule.looks[1], {}, {}
  for _, state in ipairs(states) do
    for _, point in ipairs { state.row, state.base } do
      local text = json.encode(point)
      asked[text] = math.max(asked[text] or first, state.asked)
      limit[text] = math.max(limit[text] or first, state.stopped and state.asked
        or values.rule.most)
    end
  end
  exp.asked = function(point) return asked[json.encode(point)] end
  local all = 0 -- points, each with all values of a tuned key
  for _, of_point in pairs(found) do all = all + #of_point end
  return { rule = values.rule, metric = metric, with = values.compared.with, states = states,
    all = all * values.rule.most,
    limit = function(point) return limit[json.encode(point)] end }
end

-- Returns the number of rows that have not stopped, and the largest number of seeds of one.
function rounds.going(chosen)
  local count, most = 0, 0
  for _, state in ipairs(chosen.states) do
    if not state.stopped then count, most = count + 1, math.max(most, state.asked) end
  end
  return count, most
end

-- Prints where and why rows stopped. chosen: the result of rounds.choose, or nil; waiting: why
-- other rows wait.
function rounds.show(chosen, waiting)
  if not chosen then return end
  print()
  for _, line in ipairs(seed_looks.words(chosen.rule, chosen.states, chosen.metric, waiting)) do
    print(line)
  end
end

return rounds
