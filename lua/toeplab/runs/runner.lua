-- runs/runner.lua: runs the trials of an experiment. The same command starts, continues and repairs
-- a sweep: finished trials are skipped, interrupted ones continue from their checkpoint.
local alert = require "toeplab.runs.alert"
local array_run = require "toeplab.runs.array_run"
local array_task = require "toeplab.runs.array_task"
local coordinator = require "toeplab.runs.coordinator"
local core = require "toeplab.core"
local other_ids = require "toeplab.trials.other_ids"
local experiment = require "toeplab.trials.experiment"
local identity = require "toeplab.trials.identity"
local launch = require "toeplab.runs.launch"
local option_check = require "toeplab.runs.option_check"
local overlay = require "toeplab.base.overlay"
local plan = require "toeplab.trials.plan"
local rules = require "toeplab.trials.overrides"
local progress = require "toeplab.base.progress"
local summary = require "toeplab.runs.summary"
local prepare = require "toeplab.runs.prepare"
local records = require "toeplab.store.records"
local rounds = require "toeplab.runs.rounds"
local text_table = require "toeplab.base.text_table"
local errors = require "toeplab.base.errors"
local trial_files = require "toeplab.store.trial_files"
local tuning = require "toeplab.trials.tuning"
local worker = require "toeplab.runs.worker"

local runner = {}

-- ---- Rounds -----------------------------------------------------------------------------------

-- If the run has seeds like "until 2 %", decides from the results so far which trials it runs.
-- tried: the ids of the trials that it has tried.
local function choose(run, overrides, options, tried)
  repeat -- adopted results may lead to more trials
    run.chosen = rounds.choose(run.exp, overrides, run.records, tried)
    if not run.chosen then return end
    run.trials = prepare.trials_of(run.exp, overrides, options)
  until prepare.look_up(run, options) == 0
end

