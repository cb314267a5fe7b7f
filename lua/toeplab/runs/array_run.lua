-- runs/array_run.lua: runs the trials of an experiment by an array job of Slurm (slurm.lua), whose
-- tasks are array_task.lua. The command that submits may return at once; every later one copies
-- what the tasks have written into the store.
local claims = require "toeplab.store.claims"
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local earlier = require "toeplab.trials.earlier"
local errors = require "toeplab.base.errors"
local launch = require "toeplab.runs.launch"
local outcome = require "toeplab.runs.outcome"
local prepared = require "toeplab.runs.prepared"
local records = require "toeplab.store.records"
local secrets = require "toeplab.base.secrets"
local shell = require "toeplab.base.shell"
local slurm = require "toeplab.runs.slurm"
local slurm_plan = require "toeplab.runs.slurm_plan"
local slurm_queue = require "toeplab.runs.slurm_queue"
local trash = require "toeplab.store.trash"
local trial_files = require "toeplab.store.trial_files"

local array_run = {}

local SUBMIT_SECONDS = 600 -- for another command to submit
local PAUSE_SECONDS = 2                     -- between two looks at the queue
local CANCEL_SECONDS = 40                   -- for cancelled tasks to leave the queue

-- Returns whether a submission has one of the trials in the set ids.
local function has_any(submission, ids)
  for _, t in ipairs(slurm_plan.read(submission.folder .. "/plan").trials) do
    if ids[t.id] then return true end
  end
  return false
end

-- Returns the first open submission that has trials of list; nil if there is none.
local function job_of(state, list)
  local ids = {}
  for _, t in ipairs(list) do ids[t.id] = true end
  for _, s in ipairs(state.open) do
    if has_any(s, ids) then return s end
  end
end

-- Raises if array jobs run or will run trials of list.
function array_run.check_jobs(state, list)
  local s = job_of(state, list)
  if not s then return end
  if state.silent then
    errors.raise(errors.LOCKED, "job %s of Slurm may run trials of this sweep: %s", s.job or "?",
      state.silent)
  end
  errors.raise(errors.LOCKED, "job %s of Slurm runs trials of this sweep: wait for it, or toeplab "
    .. "status --cancel ends it", s.job)
end

-- Locks the submissions in folder until the returned file is closed, so that two commands do not
-- submit the same trials.
local function lock(folder)
  trial_files.make(folder, "slurm")
  local file = errors.stored(io.open(folder .. "/slurm/lock", "a"))
  local since = core.sys.clock()
  while not core.sys.lock(file) do
    if core.sys.clock() - since > SUBMIT_SECONDS then
      errors.raise(errors.LOCKED, "%s: another command submits trials", folder)
    end
    core.sys.sleep(0.1)
    errors.check_signals()
  end
  return file
end

-- Raises if the experiment needs one coordinator of all its trials, or several processes for one.
local function check_apart(exp, trials)
  local what = exp.prune and "prune" or exp.budget and exp.budget.total and "budget.total"
  if what then
    errors.usage("%s: %s compares all trials while they run, which tasks of an array job do not; "
      .. "run it without --on slurm, or take it out", exp:where(what:match "^%a+"), what)
  end
  for _, t in ipairs(trials) do
    local ranks = launch.check_keys(t)
    if ranks > 1 then
      errors.usage("run: --on slurm runs each trial by one process, and ranks = %d: submit mpirun "
        .. "or srun by a script of your own (docs/ranks.md)", ranks)
    end
  end
end

-- Says why no trial is to be submitted, of which so many are not done.
local function say_nothing(run, left)
  run.progress:note("nothing to submit: %s", left == 0 and "all trials are done"
    or left == 1 and "1 trial is left to the tasks in the queue"
    or left .. " trials are left to the tasks in the queue")
end

-- Raises if nothing can be submitted to array jobs of that state (of slurm.refresh) now.
local function check_state(run, state, options)
  if state.silent then errors.raise(errors.FAILED, "%s", state.silent) end
  if options.redo and state.open[1] then
    errors.raise(errors.LOCKED, "--redo: job %s of Slurm uses %s", state.open[1].job, run.folder)
  end
