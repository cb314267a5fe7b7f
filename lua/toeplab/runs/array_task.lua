-- runs/array_task.lua: runs trials as one task of an array job (slurm.lua). A task is a run that
-- shares the results folder with the other tasks: it begins the trials of its submission that
-- nobody has, up to its share. When its time ends, it saves them and goes back into the queue.
local coordinator = require "toeplab.runs.coordinator"
local core = require "toeplab.core"
local devices = require "toeplab.trials.devices"
local errors = require "toeplab.base.errors"
local outcome = require "toeplab.runs.outcome"
local prepared = require "toeplab.runs.prepared"
local progress = require "toeplab.base.progress"
local provenance = require "toeplab.trials.provenance"
local records = require "toeplab.store.records"
local slurm = require "toeplab.runs.slurm"
local slurm_queue = require "toeplab.runs.slurm_queue"
local worker = require "toeplab.runs.worker"

local array_task = {}

-- How long after SIGUSR1 a worker is killed; the signal comes LEAD_SECONDS (slurm_options.lua)
-- before the time of the task ends.
local GRACE_SECONDS = 60
local PROGRESS_SECONDS = 60 -- between two lines of its log

-- ---- What the task is ---------------------------------------------------------------------------

local function integer(name)
  local text = os.getenv(name)
  if not text or text == "" then
    errors.usage("run: --array-task is for tasks of array jobs, which toeplab run --on slurm "
      .. "submits (%s is not set)", name)
  end
  return math.tointeger(tonumber(text))
    or errors.usage("run: %s is '%s', which is not a number of Slurm's", name, text)
end

-- Returns what this process is as a task of submission `number` in the results folder: that
-- submission (slurm_queue.submission), with task, its place among the tasks, and full, JOB_TASK.
function array_task.new(folder, number)
  local id, task = tostring(integer "SLURM_ARRAY_JOB_ID"), integer "SLURM_ARRAY_TASK_ID"
  local self = slurm_queue.submission(folder, number)
  if not self.name or self.job and self.job ~= id then
    errors.raise(errors.LOCKED, "%s/job does not describe job %s: the submission was removed "
      .. "because the job was not in Slurm's queue, or the file is damaged; submit again",
      self.folder, id)
  end
  self.task, self.full = task, id .. "_" .. task
  return self
end

-- Raises because the trials of the submission are not those of its script.
function array_task.refuse(path)
  errors.raise(errors.FAILED, "%s or code that it loads has changed since the sweep was submitted: "
    .. "submit again", path)
end

-- Raises if a trial would be run by other code than it was submitted with.
local function check_code(task)
  for device, wanted in pairs(type(task.codes) == "table" and task.codes or {}) do
    local here = provenance.code_hash(device)
    if here ~= wanted then
      errors.raise(errors.FAILED, "%s: toeplab here is another build (code %s) than the one that "
        .. "began the sweep (%s): install one build on all nodes, and give the sweep's command "
        .. "again", core.sys.hostname(), here:sub(1, 12), wanted:sub(1, 12))
    end
  end
end

-- ---- Its trials ---------------------------------------------------------------------------------

-- Returns the trials of the submission, id -> trial.
local function submitted(run, path, task)
  local all, set, list = {}, {}, {}
  for _, t in ipairs(run.trials) do all[t.id] = t end
  for i, t in ipairs(task.trials) do
    set[t.id] = all[t.id] or array_task.refuse(path)
    list[i] = set[t.id]
  end
  devices.check(run.exp, list)
  return set
end

-- Returns the function that gives the coordinator the next trial, and adds it to the list given. A
-- trial that another process begins before the coordinator does is none of the share of this task.
local function giver(run, task, trials, given)
  local order, had = slurm.order(task, task.task), {}
  return function()
    local count = 0
    for _, t in ipairs(given) do count = count + (t.passed and 0 or 1) end
    for _, s in ipairs(count < task.each and order or {}) do
      local row = not had[s.id] and slurm.free(run.records, s, task.full)
      if row then
        local t = trials[s.id]
        t.step, t.had, t.attempt, had[s.id] = row.step, row.seconds, row.attempt, true
        given[#given + 1] = t
        return t
      end
    end
  end
end

-- Returns whether any of the given trials has got further than it was.
local function has_moved(run, given)
  for _, t in ipairs(given) do
    local _, row = run.records:status(t.id)
    local ended = row and (row.status == "done" or row.status == "failed")
    if row and not t.passed and (ended or (row.step or 0) > (t.step or 0)) then return true end
  end
  return false
end

-- Puts this task back into the queue. The task is named JOB_TASK: the SLURM_JOB_ID of one task is
-- that of the array, by which scontrol would requeue all its tasks.
local function requeue(task, moved)
  if not moved then
    errors.say("job %s is not requeued: its time was too short for one checkpoint", task.full)
  else
    slurm_queue.requeue(task.full)
  end
end

-- Runs the trials. Returns whether that went well, the counts of the coordinator or an error, and
-- whether a trial has moved on.
local function go(run, path, task)
  run.records = records.open(run.folder, "w")
  local guard <close> = run.records
  local given = {}
  prepared.look_up(run, {})
  local trials = submitted(run, path, task)
  prepared.replay(run)
  local threads = math.max(1, core.threads() // run.jobs)
  prepared.set_provenance(run, task.command, threads).job = task.full
  run.worker = worker.words(run, path, threads)
  run.next_trial, run.grace = giver(run, task, trials, given), GRACE_SECONDS
  run.progress:expect(math.min(task.each, #task.trials), run.jobs)
  local ok, counts = pcall(function() return coordinator.new(run):go {} end)
  if ok then run.progress:say("%s", outcome.counts_text({ trials = given }, counts)) end
  return ok, counts, has_moved(run, given)
end

-- Runs trials of a run (prepared.new) of the script at path as the given task, until it has run its
-- share or none is left. Returns the exit code.
function array_task.perform(run, path, task)
  run.progress = progress.new { every = PROGRESS_SECONDS }
  check_code(task)
  local ok, counts, moved = go(run, path, task)
  if not ok and errors.is(counts) and errors.signal() then requeue(task, moved) end
  if not ok then error(counts, 0) end
  return counts.failed + counts.stopped > 0 and errors.FAILED or errors.DONE
end

return array_task
