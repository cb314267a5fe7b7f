-- runs/array_run.lua: runs the trials of an experiment in an array job of Slurm (slurm.lua); its
-- tasks run array_task.lua. The submitting command may return at once.
local core = require "toeplab.core"
local other_ids = require "toeplab.trials.other_ids"
local errors = require "toeplab.base.errors"
local launch = require "toeplab.runs.launch"
local option_check = require "toeplab.runs.option_check"
local summary = require "toeplab.runs.summary"
local prepare = require "toeplab.runs.prepare"
local quantity = require "toeplab.base.quantity"
local records = require "toeplab.store.records"
local secrets = require "toeplab.base.secrets"
local slurm = require "toeplab.runs.slurm"
local slurm_queue = require "toeplab.runs.slurm_queue"
local trash = require "toeplab.store.trash"
local trial_files = require "toeplab.store.trial_files"
local worker = require "toeplab.runs.worker"

local array_run = {}

local PAUSE_SECONDS = 2   -- between two queries of the queue
local CANCEL_SECONDS = 40 -- for cancelled tasks to leave the queue

-- Raises if the experiment needs one coordinator for all trials, or several processes per trial.
local function check_apart(exp, trials)
  local what = exp.prune and "prune" or exp.budget and exp.budget.total and "budget.total"
  if what then
    errors.usage("%s: %s needs one process that compares all running trials, and an array job has "
      .. "none: run without --on slurm, or remove %s", exp:where(what:match "^%a+"), what, what)
  end
  for _, t in ipairs(trials) do
    local ranks = launch.check_keys(t)
    if ranks > 1 then
      errors.usage("run: --on slurm runs each trial in one process, but ranks = %d: submit your "
        .. "own script with mpirun or srun (docs/ranks.md)", ranks)
    end
  end
end

-- Prints why there is nothing to submit, although `left` trials are not done.
local function say_nothing(run, left)
  run.progress:note("nothing to submit: %s", left == 0 and "all trials are done"
    or quantity.count(left, "trial") .. " in the queue or in other runs")
end

-- Raises if nothing can be submitted while these submissions (of slurm.open) are open.
local function check_open(run, open, silent, options)
  if silent then errors.raise(errors.FAILED, "%s", silent) end
  if options.redo and open[1] then
    errors.raise(errors.LOCKED, "--redo: job %s of Slurm uses %s", open[1].job, run.folder)
  end
end

