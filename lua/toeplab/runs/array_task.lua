-- runs/array_task.lua: runs trials as one task of an array job (slurm.lua). A task is a run that
-- shares the results folder with the other tasks. It runs its own trials of the submission, except
-- those that another process has begun. When its time ends, it saves them and requeues itself.
local coordinator = require "toeplab.runs.coordinator"
local core = require "toeplab.core"
local devices = require "toeplab.trials.devices"
local errors = require "toeplab.base.errors"
local summary = require "toeplab.runs.summary"
local prepare = require "toeplab.runs.prepare"
local progress = require "toeplab.base.progress"
local records = require "toeplab.store.records"
local slurm = require "toeplab.runs.slurm"
local slurm_queue = require "toeplab.runs.slurm_queue"
local worker = require "toeplab.runs.worker"

local array_task = {}

-- From SIGUSR1 until a worker is killed. The signal comes LEAD_SECONDS (slurm_options.lua) before
-- the time of the task ends.
local GRACE_SECONDS = 60
local PROGRESS_SECONDS = 60 -- between two lines of its log

local function integer(name)
  return math.tointeger(tonumber(os.getenv(name)))
    or errors.usage("run: --array-task is only for array jobs that toeplab run --on slurm submits: "
      .. "%s is not a number", name)
end

-- Returns submission `number` of the results folder (slurm_queue.submission) with the fields of
-- this process: task (its number) and full (JOB_TASK).
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

-- Raises because the script no longer gives the trials of the submission.
function array_task.refuse(path)
  errors.raise(errors.FAILED, "%s or code that it loads has changed since the sweep was submitted; "
    .. "submit again", path)
end

-- Returns the trials that the task may begin now. Raises if they differ from the submitted ones, or
-- if other code would run them.
local function trials_of(task, run, path)
  local all, list = {}, {}
  for _, t in ipairs(run.trials) do all[t.id] = t end
  for _, s in ipairs(task.trials) do
    local t = s.task == task.task and (all[s.id] or array_task.refuse(path))
    if t and t.code_hash ~= s.code then
      errors.raise(errors.FAILED, "%s: this build of toeplab (code %.12s) differs from the one "
        .. "that began the sweep (%.12s): install the same build on all nodes, and run the sweep's "
        .. "command again", core.sys.hostname(), t.code_hash, tostring(s.code))
    end
    local row = t and slurm.free(run.records, s)
    if row then
      t.step, t.had, t.attempt = row.step, row.seconds, row.attempt
      list[#list + 1] = t
    end
  end
  return list
end

-- Returns whether a trial of list has made progress.
local function has_moved(run, list)
  for _, t in ipairs(list) do
    local _, row = run.records:status(t.id)
    local ended = t.status == "done" or t.status == "failed"
    if ended or t.status and row and (row.step or 0) > (t.step or 0) then return true end
  end
  return false
end

-- Runs the trials. Returns whether it succeeded, the counts of the coordinator or an error, and
-- whether a trial has made progress.
local function go(run, path, task)
  run.records = records.open(run.folder, "w")
  local guard <close> = run.records
  prepare.look_up(run, {})
  prepare.replay(run)
  local list = trials_of(task, run, path)
  devices.check(run.exp, list)
  local threads = math.max(1, core.threads() // run.jobs)
  prepare.set_provenance(run, task.command, threads).job = task.full
  run.worker, run.grace = worker.words(run, path, threads), GRACE_SECONDS
  run.progress:expect(#list, run.jobs)
  local ok, counts = pcall(function() return coordinator.new(run):go(list) end)
  if ok then run.progress:say("%s", summary.counts_text({ trials = list }, counts)) end
  return ok, counts, has_moved(run, list)
end

-- Runs trials of a run (prepared.new) of the script at path as the given task. Returns the exit
-- code. Requeues a task that a signal ends, under its name JOB_TASK: SLURM_JOB_ID may be the id of
-- the whole array, and scontrol would then requeue all tasks.
function array_task.perform(run, path, task)
  run.progress = progress.new { every = PROGRESS_SECONDS }
  local ok, counts, moved = go(run, path, task)
  if ok then return counts.failed + counts.stopped > 0 and errors.FAILED or errors.DONE end
  if errors.is(counts) and errors.signal() then
    if moved then
      slurm_queue.requeue(task.full)
    else
      errors.say("job %s is not requeued, because its time was too short for one checkpoint",
        task.full)
    end
  end
  error(counts, 0)
end

return array_task
