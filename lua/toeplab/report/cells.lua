-- report/cells.lua: the cells of tables: counts of their trials by outcome, and the mean of the
-- finished ones.
--
-- A cell has asked, done, diverged (with inf or nan, or stopped by the guard), early, rescued,
-- failed, open, lacking (done without having logged the metric): numbers of trials, of which done
-- includes the diverged ones; trials (the trials themselves), of (the name of such a number -> its
-- trials), values, and interval (of stats.interval, over the values; nil if a trial diverged or
-- there are none). An empty cell has asked = 0 alone.
--
-- Where trials are of several settings, these are averaged for each seed first, and the mean and
-- its interval are taken over the seeds, so that a difference between settings does not widen the
-- interval. A seed that lacks a setting is left out, and the cell has the field partial.
local json = require "toeplab.base.json"
local sorted_keys = require "toeplab.base.sorted_keys"
local stats = require "toeplab.report.stats"

local cells = {}

local early = { pruned = true, timeout = true, budget = true }

-- Adds a trial to the counts of a cell; returns its value if it takes part in the mean.
local function count(c, t, v, rescued)
  local function add(name)
    c[name], c.of[name] = c[name] + 1, c.of[name] or {}
    table.insert(c.of[name], t)
  end
  if early[t.status] then
    add "early"
  elseif t.status == "guard" then
    add "done"
    add "diverged"
  elseif t.status == "failed" then
    add "failed"
  elseif t.status ~= "done" then
    add "open"
  elseif not v then
    add "lacking"
  else
    add "done"
    if rescued[t.id] then add "rescued" end
    if v - v == 0 then return v end
    add "diverged"
  end
end

-- Returns the cell of trials, for the index of a metric in their values. rescued: the set of the
-- ids of trials that the guard rolled back; times: a factor, or nil.
function cells.of(trials, metric, rescued, times)
  if #trials == 0 then return { asked = 0 } end
  local c = { asked = #trials, done = 0, diverged = 0, early = 0, rescued = 0, failed = 0, open = 0,
    lacking = 0, trials = trials, values = {}, of = {} }
  local points, settings, seeds, order = {}, 0, {}, {}
  for _, t in ipairs(trials) do
    if not points[t.point] then points[t.point], settings = true, settings + 1 end
    local v = count(c, t, t.values[metric], rescued)
    local s = seeds[t.seed]
    if v and not s then
      s = { sum = 0.0, n = 0 }
      seeds[t.seed], order[#order + 1] = s, t.seed
    end
    if v then s.sum, s.n = s.sum + v, s.n + 1 end
  end
  for _, seed in ipairs(order) do
    local s = seeds[seed]
    if s.n == settings then
      c.values[#c.values + 1] = s.sum / settings * (times or 1)
    else
      c.partial = true
    end
  end
  -- A mean over only the seeds that did not diverge would flatter.
  if c.diverged == 0 then c.interval = stats.interval(c.values) end
  return c
end

-- ---- Success ----------------------------------------------------------------------------------

-- Returns whether a value succeeds by an experiment's `success` (declared.lua); nan does not.
function cells.succeeds(rule, v)
  if rule.above then return v > rule.above end
  return v < rule.below
end

-- Returns what success is, in words: "above 0.8".
function cells.success_text(rule)
  return ("%s %.6g"):format(rule.above and "above" or "below", rule.above or rule.below)
end

-- Turns a cell into the share of its trials that succeed: rate = {k, n}, of the trials that are
-- done or diverged (a failure), with an interval of Clopper and Pearson.
function cells.as_rate(c, metric, rule)
  if c.asked == 0 or c.done == 0 then return end
  local k = 0
  for _, t in ipairs(c.of.done) do
    local v = t.values[metric]
    if t.status == "done" and v and cells.succeeds(rule, v) then k = k + 1 end
  end
  local low, high = stats.clopper_pearson(k, c.done)
  c.rate = { k, c.done }
  c.interval = { mean = k / c.done, low = low, high = high, n = c.done }
end

-- ---- Settings ---------------------------------------------------------------------------------

-- Returns the value of a key of a trial.
function cells.value(t, key)
  if key == "seed" then return t.seed end
  return t.point.values[key]
end

-- Returns a string that identifies a trial's values of the keys.
function cells.place(t, keys)
  local values = {}
  for i, key in ipairs(keys) do values[i] = { (cells.value(t, key)) } end
  return json.encode(values)
end

-- Returns a string of the settings that a cell averages over; nil without trials.
local function settings_of(c, keys)
  if c.asked == 0 then return nil end
  local set = {}
  for _, t in ipairs(c.trials) do set[cells.place(t, keys)] = true end
  return table.concat(sorted_keys(set), "\n")
end

-- Returns whether all cells of a list with trials average over the same settings of the keys.
function cells.alike(list, keys)
  local first
  for _, c in ipairs(list) do
    local own = settings_of(c, keys)
    if own and first and own ~= first then return false end
    first = first or own
  end
  return true
end

-- Blanks the cells that do not average over all settings of the keys that occur in the list;
-- returns whether there are any.
function cells.blank_incomplete(list, keys)
  local all, blanked = {}, false
  for _, c in ipairs(list) do table.move(c.trials or {}, 1, c.asked, #all + 1, all) end
  local wanted = settings_of({ asked = #all, trials = all }, keys)
  for i, c in ipairs(list) do
    if settings_of(c, keys) ~= wanted then list[i], blanked = { asked = 0 }, true end
  end
  return blanked
end

return cells
