-- report/verdicts/seed_looks.lua: sequential looks at rows whose seeds are added until their
-- ratio to another row is known (trials/sequential.lua): which rows are compared, where each stops,
-- and the report on it.
local labels = require "toeplab.report.labels"
local json = require "toeplab.base.json"
local judgement = require "toeplab.report.verdicts.judgement"
local sequential = require "toeplab.trials.sequential"
local space = require "toeplab.trials.space"
local sorted_keys = require "toeplab.base.sorted_keys"
local versions = require "toeplab.report.versions"

local seed_looks = {}

local function label_of(point) return labels.none:parts(point, sorted_keys(point)) end

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  return json.encode(a) == json.encode(b)
end

-- Returns the keys whose values differ among the points.
local function keys_that_differ(points, ignored)
  local set = {}
  for _, point in ipairs(points) do
    for key, value in pairs(point) do
      if key ~= ignored and not same(value, points[1][key]) then set[key] = true end
    end
  end
  return sorted_keys(set)
end

-- Returns the comparisons, {row=, base= (points)} for each of the points (tables key -> value) that
-- does not match the table `with`; nil and the reason if there is nothing to compare. ignored: a
-- key that follows from the point, such as a tuned one; nil: none.
function seed_looks.comparisons(points, with, ignored)
  local bases, others, list, name = {}, {}, {}, label_of(with)
  for _, point in ipairs(points) do
    table.insert(space.fits(with, point) and bases or others, point)
  end
  if #bases == 0 then
    local there = {}
    for i, point in ipairs(others) do there[i] = i <= 6 and label_of(point) or "..." end
    return nil, ("no row has %s (there are: %s)"):format(name,
      table.concat(there, "; ", 1, math.min(#there, 7)))
  elseif #others == 0 then
    return nil, ("every row has %s, so there is nothing to compare"):format(name)
  end
  local keys = keys_that_differ(bases, ignored)
  for _, point in ipairs(others) do
    local found, count = nil, 0
    for _, base in ipairs(bases) do
      local fits = true
      for _, key in ipairs(keys) do fits = fits and same(base[key], point[key]) end
      if fits then found, count = base, count + 1 end
    end
    if count ~= 1 then
      return nil, ("%s has %d rows with %s to be compared with, and needs one"):format(
        label_of(point), count, name)
    end
    list[#list + 1] = { row = point, base = found }
  end
  return list
end

-- ---- Looks ------------------------------------------------------------------------------------

-- Follows a comparison from look to look, up to that at which it stops or lacks results.
local function follow(rule, c, value_of)
  local state, asked = { row = c.row, base = c.base }, math.log(1 + rule.percent / 100)
  for k, n in ipairs(rule.looks) do
    local ended, lost, row, base = true, nil, {}, {}
    state.asked = n
    for seed = 1, n do
      local x, why = value_of(c.row, seed, n)
      local y, other = value_of(c.base, seed, n)
      ended, lost = ended and (x or why) and (y or other), lost or why or other
      row[seed], base[seed] = x, y
    end
    if not ended or lost then
      state.stopped = ended and lost or nil
      return state
    end
    local pair = judgement.pair(base, row, true)
    judgement.estimate(pair, rule.alpha[k])
    state.look, state.seeds, state.percent = k, n, 100 * (math.exp(pair.half) - 1)
    -- Equal seeds do not prove that others are equal: never claim an interval narrower than
    -- requested.
    pair.low = math.min(pair.low, pair.mean - asked)
    pair.high = math.max(pair.high, pair.mean + asked)
    state.ratio, state.low, state.high = judgement.range(pair)
    if state.percent <= rule.percent then
      state.stopped = ("known to %g %%"):format(rule.percent)
      return state
    end
  end
  state.stopped = ("at the most seeds, known to %.2g %%"):format(state.percent)
  return state
end

-- Judges the comparisons by the results so far. value_of(point, seed, n) returns the value of a
-- trial, above 0, as it counts at the look after n seeds; or nil and why its trial will have none;
-- or nil if that is not known yet. Returns a list of states: {row=, base=, asked= (how many seeds
-- it requires), stopped= (why it requires no more, nil: it waits for results), and of the last
-- look, nil before the first: look= (its number), seeds=, ratio=, low=, high=, percent= (half of
-- the interval, as a factor)}. The result does not depend on the order in which trials end.
function seed_looks.judge(rule, comparisons, value_of)
  local list = {}
  for i, c in ipairs(comparisons) do list[i] = follow(rule, c, value_of) end
  return list
end

-- Returns the value of a trial for looks.judge from its status and its metric.
function seed_looks.value(status, value, label, metric)
  if status ~= "done" then return nil, ("%s %s"):format(label, status) end
  value = value or 0 / 0
  if value - value ~= 0 or value <= 0 then
    return nil, ("%s has %s = %s, and a ratio needs a number above 0"):format(label, metric, value)
  end
  return value
end

-- Returns the function value_of of looks.judge for trials that have ended. entries_of(point)
-- returns a list with a table seed -> {status=, value=, result=, label=} for each value of a tuned
-- key that the point was run with. Of several, the one with better results up to the look counts
-- (versions.best); until all of these have ended, no value is known.
function seed_looks.reader(entries_of, goal, metric)
  local function chosen(list, n)
    local results = {}
    for i, of_value in ipairs(#list > 1 and list or {}) do
      results[i] = {}
      for seed = 1, n do
        local t = of_value[seed]
        if not t then return nil end
        results[i][seed] = versions.result(t.status, t.result) or false
      end
    end
    return list[#list > 1 and versions.best(results, goal) or 1]
  end
  local known = {}
  return function(point, seed, n)
    known[point] = known[point] or {}
    known[point][n] = known[point][n] or chosen(entries_of(point), n)
    local t = known[point][n] and known[point][n][seed]
    if not t then return nil end
    return seed_looks.value(t.status, t.value, t.label, metric)
  end
end

-- ---- Words ------------------------------------------------------------------------------------

-- Returns lines about the states: the rule with its correction, and where and why each row stopped.
-- waiting: why rows that have not stopped wait; nil: their trials are not finished.
function seed_looks.words(rule, states, metric, waiting)
  local looked = table.concat(rule.looks, ", ", 1, #rule.looks - 1)
  local lines = { ("seeds %s: each row is looked at after %s%s%d seeds, and stops if the interval "
    .. "of its ratio is within a factor of %g. The intervals (Student's t on the logarithms, "
    .. "paired by seed) are at least that wide and corrected for the %d looks: they share 5 %%, an "
    .. "equal part for each seed, and so cover with 95 %% at least, wherever a row stops, if the "
    .. "seeds are near normal. Those of the means in a table are not corrected"):format(rule.text,
    looked, #rule.looks > 1 and " and " or "",
    rule.most, 1 + rule.percent / 100, #rule.looks) }
  for _, s in ipairs(states) do
    local result = s.look and ("ratio %.4f [%.4f, %.4f], %d seeds, look %d of %d"):format(s.ratio,
      s.low, s.high, s.seeds, s.look, #rule.looks) or "no look yet"
    lines[#lines + 1] = ("%s over %s, %s: %s; %s"):format(label_of(s.row), label_of(s.base), metric,
      result, s.stopped and "stopped: " .. s.stopped or waiting or "not finished")
  end
  return lines
end

-- Returns the lines of looks.words for the newest sweep of a frame; none if its seeds were a fixed
-- number, or if filters left out the row that the others are compared with.
function seed_looks.of_frame(frame)
  local rule = frame.plan.rule and sequential.rule(frame.plan.rule, true)
  local key = frame.plan.tuned_key
  if not rule or not frame.plan.with then return {} end
  local asked, points, entries, metric = {}, {}, {}, frame.plan.metric
  for _, row in ipairs(frame.store:rows("SELECT trial FROM v_members WHERE sweep = ?",
    { frame.sweeps[1].id })) do
    asked[row.trial] = true
  end
  for _, t in ipairs(frame:trials({ metric, frame.plan.tuned_metric }, { [key or ""] = true })) do
    local text, value = versions.setting(t.point.at, key), json.encode { t.point.at[key or ""] }
    local here = entries[text] or { at = t.point.at }
    entries[text], here.place = here, here.place or {}
    if not here.place[value] then
      here[#here + 1], here.place[value] = {}, #here + 1
    end
    local ended = t.status ~= "queued" and t.status ~= "running"
    here[here.place[value]][t.seed] = ended and { status = t.status, value = t.values[1],
      result = t.values[2], label = ("%s seed=%d"):format(label_of(here.at), t.seed) } or nil
    if asked[t.id] and not here.asked then here.asked, points[#points + 1] = true, here.at end
  end
  local list = seed_looks.comparisons(points, frame.plan.with, key)
  local value_of = seed_looks.reader(function(point)
    return entries[versions.setting(point, key)]
  end, frame.plan.tuned_goal, metric)
  return list and seed_looks.words(rule, seed_looks.judge(rule, list, value_of), metric) or {}
end

return seed_looks