-- Returns the function `more` of the coordinator, which returns the trials of the next round; nil
-- if the number of seeds is fixed. list: the trials of the first round.
local function next_rounds(run, path, overrides, options, threads, list)
  if not run.chosen then return nil end
  local tried = {}
  return function(counts)
    for _, t in ipairs(list) do tried[t.id] = true end
    choose(run, overrides, options, tried)
    prepare.handle_other_code(run, options)
    prepare.enlist(run, path, overrides, options, threads)
    list = {}
    prepare.check_free(run, options)
    local open, finished = prepare.to_do(run)
    for _, t in ipairs(open) do
      if not tried[t.id] then list[#list + 1] = t end
    end
    local going, n = rounds.going(run.chosen)
    if #list > 0 then
      run.progress:note("%d row%s with up to %d seeds", going,
        going == 1 and " continues" or "s continue", n)
    end
    run.skipped = finished - counts.done
    run.progress:expect(#run.trials, run.jobs, run.skipped)
    return list
  end
end

-- Raises if seeds = "until 2 %" are combined with --on, which has no rounds.
local function check_rounds(exp, overrides, options)
  if options.on and rules.apply(exp, overrides).rule then
    errors.usage('run: --on cannot be combined with seeds like "until 2 %%", which depend on the '
      .. "results of all trials; use -j")
  end
end

-- Runs the trials of list and of more(). If the budget of the experiment ends, a run with seeds =
-- "until 2 %" still prints its results.
local function go(run, list, more)
  local ok, counts, reads = pcall(function() return coordinator.new(run):go(list, more) end)
  if ok then return counts, reads end
  if run.chosen and errors.is(counts) and counts.code == errors.BUDGET then
    summary.show_report(run)
    rounds.show(run.chosen, "the budget ended")
  end
  error(counts, 0)
end

-- ---- The run ----------------------------------------------------------------------------------

-- Shows the results of a run in a folder that cannot be written. why: the error of writing, which
-- is raised unless all trials are finished.
local function show_stored(run, overrides, options, why)
  local readable = errors.is(why) and why.status == "EIO" and not options.redo and not options.only
    and trial_files.has_store(run.folder)
  if not readable then error(why, 0) end
  local opened, store = pcall(records.open, run.folder, "r")
  if not opened then error(why, 0) end
  local guard <close> = store
  run.records, run.reads = store, true
  prepare.look_up(run, options)
  choose(run, overrides, options)
  local list, skipped = prepare.undone(run)
  if #list > 0 then error(why, 0) end
  run.progress:note("the results folder is read-only: %s", why.message)
  launch.release()
  core.sys.release_signals()
  summary.conclude(run, { done = 0, skipped = skipped, failed = 0 }, core.sys.clock(), options)
  return errors.DONE, run.trials
end

-- Counts the trials that other processes have taken, by their status. busy: the trials that were
-- running when this run began.
local function count_taken(run, counts, busy)
  for _, t in ipairs(busy) do t.taken = true end
  run.records:refresh()
  counts.taken = 0
  for _, t in ipairs(run.trials) do
    local status = t.taken and run.records:status(t.id)
    local finished = status and prepare.is_finished(run.exp, status)
    local kind = finished and "skipped" or "taken"
    if status then
      counts[kind], t.status = counts[kind] + 1, finished and status or nil
    end
  end
end

-- Runs the trials of an experiment of the script at path. Takes the other arguments of runner.run,
-- and returns its results.
local function perform(exp, path, overrides, options)
  local run = prepare.new(exp, overrides, options)
  if options.on then return array_run.perform(run, path, overrides, options) end
  core.sys.catch_signals()
  local writable, store = pcall(records.open, run.folder, "w")
  if not writable then return show_stored(run, overrides, options, store) end
  run.records = store
  local guard <close> = run.records
  local began = core.sys.clock()
  prepare.look_up(run, options)
  prepare.check_devices(run, options)
  prepare.replay(run)
  if not options.only then choose(run, overrides, options) end
  prepare.check_free(run, options)
  prepare.handle_other_code(run, options)
  if run.chosen and options.redo then choose(run, overrides, options) end
  local threads = run.threads or math.max(1, core.threads() // run.jobs)
  run.digest = options.command and launch.digest(options.command)
  run.worker = worker.words(run, path, threads)
  if not options.only and not launch.ours() then option_check.run(run) end
  prepare.enlist(run, path, overrides, options, threads)
  if options.enlisted then options.enlisted(run.records, run.trials) end
  local list, skipped, busy = prepare.to_do(run)
  run.skipped = skipped
  run.progress:expect(#run.trials, run.jobs, skipped)
  run.alert.experiment = #list > 0 and exp.name or run.alert.experiment
  if #list == 0 then launch.release() end
  if #list > 0 and not exp.searches then summary.note_scale(run, run.given) end
  local counts, reads = go(run, list, next_rounds(run, path, overrides, options, threads, list))
  core.sys.release_signals() -- all results are stored, and a report may run forever
  counts.skipped = run.skipped
  count_taken(run, counts, busy)
  options.seconds_used = run.used -- budget.total is for the whole command, maybe of two stages
  run.alert.text = summary.counts_text(run, counts)
  local code = counts.failed + counts.stopped > 0 and errors.FAILED
    or counts.taken > 0 and errors.LOCKED or errors.DONE
  if options.only then return code, run.trials end
  summary.conclude(run, counts, began, options)
  summary.check_read(run, counts, reads)
  return code, run.trials
end

-- Returns the stage of the experiment itself, as runner.stages does. store: may be nil.
function runner.main_stage(exp, words, store)
  return { exp = exp, words = words, chosen = rounds.choose(exp, words, store) }
end

-- Returns the experiments that a command runs in order, each {exp=, words=, chosen= (of
-- rounds.choose)}: the small sweep that tunes a key, if there is one, and the experiment itself if
-- the small sweep is finished. The other results are the number of unfinished trials of the small
-- sweep, and the experiment itself. upgrade: as for prepared.stored.
function runner.stages(path, overrides, dir, upgrade)
  local exp = experiment.load(path)
  local search, words = tuning.search(exp, overrides)
  local by_results = search or rules.apply(exp, overrides).rule
  local store <close> = by_results and prepare.stored(records.folder(dir), upgrade) or nil
  local missing = search and tuning.choose(exp, overrides, store) or 0
  local stages = { search and { exp = search, words = words } }
  if missing > 0 then rounds.check(exp, overrides) end
  if missing == 0 then stages[#stages + 1] = runner.main_stage(exp, overrides, store) end
  return stages, missing, exp
end

-- Runs the stages of an experiment, and returns the results of runner.run.
local function run_stages(path, overrides, given)
  local options = overlay(given) -- perform sets options.seconds_used
  options.overrides = overrides
  local stages, missing, exp = runner.stages(path, overrides, options.dir, true)
  check_rounds(exp, overrides, options)
  if stages[1].exp ~= exp and launch.ours() then
    errors.usage("ranks: a small sweep must choose %s first, in one process: run it without "
      .. "mpirun, or give %s=VALUE", exp.tune.key, exp.tune.key)
  end
  local code, trials = perform(stages[1].exp, path, stages[1].words, options)
  if options.only then return code, trials end
  if missing > 0 or stages[2] then -- a trial may be new, or made again by other code
    stages, missing = runner.stages(path, overrides, options.dir)
  end
  local out, second = progress.new { quiet = options.quiet, out = options.out }, stages[2]
  if second and (code == errors.DONE or code == errors.FAILED) then
    out:note("%s", tuning.describe(second.exp))
    return perform(second.exp, path, second.words, options)
  end
  if code == errors.DONE and missing > 0 and options.on then
    out:note("%d trials of %s choose the %s of the others: run the same command again when they "
      .. "are done", missing, stages[1].exp.name, stages[1].exp.tune and stages[1].exp.tune.key
      or "key")
  elseif code == errors.FAILED and missing > 0 then
    out:note("%s has not begun: it waits for %d trial%s of %s; run the same command to try failed "
      .. "trials again, or set %s=VALUE to run without them", exp.name, missing,
      missing == 1 and "" or "s", stages[1].exp.name, exp.tune.key)
  end
  return code, trials
end

-- Runs trials as a task of an array job, which runs one stage.
local function run_task(path, overrides, options)
  core.sys.catch_signals()
  for _, stage in ipairs((runner.stages(path, overrides, options.dir))) do
    if stage.exp.name == options.task.name then
      return array_task.perform(prepare.new(stage.exp, stage.words, options), path, options.task)
    end
  end
  array_task.refuse(path)
end

-- Runs the experiment in the script at path under overrides ("key=value"), after the small sweep
-- that tunes a key, if there is one. options: dir, quiet, steps and seconds between checkpoints,
-- jobs (workers), share (trials on a GPU), timeout (seconds of a trial), fail_fast, alert (a
-- command, alert.lua), redo (run finished trials of other code again), adopt (take over results of
-- the same configuration), command (the whole command line as words), out (a file instead of
-- stderr), threads (of each worker), only (a predicate that selects trials of the first stage; runs
-- only these, without a report), enlisted (a function called with the Records and the trials when
-- the trials have rows), on (the options of an array job that runs the trials: slurm_options.lua),
-- wait (whether to wait for that job), task (the task of such a job that this process is:
-- array_task.lua), follow (an observer of trials: coordinator.lua). Returns the exit code and the
-- trials of the last stage; raises errors that end the run.
function runner.run(path, overrides, options)
  core.sys.outlive_output() -- `run | head` must not end a sweep of days
  if options.task then return run_task(path, overrides, options) end
  if not options.alert then return run_stages(path, overrides, options) end
  local alerts = alert.new(options.alert, records.folder(options.dir))
  local ok, code, trials = pcall(run_stages, path, overrides, overlay(options, { alerts = alerts }))
  local text = ok and alerts.text or not ok and errors.text(code)
  if alerts.experiment and not alerts:finish(alerts.experiment, text) then
    errors.say("warning: the command of --alert failed")
  end
  if not ok then error(code, 0) end
  return code, trials
end

-- Prints the script that runner.run would submit with options.on.
function runner.script(path, overrides, options)
  local stages, _, exp = runner.stages(path, overrides, options.dir)
  check_rounds(exp, overrides, options)
  local stage = stages[1]
  options.overrides = overrides
  return array_run.print_script(prepare.new(stage.exp, stage.words, options), path, options)
end

-- Returns the row of runner.list for a trial of exp. known: the store, or nil.
local function list_row(exp, t, known, options)
  local status, row = nil, nil
  if known then status, row = known:status(t.id) end
  local again = options.redo and prepare.by_other_code(exp, t, status, row)
  local adopt = options.adopt and other_ids.adoptable(t)
  return { t.id:sub(1, 12), again and "redo" or adopt and "adopt" or status or "new",
    row and row.step, t.label }
end

-- Prints the trials of a command with their status and runs nothing. Takes the options of
-- runner.run.
function runner.list(path, overrides, options)
  local stages, missing, exp = runner.stages(path, overrides, options.dir)
  local known <close> = prepare.stored(records.folder(options.dir))
  local rows, all = {}, {}
  for _, stage in ipairs(stages) do
    local trials = plan.trials(stage.exp, stage.words)
    identity.identify(stage.exp, trials, known)
    for _, t in ipairs(trials) do rows[#rows + 1] = list_row(stage.exp, t, known, options) end
    table.move(trials, 1, #trials, #all + 1, all)
  end
  text_table.print({ "id", "status", "step", "trial" }, rows)
  for _, line in ipairs(prepare.why_new(all)) do print(line) end
  local last = (missing > 0 and runner.main_stage(exp, overrides) or stages[#stages]).chosen
  if last then
    exp.asked = last.limit
    print(("%s: %d trials at most"):format(last.rule.text, #plan.trials(exp, overrides)))
  end
  if missing > 0 then
    print(("the trials above choose the %s of the others"):format(exp.tune.key))
  end
  return errors.DONE
end

return runner
