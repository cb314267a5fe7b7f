-- runs/array_run.lua: runs the trials of an experiment by an array job of Slurm (slurm.lua), whose
-- tasks are array_task.lua. The command that submits may return at once.
local core = require "toeplab.core"
local earlier = require "toeplab.trials.earlier"
local errors = require "toeplab.base.errors"
local launch = require "toeplab.runs.launch"
local outcome = require "toeplab.runs.outcome"
local prepared = require "toeplab.runs.prepared"
local quantity = require "toeplab.base.quantity"
local records = require "toeplab.store.records"
local secrets = require "toeplab.base.secrets"
local slurm = require "toeplab.runs.slurm"
local slurm_queue = require "toeplab.runs.slurm_queue"
local trash = require "toeplab.store.trash"
local trial_files = require "toeplab.store.trial_files"

local array_run = {}

local PAUSE_SECONDS = 2   -- between two looks at the queue
local CANCEL_SECONDS = 40 -- for cancelled tasks to leave the queue

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

-- Says why no trial is to be submitted, of which `left` are not done.
local function say_nothing(run, left)
  run.progress:note("nothing to submit: %s", left == 0 and "all trials are done"
    or quantity.count(left, "trial") .. " left to the tasks in the queue and to other runs")
end

-- Raises if nothing can be submitted while these submissions are open (of slurm.open).
local function check_open(run, open, silent, options)
  if silent then errors.raise(errors.FAILED, "%s", silent) end
  if options.redo and open[1] then
    errors.raise(errors.LOCKED, "--redo: job %s of Slurm uses %s", open[1].job, run.folder)
  end
end

-- Returns those of the trials that this command has to see to: those that are not done and, with
-- --redo, those that other code has made. Once it has waited, what failed is for the next command.
local function to_see_to(run, store, trials, options)
  local list = {}
  for _, t in ipairs(trials) do
    local status, row = store:status(t.id)
    local again = options.redo and prepared.by_other_code(run.exp, t, status, row)
    local over = prepared.is_finished(run.exp, status) and not again
      or run.waited and row and row.status == "failed"
    if not over then list[#list + 1] = t end
  end
  return list
end

-- Submits those of the trials that are not done and not left to tasks in the queue. Returns how
-- many are not done, and those of them that it has not submitted.
local function hand_out(run, path, overrides, options, trials)
  trial_files.make(run.folder, "slurm")
  local file <close> = slurm.lock(run.folder, true)
  run.records = records.open(run.folder, "w")
  local guard <close> = run.records
  prepared.replay(run)
  local open, silent = slurm.open(run.folder, run.records, file)
  if not run.waited then prepared.look_up(run, options) end
  local list = to_see_to(run, run.records, trials, options)
  if run.waited and #list == 0 then return 0 end
  check_open(run, open, silent, options)
  prepared.check_free(run, options)
  run.had = run.had or #run.trials - #list
  local left, others = slurm.left(run.records, open, list)
  local function enlist()
    prepared.handle_other_code(run, options)
    local undo = trash.undo(run.records, run.trials)
    local threads = math.max(1, options.on.cpus // run.jobs)
    local sweep = prepared.enlist(run, path, overrides, options, threads)
    return function() undo(sweep) end
  end
  if #left == 0 then
    enlist()
    if #list > 0 then say_nothing(run, #list) end
    return #list, others
  end
  local words = secrets.words(prepared.stored_words(options.command))
  local job = slurm.submit(run, path, options, left, words, enlist)
  run.progress:note("%d of %d trials: job %s, %s  (%s)", #left, #run.trials, job,
    quantity.count(slurm.tasks(options.on, #left), "task"), run.folder)
  return #list, others
end

-- Returns whether processes run trials of the run that are not done, or tasks in the queue may, and
-- how far the run is, in words.
local function look(run)
  run.records = records.open(run.folder, "r")
  local guard <close> = run.records
  local open, silent = slurm.open(run.folder, run.records)
  local list, over, busy = prepared.to_do(run)
  local queued, waits = slurm.queued(open or {}), #busy > 0
  for _, t in ipairs(list) do waits = waits or silent ~= nil or queued[t.id] ~= nil end
  return waits, silent or ("%d of %d trials done"):format(over, #run.trials)
end

-- Waits until no process runs trials of the run that are not done, and no task in the queue will.
local function wait_for_jobs(run)
  local waits, text, said
  core.sys.catch_signals()
  repeat
    core.sys.sleep(PAUSE_SECONDS)
    local name, code = errors.signal()
    if name then errors.raise(code, "no longer waiting (SIG%s): the job goes on", name) end
    waits, text = look(run)
    if text ~= said then run.progress:note("%s", text) end
    said = text
  until not waits
  core.sys.release_signals()
end

-- Runs the trials by an array job. Returns what perform does; without options.wait only the trials
-- that are done already are done.
function array_run.perform(run, path, overrides, options)
  local began = core.sys.clock()
  check_apart(run.exp, run.trials)
  local left, others = hand_out(run, path, overrides, options, run.trials)
  if left > 0 and not options.wait then return errors.DONE, run.trials end
  while left > 0 do -- tasks that were in the queue before may end without taking the others
    wait_for_jobs(run)
    run.waited, options.redo = true, nil
    left, others = hand_out(run, path, overrides, options, others)
  end
  run.records = records.open(run.folder, "r")
  local guard <close> = run.records
  local list, finished = prepared.undone(run)
  local counts = { done = finished - run.had, failed = 0, pruned = 0, skipped = run.had }
  for _, t in ipairs(list) do
    local _, row = run.records:status(t.id)
    counts.failed = counts.failed + (row and row.status == "failed" and 1 or 0)
  end
  outcome.conclude(run, counts, began, options)
  if #list > counts.failed then
    errors.raise(errors.FAILED, "%d of %d trials not done: the same command submits them again",
      #list - counts.failed, #run.trials)
  end
  return #list > 0 and errors.FAILED or errors.DONE, run.trials
end

-- Prints the script that array_run.perform would submit.
function array_run.print_script(run, path, options)
  check_apart(run.exp, run.trials)
  local store <close> = prepared.stored(run.folder)
  local open, silent = slurm.open(run.folder, store)
  check_open(run, open, silent, options)
  local list = run.trials
  if store then
    earlier.find(store, run.exp, run.trials)
    list = to_see_to(run, store, run.trials, options)
  end
  local left = store and slurm.left(store, open, list) or list
  if #left == 0 then
    say_nothing(run, #list)
  else
    io.write(slurm.script(run, path, options, slurm.tasks(options.on, #left),
      slurm_queue.next_number(run.folder)))
  end
  return errors.DONE
end

-- Returns the ids of the jobs of an experiment (nil: of all) in folder that are in the queue.
local function jobs_of(folder, experiment)
  local open, why = slurm_queue.open(folder)
  if not open then errors.raise(errors.FAILED, "%s", why) end
  local ids = {}
  for _, s in ipairs(open) do
    if not experiment or s.name == experiment then ids[#ids + 1] = s.job end
  end
  return ids
end

-- Cancels these jobs, and waits for the checkpoints of their trials. Returns the ids of the jobs.
function array_run.cancel(folder, experiment)
  local ids, since = jobs_of(folder, experiment), core.sys.clock()
  for _, id in ipairs(ids) do
    local ok, why = slurm_queue.ask { "scancel", id }
    if not ok then errors.raise(errors.FAILED, "job %s cannot be cancelled: %s", id, why) end
  end
  while #jobs_of(folder, experiment) > 0 and core.sys.clock() - since < CANCEL_SECONDS do
    core.sys.sleep(0.5)
  end
  return ids
end

return array_run