-- Returns the trials that this command has to run: unfinished ones and, with --redo, trials that
-- other code has made. After waiting, leaves failed trials to the next command.
local function unfinished(run, store, trials, options)
  local list = {}
  for _, t in ipairs(trials) do
    local status, row = store:status(t.id)
    local again = options.redo and prepare.by_other_code(run.exp, t, status, row)
    local over = prepare.is_finished(run.exp, status) and not again
      or run.waited and row and row.status == "failed"
    if not over then list[#list + 1] = t end
  end
  return list
end

-- Submits the unfinished trials that no task in the queue will run. Returns the number of
-- unfinished trials, and the list of those that it has not submitted.
local function submit(run, path, overrides, options, trials)
  trial_files.make(run.folder, "slurm")
  local file <close> = slurm.lock(run.folder, true)
  run.records = records.open(run.folder, "w")
  local guard <close> = run.records
  prepare.replay(run)
  local open, silent = slurm.open(run.folder, run.records, file)
  if not run.waited then prepare.look_up(run, options) end
  local list = unfinished(run, run.records, trials, options)
  if run.waited and #list == 0 then return 0 end
  check_open(run, open, silent, options)
  prepare.check_free(run, options)
  run.worker = worker.words(run, path, 1)
  if not run.waited then option_check.run(run) end
  run.had = run.had or #run.trials - #list
  local left, others = slurm.left(run.records, open, list)
  local function enlist()
    prepare.handle_other_code(run, options)
    local undo = trash.undo(run.records, run.trials)
    local threads = math.max(1, options.on.cpus // run.jobs)
    local sweep = prepare.enlist(run, path, overrides, options, threads)
    return function() undo(sweep) end
  end
  if #left == 0 then
    enlist()
    if #list > 0 then say_nothing(run, #list) end
    return #list, others
  end
  local words = secrets.words(prepare.stored_words(options.command))
  local job = slurm.submit(run, path, options, left, words, enlist)
  run.progress:note("%d of %d trials: job %s, %s  (%s)", #left, #run.trials, job,
    quantity.count(slurm.tasks(options.on, #left), "task"), run.folder)
  return #list, others
end

-- Returns whether a process runs an unfinished trial of the run, or a task in the queue may run
-- one; and a description of the progress.
local function poll(run)
  run.records = records.open(run.folder, "r")
  local guard <close> = run.records
  local open, silent = slurm.open(run.folder, run.records)
  local list, over, busy = prepare.to_do(run)
  local queued, waits = slurm.queued(open or {}), #busy > 0
  for _, t in ipairs(list) do waits = waits or silent ~= nil or queued[t.id] ~= nil end
  return waits, silent or ("%d of %d trials done"):format(over, #run.trials)
end

-- Waits until no process or task in the queue will run unfinished trials of the run.
local function wait_for_jobs(run)
  local waits, text, said
  core.sys.catch_signals()
  repeat
    core.sys.sleep(PAUSE_SECONDS)
    local name, code = errors.signal()
    if name then errors.raise(code, "no longer waiting (SIG%s); the job continues", name) end
    waits, text = poll(run)
    if text ~= said then run.progress:note("%s", text) end
    said = text
  until not waits
  core.sys.release_signals()
end

-- Runs the trials in an array job. Returns an exit code and the trials. Without options.wait, does
-- not wait for the job.
function array_run.perform(run, path, overrides, options)
  local began = core.sys.clock()
  check_apart(run.exp, run.trials)
  local left, others = submit(run, path, overrides, options, run.trials)
  if left > 0 and not options.wait then return errors.DONE, run.trials end
  while left > 0 do -- earlier tasks in the queue may end without running the other trials
    wait_for_jobs(run)
    run.waited, options.redo = true, nil
    left, others = submit(run, path, overrides, options, others)
  end
  run.records = records.open(run.folder, "r")
  local guard <close> = run.records
  local list, finished = prepare.undone(run)
  local counts = { done = finished - run.had, failed = 0, pruned = 0, skipped = run.had }
  for _, t in ipairs(list) do
    local _, row = run.records:status(t.id)
    counts.failed = counts.failed + (row and row.status == "failed" and 1 or 0)
  end
  summary.conclude(run, counts, began, options)
  if #list > counts.failed then
    errors.raise(errors.FAILED, "%d of %d trials are not done; the same command resubmits them",
      #list - counts.failed, #run.trials)
  end
  return #list > 0 and errors.FAILED or errors.DONE, run.trials
end

-- Prints the script that array_run.perform would submit.
function array_run.print_script(run, path, options)
  check_apart(run.exp, run.trials)
  local store <close> = prepare.stored(run.folder)
  local open, silent = slurm.open(run.folder, store)
  check_open(run, open, silent, options)
  local list = run.trials
  if store then
    other_ids.find(store, run.exp, run.trials)
    list = unfinished(run, store, run.trials, options)
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

-- Returns the ids of the jobs in the queue of folder and experiment (nil: of all experiments).
local function jobs_of(folder, experiment)
  local open, why = slurm_queue.open(folder)
  if not open then errors.raise(errors.FAILED, "%s", why) end
  local ids = {}
  for _, s in ipairs(open) do
    if not experiment or s.name == experiment then ids[#ids + 1] = s.job end
  end
  return ids
end

-- Cancels these jobs, and waits until their trials have saved. Returns the ids of the jobs.
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
