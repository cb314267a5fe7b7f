-- commands/status.lua: toeplab status: prints the progress of the sweeps in the results folder; it
-- works while they run.
local core = require "toeplab.core"
local estimate = require "toeplab.runs.estimate"
local json = require "toeplab.base.json"
local output = require "toeplab.report.output"
local progress = require "toeplab.base.progress"
local records = require "toeplab.store.records"
local sweeps = require "toeplab.store.sweeps"
local text_table = require "toeplab.report.text_table"
local errors = require "toeplab.base.errors"

local status = {
  example = "toeplab status\n  toeplab status quickstart --json",
  usage = "toeplab status [EXPERIMENT]",
  about = "Counts the trials of each experiment's last sweep by status, with the remaining\n"
    .. "time, and shows the progress of each running trial.",
  options = {
    { name = "json", help = "as JSON, one object a line" },
    output.dir,
  },
}

local function counts(store, sweep)
  local list, all = {}, 0
  for _, row in ipairs(store:rows([[SELECT t.status, count(*) AS count FROM v_members m
      JOIN v_trials t ON t.id = m.trial WHERE m.sweep = ? GROUP BY t.status]], { sweep.id })) do
    list[row.status], all = row.count, all + row.count
  end
  return list, all
end

-- Returns the running trials: the progress of each, and whether its process is alive.
local function running(store, sweep)
  local list = sweeps.running(store, sweep.id)
  for _, t in ipairs(list) do
    local here = t.host == core.sys.hostname() and core.sys.exists("/proc/self")
    t.alive = not here or core.sys.exists(("/proc/%d"):format(t.pid or 0))
  end
  return list
end

-- Returns the remaining seconds, estimated from finished trials of the experiment (estimate.lua)
-- and the pace of the running ones; nil if they are unknown.
local function left(store, sweep, list, workers)
  if workers == 0 then return nil end
  local model, times = estimate.new(store, sweep.experiment), {}
  for _, t in ipairs(list) do
    times[#times + 1] = model:left(store:config(t.config), t.step, core.sys.now() - t.started)
  end
  for _, row in ipairs(store:rows([[SELECT json_remove(t.config, '$.seed') AS config,
      count(*) AS trials, avg(coalesce(t.step, 0)) AS step FROM v_members m
      JOIN v_trials t ON t.id = m.trial
      WHERE m.sweep = ? AND t.status IN ('queued', 'interrupted') GROUP BY 1]], { sweep.id })) do
    local seconds = model:left(store:config(row.config), row.step)
    if not seconds then return nil end
    for _ = 1, row.trials do times[#times + 1] = seconds end
  end
  return #times > 0 and estimate.makespan(times, workers) or nil
end

local order = { "done", "running", "queued", "interrupted", "failed", "pruned", "timeout",
  "budget", "guard" }

-- Returns the state of a sweep: counts by status, the total, the running trials, and the remaining
-- seconds or nil.
local function state_of_sweep(store, sweep)
  local by_status, all = counts(store, sweep)
  local list, workers = running(store, sweep), 0
  for _, t in ipairs(list) do
    if t.alive then workers = workers + 1 end
  end
  return by_status, all, list, left(store, sweep, list, workers)
end

local function show(store, sweep)
  local by_status, all, list, seconds = state_of_sweep(store, sweep)
  local words, rows = {}, {}
  for _, name in ipairs(order) do
    if by_status[name] then words[#words + 1] = ("%d %s"):format(by_status[name], name) end
  end
  print(("%s  %s: %s%s"):format(sweep.experiment, output.count(all, "trial"),
    table.concat(words, ", "), seconds and "  eta " .. progress.duration(seconds) or ""))
  for i, t in ipairs(list) do
    local far = t.step and (t.steps and ("%d/%d"):format(t.step, t.steps) or tostring(t.step))
    rows[i] = { "  " .. t.id:sub(1, 12), t.label, far or "0", t.loss,
      t.alive and progress.duration(core.sys.now() - t.started) or "killed" }
  end
  if #rows > 0 then text_table.print({ "  id", "trial", "step", "loss", "for" }, rows) end
end

local function as_json(store, sweep)
  local by_status, all, list, seconds = state_of_sweep(store, sweep)
  local object = { experiment = sweep.experiment, sweep = sweep.id, trials = all, eta = seconds }
  for name, count in pairs(by_status) do object[name] = count end
  for i, t in ipairs(list) do
    local loss = t.loss and t.loss - t.loss == 0 and t.loss or nil
    list[i] = { id = t.id, trial = t.label, step = t.step, steps = t.steps, loss = loss,
      seconds = core.sys.now() - t.started, alive = t.alive }
  end
  object.at_work = #list > 0 and list or nil
  print(json.line(object))
end

function status.run(set, words)
  if #words > 1 then errors.usage("status: takes one experiment, got '%s' too", words[2]) end
  local store <close> = records.open(records.folder(set.dir), "r")
  local list = sweeps.last(store, words[1])
  if #list == 0 then
    errors.usage("%s holds no sweep%s", store.folder, words[1] and " of '" .. words[1] .. "'" or "")
  end
  for _, sweep in ipairs(list) do (set.json and as_json or show)(store, sweep) end
end

return status