end

-- With --redo, deletes what other code made of the trials, once it is known that Slurm takes the
-- job which makes them again.
local function handle_other_code(run, state, options)
  if options.redo then
    local list = prepared.undone(run, options.shard)
    local again = prepared.other_code(run, options.shard)
    table.move(again, 1, #again, #list + 1, list)
    local left = slurm.missing(run.folder, state, list)
    local tasks = slurm.tasks(options.on, #left)
    slurm.check(left, tasks)
    if tasks > 0 then slurm.rehearse(run, options.on, tasks) end
  end
  prepared.handle_other_code(run, options)
end

-- Whether the store says that a trial has failed, be it by an error, its guard or a limit.
local function has_failed(run, t)
  local row = run.records:outcome(t.id)
  return row ~= nil and row.status == "failed"
end

-- Returns the trials that this command still has to see to: those that are not done. Once it has
-- waited, these are only those that it left to tasks which were in the queue before, and which
-- ended without taking them: what it submitted itself, or what failed, is for the next command.
local function to_see_to(run, options)
  local list = {}
  for _, t in ipairs(prepared.undone(run, options.shard)) do
    local over = run.waited and (run.submitted[t.id] or has_failed(run, t))
    if not over then list[#list + 1] = t end
  end
  return list
end

-- Raises if a run at work on this machine has begun trials of the run.
local function check_busy(run)
  for _, t in ipairs(run.trials) do
    local _, row = run.records:status(t.id)
    if row and row.busy and not row.job then
      errors.raise(errors.LOCKED, "%s: process %s on %s runs trial %s: wait for it, or stop it",
        run.folder, row.pid, row.host, t.id:sub(1, 12))
    end
  end
end

-- Submits the trials that are not done and not left to tasks in the queue. Returns how many are
-- not done.
local function hand_out(run, path, overrides, options)
  local o = options.on
  local file = lock(run.folder)
  local guard <close> = defer(function()
    if run.records then run.records:close() end
    file:close()
  end)
  run.records = records.open(run.folder, "w")
  local state = prepared.replay(run)
  if not run.waited then prepared.look_up(run, options) end
  if run.waited and #to_see_to(run, options) == 0 then return 0 end
  check_state(run, state, options)
  check_busy(run)
  handle_other_code(run, state, options)
  local list = to_see_to(run, options)
  if not run.waited then run.had = #run.trials - #list end
  local left = slurm.missing(run.folder, state, list)
  local tasks = slurm.tasks(o, #left)
  local function enlist()
    local undo = trash.undo(run.records, run.trials)
    prepared.enlist(run, path, overrides, options, math.max(1, o.cpus // run.jobs))
    return undo
  end
  if tasks == 0 then
    enlist()
    if #list > 0 then say_nothing(run, #list) end
    return #list
  end
  local job = slurm.submit(run, left, o, tasks, path, enlist)
  run.progress:note("%d of %d trials: job %s, %d task%s  (%s)", #left, #run.trials, job, tasks,
    tasks == 1 and "" or "s", run.folder)
  for _, t in ipairs(left) do run.submitted[t.id] = true end
  return #list
end

-- Waits until no job in the queue has trials of the run that are not done.
local function wait_for_jobs(run)
  local said, open
  core.sys.catch_signals()
  repeat
    core.sys.sleep(PAUSE_SECONDS)
    local name, code = errors.signal()
    if name then
      errors.raise(code, "no longer waiting (SIG%s): the job goes on", name)
    end
    run.records = records.open(run.folder, "w")
    local guard <close> = run.records
    local state = prepared.replay(run)
    local left, over = prepared.undone(run)
    open = job_of(state, left) ~= nil
    local text = state.silent or ("%d of %d trials done"):format(over, over + #left)
    if text ~= said then run.progress:note("%s", text) end
    said = text
  until not open
  core.sys.release_signals()
end

-- Runs the trials by an array job. Returns what perform does; without options.wait only the trials
-- that are done already are done.
function array_run.perform(run, path, overrides, options)
  local began = core.sys.clock()
  check_apart(run.exp, run.trials)
  run.command, run.scale = shell.line(secrets.words(options.command)), prepared.scale_of(overrides)
  run.submitted = {}
  local left = hand_out(run, path, overrides, options)
  if left > 0 and not options.wait then return errors.DONE, run.trials end
  while left > 0 do
    wait_for_jobs(run)
    run.waited, options.redo = true, nil
    left = hand_out(run, path, overrides, options)
  end
  run.records = records.open(run.folder, "r")
  local guard <close> = run.records
  local list, finished = prepared.undone(run)
  local counts = { done = finished - run.had, failed = 0, pruned = 0, skipped = run.had }
  for _, t in ipairs(list) do
    if has_failed(run, t) then counts.failed = counts.failed + 1 end
  end
  outcome.conclude(run, counts, began, options)
  if #list == counts.failed then return #list > 0 and errors.FAILED or errors.DONE, run.trials end
  local undone = #list - counts.failed
  errors.raise(errors.FAILED, "%d trial%s not done; the same command submits %s again", undone,
    undone == 1 and " is" or "s are", undone == 1 and "it" or "them")
end

-- Copies what tasks have written so far into the store in folder. Returns the state of the array
-- jobs (slurm.refresh); nil if nothing was copied, and the error if the store cannot be opened.
local function copy(folder, warn)
  local jobs = slurm.pending(folder)
  if not jobs and not claims.any(folder) then return nil end
  local ok, store = pcall(records.open, folder, "u")
  if not ok then
    local locked = errors.is(store) and store.code == errors.LOCKED
    if locked and jobs then
      errors.say("the results of array jobs are not up to date: %s", store.message)
    end
    return nil, locked and store or nil -- else the verb itself says why it cannot be opened
  end
  local guard <close> = store
  return slurm.refresh(store, warn)
end

-- Copies what tasks of array jobs have written so far into the store in folder, for the verbs that
-- read it. quiet: without a word.
function array_run.catch_up(folder, quiet)
  local state = copy(folder, quiet and function() end or errors.say)
  if state and state.silent and not quiet then errors.say("%s", state.silent) end
end

-- Prints the script that array_run.perform would submit.
function array_run.print_script(run, options)
  check_apart(run.exp, run.trials)
  local folder, list = run.folder, {}
  local state, locked = copy(folder, errors.say)
  if locked then error(locked, 0) end
  state = state or { open = {}, held = {} }
  check_state(run, state, options)
  local store <close> = prepared.stored(folder)
  if store then earlier.find(store, run.exp, run.trials) end
  for _, t in ipairs(run.trials) do
    local status, row = nil, nil
    if store then status, row = store:status(t.id) end
    local again = options.redo and prepared.by_other_code(run.exp, t, status, row)
    if again or not prepared.is_finished(run.exp, status) then list[#list + 1] = t end
  end
  local left = slurm.missing(folder, state, list)
  if #left == 0 then
    say_nothing(run, #list)
    return errors.DONE
  end
  slurm.check(left, slurm.tasks(options.on, #left))
  local name = folder .. "/" .. slurm_queue.next_name(folder)
  io.write(slurm.script(options.on, run.exp.name, folder, name, slurm.tasks(options.on, #left),
    slurm.words(options.on, name)))
  return errors.DONE
end

-- Cancels the jobs of an experiment (nil: of all) in folder, and waits for their checkpoints.
-- Returns the ids of the jobs.
function array_run.cancel(folder, experiment)
  local list, open, why = {}, slurm.open(folder)
  if not open then errors.raise(errors.FAILED, "%s", why) end
  for _, s in ipairs(open) do
    if not experiment or s.name == experiment then list[#list + 1] = s end
  end
  local ids, since = slurm_queue.cancel(list), core.sys.clock()
  local function left()
    for _, s in ipairs(slurm.open(folder) or list) do
      for _, id in ipairs(ids) do
        if s.job == id then return true end
      end
    end
  end
  while left() and core.sys.clock() - since < CANCEL_SECONDS do core.sys.sleep(0.5) end
  array_run.catch_up(folder, true)
  return ids
end

return array_run
