-- runs/prepare.lua: prepares the run of an experiment: copies the journals of killed runs, finds
-- the trials that are done or that other code has made, and inserts the rows of the others.
local alert = require "toeplab.runs.alert"
local core = require "toeplab.core"
local devices = require "toeplab.trials.devices"
local other_ids = require "toeplab.trials.other_ids"
local errors = require "toeplab.base.errors"
local identity = require "toeplab.trials.identity"
local journal = require "toeplab.store.journal"
local json = require "toeplab.base.json"
local launch = require "toeplab.runs.launch"
local overlay = require "toeplab.base.overlay"
local plan = require "toeplab.trials.plan"
local progress = require "toeplab.base.progress"
local provenance = require "toeplab.trials.provenance"
local records = require "toeplab.store.records"
local sweeps = require "toeplab.store.sweeps"
local secrets = require "toeplab.base.secrets"
local sorted_keys = require "toeplab.base.sorted_keys"
local trial_files = require "toeplab.store.trial_files"
local tuning = require "toeplab.trials.tuning"

local prepare = {}

local CHECKPOINT_SECONDS = 60 -- between checkpoints, unless the experiment or the user sets it
local PATIENCE_SECONDS = 20   -- for the worker of a killed run to save and end

-- Returns the store in folder for reading, or nil if there is none yet, or a full disk has left it
-- empty. upgrade: whether to upgrade a store of an older schema first.
function prepare.stored(folder, upgrade)
  if not trial_files.has_store(folder) then return nil end
  local ok, store = pcall(records.open, folder, "r")
  if not ok and upgrade and errors.is(store) and store.old then
    records.open(folder, "w"):close()
    ok, store = pcall(records.open, folder, "r")
  end
  if not ok and not (errors.is(store) and store.status == "ENOTFOUND") then error(store, 0) end
  return ok and store or nil
end

-- Waits until the worker of a killed coordinator, which saves and ends by itself, has closed its
-- journal. Returns false if that takes too long; the trial then counts as running.
local function is_closed(run, open)
  local path, began = run.folder .. "/" .. journal.path(open.path, open.attempt), core.sys.clock()
  while journal.in_use(path) do
    if core.sys.clock() - began > PATIENCE_SECONDS then return false end
    core.sys.sleep(0.05)
    errors.check_signals()
  end
  return true
end

-- Copies the journals of killed runs into the store.
function prepare.replay(run)
  for _, open in ipairs(run.records:open_journals()) do
    if is_closed(run, open) then
      local _, damage = run.records:take(open)
      if damage then
        run.progress:warn("%s/%s: %s; see `toeplab fsck`", run.folder, open.path, damage)
      end
      run.records:end_journal(open)
    else
      run.progress:warn("%s/%s: its worker still runs, though its run was killed", run.folder,
        open.path)
    end
  end
end

-- Returns whether a trial of exp with this status needs no run. In a small sweep that chooses a
-- key, that includes a trial that the guard stopped: its value is rejected.
function prepare.is_finished(exp, status)
  return status == "done" or status == "pruned" or status == "guard" and exp.searches or false
end

-- Returns whether the results of trial t of exp (if it is unfinished, its checkpoint) were made by
-- other code than the present, wholly or in part. status, row: of Records:status.
function prepare.by_other_code(exp, t, status, row)
  if not status or not (row.mixed or row.code_hash ~= t.code_hash) then return false end
  return prepare.is_finished(exp, status) or (row.step or 0) > 0
end

-- Returns the finished and the unfinished trials that other code made, except those in run.kept.
function prepare.other_code(run)
  local finished, begun = {}, {}
  for _, t in ipairs(run.trials) do
    local status, row = run.records:status(t.id)
    if not run.kept[t.id] and prepare.by_other_code(run.exp, t, status, row) then
      table.insert(prepare.is_finished(run.exp, status) and finished or begun, t)
    end
  end
  return finished, begun
end

-- Marks a trial to start over, unless another run has begun it since.
local function redo(run, t)
  run.records:transaction(function()
    local status, row = run.records:status(t.id)
    if not row.busy and prepare.by_other_code(run.exp, t, status, row) then
      run.records:mark(t.id, "redo")
    end
  end)
end

