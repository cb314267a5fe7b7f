-- commands/status.lua: toeplab status: prints the progress of the sweeps in the results folder; it
-- works while they run.
local array_run = require "toeplab.runs.array_run"
local cards = require "toeplab.live.cards"
local marks = require "toeplab.store.marks"
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local output = require "toeplab.report.output"
local progress = require "toeplab.base.progress"
local records = require "toeplab.store.records"
local shell = require "toeplab.base.shell"
local slurm = require "toeplab.runs.slurm"
local sweep_progress = require "toeplab.live.sweep_progress"
local sweeps = require "toeplab.store.sweeps"
local text_table = require "toeplab.base.text_table"
local errors = require "toeplab.base.errors"

local status = {
  example = "toeplab status\n  toeplab status quickstart --json",
  usage = "toeplab status [EXPERIMENT]",
  about = "Counts the trials of each experiment's last sweep by status, with the remaining\n"
    .. "time, and shows the progress of each running trial, the use of their GPUs on this\n"
    .. "machine and the jobs of Slurm in the queue.\n"
    .. "--cancel first ends these jobs; their trials are saved, and toeplab run continues them.\n"
    .. "--stop asks the run to save and stop one trial while the others go on; the run's command\n"
    .. "continues that trial later.",
  words = { "stored" },
  options = {
    { name = "cancel", help = "cancel the jobs that toeplab run --on slurm has submitted" },
    { name = "stop", value = "TRIAL", of = "trials",
      help = "save and stop this running trial, then print the state",
      more = [[
        The run continues its other trials and ends with exit code 1; the same command continues
        the trial. A run that compares its trials with one another (`prune`), or that several
        ranks share, can only be stopped as a whole.]] },
    { name = "json", help = "as JSON, one object a line" },
    output.dir,
  },
}

-- Prints how far a sweep is.
function status.show(store, sweep)
  local by_status, all, list, seconds = sweep_progress.of(store, sweep)
  local rows = {}
  print(sweep_progress.line(sweep, by_status, all, seconds))
  for i, t in ipairs(list) do
    rows[i] = { "  " .. t.id:sub(1, 12), t.label, sweep_progress.far(t), t.loss,
      t.alive and progress.duration(core.sys.now() - t.started) or "killed",
      t.job and t.job .. " on " .. t.host }
  end
  local header = { "  id", "trial", "step", "loss", "for" }
  for _, row in ipairs(rows) do header[6] = row[6] and "job" or header[6] end
  if #rows > 0 then text_table.print(header, rows) end
  local earlier = by_status.done and 0 or sweeps.done_earlier(store, sweep)
  if earlier > 0 then
    print(shell.named("  of earlier commands: %d done (toeplab ls %s status=done)"):format(earlier,
      sweep.experiment))
  end
end

-- Counts the tasks of a submission (slurm.open) by state, each with the reason why it waits.
local function count_tasks(s)
  local counts, parts = {}, {}
  for _, task in ipairs(s.tasks) do
    local waits = task.state == "PENDING"
    local name = waits and ("waiting (%s)"):format(task.reason) or task.state:lower()
    if not counts[name] then parts[#parts + 1] = name end
    counts[name] = (counts[name] or 0) + 1
  end
  for i, name in ipairs(parts) do parts[i] = ("%d %s"):format(counts[name], name) end
  return table.concat(parts, ", ")
end

local function as_json(store, sweep, jobs)
  local by_status, all, list, seconds = sweep_progress.of(store, sweep)
  local object = { experiment = sweep.experiment, sweep = sweep.id, trials = all, eta = seconds }
  for name, count in pairs(by_status) do object[name] = count end
  for i, t in ipairs(list) do
    list[i] = { id = t.id, trial = t.label, step = t.step, steps = t.steps,
      loss = json.named(t.loss), seconds = core.sys.now() - t.started, alive = t.alive,
      job = t.job, host = t.host }
  end
  object.at_work = #list > 0 and list or nil
  local ids = {}
  for _, s in ipairs(jobs) do
    if s.name == sweep.experiment then ids[#ids + 1] = { job = s.job, tasks = #s.tasks } end
  end
  object.jobs = #ids > 0 and ids or nil
  print(json.line(object))
end

function status.run(set, words)
  if #words > 1 then errors.usage("status: takes one experiment, got '%s' too", words[2]) end
  local folder = records.folder(set.dir)
  if set.cancel then
    local ids = array_run.cancel(folder, words[1])
    errors.say(#ids > 0 and "cancelled: " .. table.concat(ids, ", ") or "no job is in the queue")
  end
  if set.stop then
    local store <close> = records.open(folder, "u")
    marks.stop(store, { words = { set.stop } })
    errors.say "1 trial asked to save and stop"
  end
  local store <close> = records.open(folder, "r")
  local open, silent = slurm.open(folder, not set.cancel and store or nil)
  if silent then errors.say("%s", silent) end
  local jobs = open or {}
  local list = sweeps.last(store, words[1])
  if #list == 0 then errors.usage("%s", sweep_progress.none(store, words[1])) end
  for _, sweep in ipairs(list) do (set.json and as_json or status.show)(store, sweep, jobs) end
  for _, line in ipairs(set.json and {} or cards.new():lines(store, 4)) do print(line) end
  for _, s in ipairs(set.json and {} or jobs) do
    if not words[1] or s.name == words[1] then
      print(("job %s of %s: %s"):format(s.job, s.name or "?", count_tasks(s)))
    end
  end
end

return status
