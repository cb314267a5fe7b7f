-- live/sweep_progress.lua: the progress of a sweep: its trials by status, the running ones, and
-- the time left. It reads the store, also while a run writes to it.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local estimate = require "toeplab.runs.estimate"
local output = require "toeplab.report.output"
local alive = require "toeplab.store.alive"
local progress = require "toeplab.base.progress"
local suggest = require "toeplab.base.suggest"
local sweeps = require "toeplab.store.sweeps"

local sweep_progress = {}

-- Returns the error message for an unknown sweep `name` or, without a name, for a store without
-- sweeps.
function sweep_progress.none(store, name)
  local names = {}
  for i, row in ipairs(sweeps.last(store)) do names[i] = row.experiment end
  return ("%s holds no sweep%s"):format(store.folder,
    name and (" of '%s'%s"):format(name, suggest.hint(name, names)) or "")
end

-- Returns the row of the newest sweep of an experiment, of sweep NUMBER, or without a name of the
-- newest of all. verb: for the error message if there is none.
function sweep_progress.sweep(store, name, verb)
  local number = math.tointeger(tonumber(name))
  local last = not number and sweeps.last(store, name)[1]
  local sweep = sweeps.get(store, number or last and last.id or nil)
  if sweep then return sweep end
  errors.usage("%s: %s", verb, sweep_progress.none(store, name))
end

local function counts(store, sweep)
  local list, all = {}, 0
  for _, row in ipairs(store:rows([[SELECT t.status, count(*) AS count FROM v_members m
      JOIN v_trials t ON t.id = m.trial WHERE m.sweep = ? GROUP BY t.status]], { sweep.id })) do
    list[row.status], all = row.count, all + row.count
  end
  return list, all
end

-- Returns the trials that are marked as running: the progress of each, and whether its process is
-- alive.
local function running(store, sweep)
  local list = sweeps.running(store, sweep.id)
  for _, t in ipairs(list) do t.alive = alive.possibly(store.folder, t) end
  return list
end

-- Returns the seconds that a running trial has spent on its steps so far, over all attempts,
-- extrapolated from its last checkpoint. Before the first checkpoint, the seconds of this attempt.
local function spent_on_steps(t)
  if (t.saved or 0) > 0 and t.spent then return t.spent / t.saved * (t.step or 0) end
  return core.sys.now() - t.started
end

-- Returns the remaining seconds (estimate.lua); nil if they are unknown.
local function left(store, sweep, list, workers)
  if workers == 0 then return nil end
  local all = {}
  for i, t in ipairs(list) do
    all[i] = { config = store:config(t.config), step = t.step,
      spent = t.alive and spent_on_steps(t) or nil, had = t.alive and core.sys.now() - t.started }
  end
  for _, row in ipairs(store:rows([[SELECT json_remove(t.config, '$.seed') AS config,
      count(*) AS count, avg(coalesce(t.step, 0)) AS step, avg(t.seconds) AS spent FROM v_members m
      JOIN v_trials t ON t.id = m.trial
      WHERE m.sweep = ? AND t.status IN ('queued', 'interrupted') GROUP BY 1]], { sweep.id })) do
    row.config = store:config(row.config)
    all[#all + 1] = row
  end
  return estimate.new(store, sweep.experiment):remaining(all, workers)
end

local order = { "done", "running", "killed", "queued", "interrupted", "failed", "pruned", "timeout",
  "budget", "guard" }

-- Returns the state of a sweep: counts by status, the total, the trials that are marked as running,
-- and the remaining seconds or nil. A marked trial whose process has died counts as killed.
function sweep_progress.of(store, sweep)
  local by_status, all = counts(store, sweep)
  local list, workers = running(store, sweep), 0
  for _, t in ipairs(list) do
    if t.alive then workers = workers + 1 end
  end
  if #list > 0 then
    by_status.running, by_status.killed = workers > 0 and workers or nil,
      #list > workers and #list - workers or nil
  end
  return by_status, all, list, left(store, sweep, list, workers)
end

-- Returns the line about a sweep: "quickstart  3 trials: 2 done, 1 running  eta 9s".
function sweep_progress.line(sweep, by_status, all, seconds)
  local words = {}
  for _, name in ipairs(order) do
    if by_status[name] then words[#words + 1] = ("%d %s"):format(by_status[name], name) end
  end
  return ("%s  %s: %s%s"):format(sweep.experiment, output.count(all, "trial"),
    table.concat(words, ", "), seconds and "  eta " .. progress.duration(seconds) or "")
end

-- Returns the step of a running trial, of all its steps if they are known: "120/500".
function sweep_progress.far(t)
  return t.step and (t.steps and ("%d/%d"):format(t.step, t.steps) or tostring(t.step)) or "0"
end

return sweep_progress