-- Reports finished trials that other code made. With redo, queues them to run again, and makes
-- unfinished ones start over instead of resuming from their checkpoint.
function prepare.handle_other_code(run, options)
  local function note(list, what, fate)
    if #list == 0 then return end
    run.progress:note("%d %s trial%s made by other code: %s", #list, what,
      #list == 1 and "" or "s", fate)
    for _, t in ipairs(list) do
      run.kept[t.id] = true
      if options.redo then redo(run, t) end
    end
  end
  local finished, begun = prepare.other_code(run)
  note(finished, "finished", options.redo and "to run again"
    or "kept (run --redo runs them again)")
  note(options.redo and begun or {}, "unfinished", "started over")
end

-- Returns the unfinished trials that no process runs, the number of finished ones, and the list of
-- those that other processes run.
function prepare.to_do(run)
  local list, skipped, busy = {}, 0, {}
  for _, t in ipairs(run.trials) do
    local status, row = run.records:status(t.id)
    if prepare.is_finished(run.exp, status) then
      t.status, skipped = status, skipped + 1
    else
      -- A new trial has no row before it is enlisted.
      if row then t.step, t.had, t.attempt = row.step, row.seconds, row.attempt end
      table.insert(row and row.busy and busy or list, t)
    end
  end
  return list, skipped, busy
end

-- Returns all unfinished trials, and the number of finished ones.
function prepare.undone(run)
  local list, finished, busy = prepare.to_do(run)
  return table.move(busy, 1, #busy, #list + 1, list), finished
end

-- Raises if the run must have all its trials to itself, and other processes run some of them.
function prepare.check_free(run, options)
  local _, _, busy = prepare.to_do(run)
  local why = options.redo and "--redo" or options.only and "reproduce"
    or launch.ours() and "several ranks" or run.exp.prune and "prune"
    or run.chosen and 'seeds = "until ..."'
  run.whole = why and true or nil
  if not why or #busy == 0 then return end
  local _, row = run.records:status(busy[1].id)
  errors.raise(errors.LOCKED, "%s: process %s on %s runs trial %s, but %s requires that this "
    .. "command runs all its trials: run it again later", run.folder, row.pid, row.host,
    busy[1].id:sub(1, 12), why)
end

-- Returns the words of the command to store, which users repeat to continue the trials. Removes
-- --redo and --adopt, which a repetition would apply to newer results, and --alert, whose command
-- may contain a secret address.
function prepare.stored_words(words)
  local kept = {}
  for i, word in ipairs(words) do
    local of_alert = word:find "^%-%-alert=" or word == "--alert" or words[i - 1] == "--alert"
    if word ~= "--redo" and word ~= "--adopt" and not of_alert then kept[#kept + 1] = word end
  end
  return kept
end

-- Raises unless the devices of all trials that may start now are available. Call it before the
-- store changes: --redo deletes results that a missing device could not make again.
function prepare.check_devices(run, options)
  local list = prepare.to_do(run)
  -- Unfinished ones are in list.
  local again = options.redo and prepare.other_code(run) or {}
  table.move(again, 1, #again, #list + 1, list)
  launch.check(list, prepare.stored_words(options.command), options,
    (run.exp.budget or {}).trial)
  devices.check(run.exp, list)
end

-- Returns the trials of a command with ids and numbers, and the second result of plan.trials.
-- options.only: a predicate that selects trials (nil: all); tell: as for plan.trials.
function prepare.trials_of(exp, overrides, options, tell)
  local trials, about = plan.trials(exp, overrides, tell)
  identity.identify(exp, trials)
  local list = {}
  for i, t in ipairs(trials) do
    t.number = i
    if not options.only or options.only(t) then list[#list + 1] = t end
  end
  return list, about
end

-- Returns lines that explain why trials are new although the store has some of the same
-- configuration.
function prepare.why_new(trials)
  local lines, count = {}, 0
  for i, reason in ipairs(other_ids.reasons(trials)) do
    lines[i] = ("%d trial%s new: %s"):format(reason.count, reason.count == 1 and " is" or "s are",
      reason.text)
  end
  for _, t in ipairs(trials) do count = count + (other_ids.adoptable(t) and 1 or 0) end
  if count > 0 then
    lines[#lines + 1] = ("%d of them %s old results; run --adopt takes them over"):format(count,
      count == 1 and "has" or "have")
  end
  return lines
end

-- Looks the trials of a run up in its open store. Trials that it has under other ids get these ids.
-- Prints why others are new or, with --adopt, takes over their old results. Does not change the
-- store of a run that only reads (run.reads). Returns the number of adopted trials.
function prepare.look_up(run, options)
  other_ids.find(run.records, run.exp, run.trials)
  for _, line in ipairs(prepare.why_new(run.trials)) do
    if not run.said[line] then run.progress:note("%s", line) end
    run.said[line] = true
  end
  if run.reads then return 0 end
  for _, t in ipairs(run.trials) do
    if t.maps then
      run.records:mark(t.id, "adopt", t.key, json.encode(run.exp.reach.parts))
    end
  end
  local count = options.adopt and other_ids.adopt(run.records, run.trials) or 0
  if count > 0 then run.progress:note("%d adopted", count) end
  return count
end

-- Raises if --share is given but no trial uses a GPU.
local function check_share(trials)
  for _, t in ipairs(trials) do
    if t.config.device ~= "cpu" then return end
  end
  errors.usage "run: --share requires trials on GPUs, but none has device=cuda"
end

function prepare.new(exp, overrides, options)
  local shown = progress.new { quiet = options.quiet, out = options.out }
  local trials, about = prepare.trials_of(exp, overrides, options, function(text)
    shown:note("%s", text)
  end)
  if options.share then check_share(trials) end
  local given = options.steps or options.seconds
  local checkpoint = given and { steps = options.steps, seconds = options.seconds }
    or exp.checkpoint
  if not next(checkpoint) then checkpoint = { seconds = CHECKPOINT_SECONDS } end
  return { exp = exp, trials = trials, axes = about.axes, row_keys = about.row_keys,
    scale = about.values.scale, given = about.values.given, folder = records.folder(options.dir),
    checkpoint = checkpoint, jobs = options.jobs or 1, timeout = options.timeout,
    share = options.share or 1, turns = devices.turns(options.share or 1),
    fail_fast = options.fail_fast, threads = options.threads, kept = {}, said = {},
    used = options.seconds_used or 0.0,
    alert = options.alerts or alert.new(), follow = options.follow,
    progress = shown }
end

-- Saves the uncommitted changes of the checkout in a file named by its hash. Returns its path
-- relative to the results folder; nil if there are no changes.
local function save_changes(run)
  local text = provenance.changes()
  if not text then return nil end
  local path = ("changes/%s.diff"):format(core.sha256(text):sub(1, 16))
  trial_files.make(run.folder, "changes")
  local file = run.folder .. "/" .. path
  if core.sys.exists(file) then return path end
  errors.stored(core.sys.write_file(file, text))
  return path
end

-- Returns the keys of grid that no rule of when sets: a command may give them other values without
-- other effects.
local function free_keys(exp)
  local list, set = {}, {}
  for _, rule in ipairs(exp.when) do
    for key in pairs(overlay(rule.fixed, rule.grid)) do set[key] = true end
  end
  for _, key in ipairs(sorted_keys(exp.grid)) do
    if not set[key] then list[#list + 1] = key end
  end
  return list
end

-- Sets the provenance of all trials of a run, and returns it. words: the command to store; threads:
-- of each worker.
function prepare.set_provenance(run, words, threads)
  local about = provenance.collect(words, run.exp)
  about.threads = threads
  if about.dirty then about.changes = save_changes(run) end
  for _, t in ipairs(run.trials) do t.experiment, t.provenance = run.exp.name, about end
  return about
end

-- Returns the lists of keys that vary together; nil if there are none.
local function zipped_keys(exp)
  local lists = {}
  for i, axes in ipairs(exp.zips) do lists[i] = sorted_keys(axes) end
  return lists[1] and lists
end

-- Inserts the rows of the sweep and of its trials. Returns the id of the sweep.
function prepare.enlist(run, path, overrides, options, threads)
  local about = prepare.set_provenance(run,
    launch.words(prepare.stored_words(options.command)), threads)
  local chosen, exp = run.chosen or {}, run.exp
  local report = type(exp.report) == "table" and exp.report or {}
  local sweep = { experiment = exp.name, script = path, source = exp.text,
    sha256 = core.sha256(exp.text), command = about.command, scale = run.scale,
    plan = json.encode { axes = run.axes, row_keys = run.row_keys, grid = free_keys(exp),
      zip = zipped_keys(exp), overrides = secrets.words(overrides),
      trials = chosen.all or #run.trials,
      rule = chosen.rule and chosen.rule.text, with = chosen.with, metric = chosen.metric,
      answers = exp.answers, better = next(exp.better) and exp.better or nil,
      tuned = tuning.describe(exp), tuned_key = exp.tuned and exp.tune.key or nil,
      tuned_seed = exp.tuned and exp.tune.seed or nil,
      tuned_metric = exp.tuned and exp.tune.metric or nil,
      tuned_goal = exp.tuned and exp.tune.goal or nil,
      columns = report.columns, rows = report.rows, title = exp.title, labels = exp.label,
      tex = exp.tex, success = exp.success } }
  local id, restored = run.records:transaction(function()
    local id = run.records:sweep(sweep)
    return id, run.records:enlist(id, sweeps.rows_of(run.trials))
  end)
  if restored > 0 then
    run.progress:note("%d trial%s restored from the trash", restored, restored == 1 and "" or "s")
  end
  return id
end

return prepare
