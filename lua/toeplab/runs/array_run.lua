-- runs/array_run.lua: runs the trials of an experiment by an array job of Slurm (slurm.lua), whose
-- tasks are array_task.lua. The command that submits may return at once.
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local earlier = require "toeplab.trials.earlier"
local errors = require "toeplab.base.errors"
local launch = require "toeplab.runs.launch"
local outcome = require "toeplab.runs.outcome"
local prepared = require "toeplab.runs.prepared"
local records = require "toeplab.store.records"
local secrets = require "toeplab.base.secrets"
local slurm = require "toeplab.runs.slurm"
local slurm_queue = require "toeplab.runs.slurm_queue"
local trash = require "toeplab.store.trash"
local trial_files = require "toeplab.store.trial_files"

local array_run = {}

local SUBMIT_SECONDS = 600 -- for another command to submit
local PAUSE_SECONDS = 2    -- between two looks at the queue
local CANCEL_SECONDS = 40  -- for cancelled tasks to leave the queue

-- Returns whether an open submission has a trial of list.
local function any_open(open, list)
  local ids = {}
  for _, t in ipairs(list) do ids[t.id] = true end
  for _, s in ipairs(open) do
    for _, t in ipairs(s.trials) do
      if ids[t.id] then return true end
    end
  end
  return false
end

-- Locks the submissions in folder until the returned file is closed, so that two commands do not
-- submit the same trials.
local function lock(folder)
  trial_files.make(folder, "slurm")
  local since, file, why = core.sys.clock(), nil, nil
  repeat
    file, why = slurm.lock(folder)
    if why then errors.stored(file, why) end
    if core.sys.clock() - since > SUBMIT_SECONDS then
      errors.raise(errors.LOCKED, "%s: another command submits trials", folder)
    end
    if not file then core.sys.sleep(0.1) end
    errors.check_signals()
  until file
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
    or left == 1 and "1 trial is left to the tasks in the queue and to other runs"
    or left .. " trials are left to the tasks in the queue and to other runs")
end

-- Raises if nothing can be submitted while these submissions are open (of slurm.open).
local function check_open(run, open, silent, options)
  if silent then errors.raise(errors.FAILED, "%s", silent) end
  for _, s in ipairs(open) do
    if not s.name then
      errors.raise(errors.LOCKED, "job %s is in the queue, and %s/job does not say what its tasks "
        .. "run (an older release submitted it, or the file is damaged): wait for it, or toeplab "
        .. "status --cancel ends it", s.job, s.folder)
    end
  end
  if options.redo and open[1] then
    errors.raise(errors.LOCKED, "--redo: job %s of Slurm uses %s", open[1].job, run.folder)
  end
end

-- With --redo, deletes what other code made of the trials, once it is known that Slurm takes the
-- job which makes them again.
local function handle_other_code(run, path, options, open)
  if options.redo then
    local list = prepared.undone(run)
    local again = prepared.other_code(run)
    table.move(again, 1, #again, #list + 1, list)
    local left = slurm.left(run.records, open, list)
    local tasks = slurm.tasks(options.on, #left)
    slurm.check(options, tasks, #left)
    if tasks > 0 then slurm.rehearse(run, path, options, tasks) end
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
local function to_see_to(run)
  local list = {}
  for _, t in ipairs(prepared.undone(run)) do
    local over = run.waited and (run.submitted[t.id] or has_failed(run, t))
    if not over then list[#list + 1] = t end
  end
  return list
end

local function warner(run)
  return function(...) run.progress:warn(...) end
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
  prepared.replay(run)
  local open, silent = slurm.open(run.folder, run.records, warner(run), true)
  if not run.waited then prepared.look_up(run, options) end
  if run.waited and #to_see_to(run) == 0 then return 0 end
  check_open(run, open, silent, options)
  prepared.check_free(run, options)
  handle_other_code(run, path, options, open)
  local list = to_see_to(run)
  if not run.waited then run.had = #run.trials - #list end
  local left = slurm.left(run.records, open, list)
  local tasks = slurm.tasks(o, #left)
  local function enlist()
    local undo = trash.undo(run.records, run.trials)
    local sweep = prepared.enlist(run, path, overrides, options, math.max(1, o.cpus // run.jobs))
    return function() undo(sweep) end
  end
  if tasks == 0 then
    enlist()
    if #list > 0 then say_nothing(run, #list) end
    return #list
  end
  local words = secrets.words(prepared.stored_words(options.command))
  local job = slurm.submit(run, path, options, left, words, enlist)
  run.progress:note("%d of %d trials: job %s, %d task%s  (%s)", #left, #run.trials, job, tasks,
    tasks == 1 and "" or "s", run.folder)
  for _, t in ipairs(left) do run.submitted[t.id] = true end
  return #list
end

-- Waits until no process runs trials of the run that are not done, and no job in the queue has any.
local function wait_for_jobs(run)
  local said, waits
  core.sys.catch_signals()
  repeat
    core.sys.sleep(PAUSE_SECONDS)
    local name, code = errors.signal()
    if name then
      errors.raise(code, "no longer waiting (SIG%s): the job goes on", name)
    end
    run.records = records.open(run.folder, "w")
    local guard <close> = run.records
    prepared.replay(run)
    local open, silent = slurm.open(run.folder, run.records, warner(run))
    local list, over, busy = prepared.to_do(run)
    waits = #busy > 0 or any_open(open, list)
    local text = silent or ("%d of %d trials done"):format(over, over + #list + #busy)
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

-- Prints the script that array_run.perform would submit.
function array_run.print_script(run, path, options)
  check_apart(run.exp, run.trials)
  local list, store <close> = {}, prepared.stored(run.folder)
  local open, silent = slurm.open(run.folder, store, errors.say)
  check_open(run, open, silent, options)
  if store then earlier.find(store, run.exp, run.trials) end
  for _, t in ipairs(run.trials) do
    local status, row = nil, nil
    if store then status, row = store:status(t.id) end
    local again = options.redo and prepared.by_other_code(run.exp, t, status, row)
    if again or not prepared.is_finished(run.exp, status) then list[#list + 1] = t end
  end
  local left = slurm.left(store, open, list)
  if #left == 0 then
    say_nothing(run, #list)
    return errors.DONE
  end
  local tasks = slurm.tasks(options.on, #left)
  slurm.check(options, tasks, #left)
  io.write(slurm.script(run, path, options, tasks, slurm_queue.next_number(run.folder)))
  return errors.DONE
end

-- Returns the submissions of folder with tasks in the queue; nil and why that cannot be known.
local function in_queue(folder)
  local queue, why = slurm_queue.read(folder)
  if not queue then return nil, why end
  return (slurm_queue.open(folder, slurm_queue.submissions(folder), queue))
end

-- Cancels the jobs of an experiment (nil: of all) in folder, and waits for their checkpoints.
-- Returns the ids of the jobs.
function array_run.cancel(folder, experiment)
  if #slurm_queue.submissions(folder) == 0 then return {} end
  local list, open, why = {}, in_queue(folder)
  if not open then errors.raise(errors.FAILED, "%s", why) end
  for _, s in ipairs(open) do
    if not experiment or s.name == experiment then list[#list + 1] = s end
  end
  local ids, since = slurm_queue.cancel(list), core.sys.clock()
  local function left()
    for _, s in ipairs(in_queue(folder) or list) do
      for _, id in ipairs(ids) do
        if s.job == id then return true end
      end
    end
  end
  while left() and core.sys.clock() - since < CANCEL_SECONDS do core.sys.sleep(0.5) end
  return ids
end

return array_run
