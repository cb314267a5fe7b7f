-- runs/array_task.lua: runs trials as one task of an array job. It claims trials (claimed.lua) and
-- has the coordinator run them as in any run, except that nothing is written to the store.
local claimed = require "toeplab.runs.claimed"
local claims = require "toeplab.store.claims"
local coordinator = require "toeplab.runs.coordinator"
local core = require "toeplab.core"
local devices = require "toeplab.trials.devices"
local errors = require "toeplab.base.errors"
local experiment = require "toeplab.trials.experiment"
local progress = require "toeplab.base.progress"
local provenance = require "toeplab.trials.provenance"
local slurm_plan = require "toeplab.runs.slurm_plan"
local slurm_queue = require "toeplab.runs.slurm_queue"
local trial_files = require "toeplab.store.trial_files"
local wire = require "toeplab.base.wire"
local worker = require "toeplab.runs.worker"

local array_task = {}

-- How long after SIGUSR1 a worker is killed; the signal comes LEAD_SECONDS (slurm_options.lua)
-- before the time of the task ends.
local GRACE_SECONDS = 60

-- ---- Claims ------------------------------------------------------------------------------------

-- Whether the claim is one of an earlier start of this very task, which has died.
local function is_own(self, t, attempt)
  local by = claims.read(self.folder, claims.short(t.id), attempt)
  return by ~= nil and by.job == self.job and by.task == self.number
    and by.restarts < self.restarts
end

-- Returns the next attempt at trial t that may be claimed; nil if the trial has ended or is held.
-- one: its claims (of claims.list), nil if there are none. own: take only a trial that an earlier
-- start of this task held; otherwise take only others.
local function next_attempt(self, t, one, own)
  if t.taken then return nil end
  if not one then return not own and t.attempt + 1 or nil end
  local status = one.ends[one.attempt]
  if status == "done" or status == "failed" and one.attempt > t.attempt then return nil end
  if not status then
    return own and is_own(self, t, one.attempt) and one.attempt + 1 or nil
  end
  return not own and math.max(one.attempt, t.attempt) + 1 or nil
end

-- Raises if the submission was removed: another command has then taken this task for dead and
-- removed the claims, so that trials that are done look like new ones.
local function check_submission(self)
  if claims.is_there(self.plan) then return end
  errors.raise(errors.LOCKED, "%s was removed, because job %s was not in Slurm's queue: this task "
    .. "takes no further trial", self.plan, self.job)
end

-- Returns a trial that this task has claimed: first of those that an earlier start of it held,
-- then from its own place in the plan on, so that tasks rarely meet. nil if none is left.
local function claim_next(self)
  if self.left == 0 then return nil end
  check_submission(self)
  local list, count = claims.list(self.folder), #self.trials
  for _, own in ipairs { true, false } do
    for i = 0, count - 1 do
      local t = self.trials[(self.number - 1 + i) % count + 1]
      local attempt = next_attempt(self, t, list[claims.short(t.id)], own)
      if attempt and self.records:claim(t, attempt) then
        check_submission(self) -- the list of claims may be of a moment after its removal
        self.left = self.left - 1
        return t
      end
    end
  end
  self.left = 0
end

-- ---- The task ----------------------------------------------------------------------------------

local function environment(name, default)
  local value = os.getenv(name) or default
  if value and value ~= "" then return value end
  errors.usage("worker: --array is for tasks of array jobs, which toeplab run --on slurm submits "
    .. "(%s is not set)", name)
end

local function integer(name, default)
  local text = environment(name, default)
  return math.tointeger(tonumber(text))
    or errors.usage("worker: %s is '%s', which is not a number of Slurm's", name, text)
end

-- Raises if a trial of the plan would be run by other code than it was submitted with.
local function check_code(self)
  local hashes = {}
  for _, t in ipairs(self.trials) do
    local device = t.config.device
    hashes[device] = hashes[device] or provenance.code_hash(device)
    self.records:check_code(t.id, hashes[device])
  end
end

local function load_trials(self, plan)
  for i, t in ipairs(plan.trials) do
    t.config, t.data = wire.unpack(t.config), wire.unpack(t.data)
    t.path, t.code_hash = trial_files.folder(self.folder, t.id), t.code
    self.trials[i], t.provenance = t, self.provenance
  end
end

local function new_task(path)
  local folder = path:match "^(.*)/slurm/%d+/plan$"
  if not folder then errors.usage("worker: --array takes the plan of a submission") end
  local plan = slurm_plan.read(path)
  local o = plan.options
  local exp = experiment.load(o.script)
  if worker.check(exp) ~= o.check then
    errors.raise(errors.FAILED, "%s or code that it loads has changed since the sweep was "
      .. "submitted: submit again", o.script)
  end
  local self = { folder = folder, plan = path, trials = {}, job = environment "SLURM_ARRAY_JOB_ID",
    number = integer "SLURM_ARRAY_TASK_ID", restarts = integer("SLURM_RESTART_COUNT", "0"),
    left = o.trials }
  self.provenance = provenance.collect({}, exp)
  self.provenance.command = o.command
  self.provenance.job = self.job .. "_" .. self.number
  self.provenance.threads = math.max(1, core.threads() // o.jobs)
  load_trials(self, plan)
  self.records = claimed.new(folder, self.trials,
    { job = self.job, task = self.number, restarts = self.restarts })
  check_code(self)
  return self, plan, exp
end

-- Returns the run that the coordinator gets.
local function new_run(self, plan, exp)
  local o = plan.options
  local run = { exp = exp, trials = self.trials, axes = plan.axes, folder = self.folder,
    records = self.records, jobs = o.jobs, timeout = o.timeout, used = 0.0,
    turns = devices.turns(o.share), progress = progress.new { every = 60 },
    grace = GRACE_SECONDS, claim = function() return claim_next(self) end,
    checkpoint = { steps = o.checkpoint_steps, seconds = o.checkpoint_seconds } }
  run.worker = worker.words(run, o.script, self.provenance.threads)
  run.progress:expect(#self.trials, run.jobs)
  return run
end

-- Puts this task back into the queue after a signal. The task is named JOB_TASK: the SLURM_JOB_ID
-- of one task is that of the array, by which scontrol would requeue all its tasks.
local function requeue(self)
  local name = self.job .. "_" .. self.number
  if not self.records.moved then
    errors.say("job %s is not requeued: its time was too short for one checkpoint", name)
  else
    slurm_queue.requeue(name)
  end
end

-- Runs trials of the plan at path until the task has run its share or none is left. Returns the
-- exit code.
function array_task.main(path)
  core.sys.catch_signals()
  local self, plan, exp = new_task(path)
  devices.check(exp, self.trials)
  local run, failed = new_run(self, plan, exp), 0
  local ok, why = pcall(function()
    local counts = coordinator.new(run):go {}
    failed = counts.failed
  end)
  if not ok and errors.is(why) and errors.signal() then requeue(self) end
  if not ok then error(why, 0) end
  return failed > 0 and errors.FAILED or errors.DONE
end

return array_task
