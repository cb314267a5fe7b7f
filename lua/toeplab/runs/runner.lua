-- runs/runner.lua: runs the trials of an experiment. The same command starts, continues and repairs
-- a sweep: finished trials are skipped, interrupted ones continue from their checkpoint.
local coordinator = require "toeplab.runs.coordinator"
local core = require "toeplab.core"
local devices = require "toeplab.trials.devices"
local experiment = require "toeplab.trials.experiment"
local identity = require "toeplab.trials.identity"
local journal = require "toeplab.store.journal"
local json = require "toeplab.base.json"
local plan = require "toeplab.trials.plan"
local progress = require "toeplab.base.progress"
local provenance = require "toeplab.trials.provenance"
local records = require "toeplab.store.records"
local text_table = require "toeplab.report.text_table"
local secrets = require "toeplab.base.secrets"
local sheet = require "toeplab.report.script_report"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"
local trial_files = require "toeplab.store.trial_files"

local runner = {}

local SECONDS, PATIENCE_SECONDS = 60, 20

-- Warns about fixed keys that no trial read, which may be misspelt (weight_deacy). It is silent if
-- some trials did not run now, since they may have read the key, and if a scale was chosen, since
-- the scale may not need the key.
local function warn_fixed(run, counts, reads)
  if counts.done ~= #run.trials or run.scale ~= "" then return end
  local unread = {}
  for _, key in ipairs(suggest.keys(run.exp.fixed)) do
    if not reads[key] and not run.exp.always[key] then unread[#unread + 1] = key end
  end
  if #unread == 0 then return end
  run.progress:warn("%s: no trial read %s: is the name misspelt, or is the key not needed?",
    run.exp:where(unread[1]), "'" .. table.concat(unread, "', '") .. "'")
end

-- Raises if no trial read an axis: all its values then gave the same trial.
local function check_read(run, counts, reads)
  if counts.done == 0 then return end
  for _, key in ipairs(run.axes) do
    if not reads[key] then
      errors.usage("%s: no trial read '%s', so its values made no difference: read it or take it "
        .. "out", run.exp:where(key), key)
    end
  end
end

-- Prints a table of all metrics, for experiments that declare no report.
local function plain_report(trials)
  local set = {}
  for _, t in ipairs(trials) do
    for name in pairs(t.metrics) do set[name] = true end
  end
  local names, rows = suggest.keys(set), {}
  for i, t in ipairs(trials) do
    rows[i] = { t.label }
    for c, name in ipairs(names) do rows[i][c + 1] = t.metrics[name] end
  end
  text_table.print({ "trial", table.unpack(names) }, rows)
end

-- Warns about columns of the report that no trial logged, since their names may be misspelt.
local function warn_columns(run, trials)
  local logged = {}
  for _, t in ipairs(trials) do
    for name in pairs(t.metrics) do logged[name] = true end
  end
  for _, name in ipairs(run.exp.report.columns) do
    if not logged[name] then
      run.progress:warn("%s: no trial logged '%s'%s", run.exp:where("columns"), name,
        suggest.hint(name, suggest.keys(logged)))
    end
  end
end

local function show_report(run)
  local trials, wanted = run.records:finished(run.trials), run.exp.report
  if #trials == 0 then return end
  if type(wanted) == "function" then
    wanted(trials, sheet.new { folder = run.folder, name = run.exp.name, scale = run.scale,
      text = run.exp.text, progress = run.progress, trials = trials })
  elseif wanted then
    text_table.print(text_table.by(wanted, trials))
    warn_columns(run, trials)
  else
    plain_report(trials)
  end
end

local function summary(run, counts, seconds)
  local parts = {}
  for _, name in ipairs { "done", "skipped", "pruned", "failed" } do
    local words = { done = "done", skipped = "already done", pruned = "pruned", failed = "failed" }
    if counts[name] > 0 then parts[#parts + 1] = counts[name] .. " " .. words[name] end
  end
  if #parts == 0 then parts[1] = "none of them here" end -- all belong to another shard
  run.progress:say("%d trial%s: %s  (%s, %s)", #run.trials, #run.trials == 1 and "" or "s",
    table.concat(parts, ", "), progress.duration(seconds), run.folder)
  if counts.failed > 3 then
    run.progress:say("toeplab ls --failures %s groups them by their causes", run.exp.name)
  end
end

local function scale_of(words)
  for _, word in ipairs(words) do
    if word:find("^scale=") then return word:sub(7) end
  end
  return ""
end

-- ---- The run -----------------------------------------------------------------------------------

-- After a coordinator was killed, its worker saves and ends by itself. Waits until it has closed
-- its journal, and kills it if that takes too long.
local function wait_for_writer(run, open)
  local path, began = run.folder .. "/" .. journal.path(open.path, open.attempt), core.sys.clock()
  while journal.in_use(path) do
    local waited = core.sys.clock() - began
    if waited > PATIENCE_SECONDS then
      if open.host ~= core.sys.hostname() then -- process ids of another machine mean nothing here
        errors.raise(errors.LOCKED, "%s: process %d on %s is writing to it", path, open.pid,
          open.host)
      end
      core.sys.kill(open.pid)
    end
    core.sys.sleep(0.05)
    local name, code = errors.signal()
    if name then errors.raise(code, "stopped by SIG%s", name) end
  end
end

-- Copies the journals that killed runs left behind into the store.
local function replay(run)
  for _, open in ipairs(run.records:open_journals()) do
    wait_for_writer(run, open)
    local _, damage = run.records:take(open.id, open.path)
    if damage then
      run.progress:warn("%s/%s: %s; what follows it is lost", run.folder, open.path, damage)
    end
    run.records:end_journal(open.id, open.path)
  end
end

-- Returns a function that builds the command line of a worker for a device, and the number of
-- threads of each worker.
local function worker_words(run, path)
  local threads = run.threads or math.max(1, core.threads() // run.jobs)
  return function(device)
    local words = { core.sys.executable(), "--threads", tostring(threads), "worker",
      "--dir=" .. run.folder, "--device=" .. device }
    for _, name in ipairs { "steps", "seconds" } do
      local value = run.checkpoint[name]
      words[#words + 1] = value and ("--checkpoint-%s=%.17g"):format(name, value)
    end
    return table.move({ "--", path }, 1, 2, #words + 1, words)
  end, threads
end

local function is_finished(status) return status == "done" or status == "pruned" end

-- Returns whether what is stored of trial t, whose row is given, was made by other code than the
-- present, wholly or in part: its results if it is finished, else its checkpoint.
local function by_other_code(t, status, row)
  if not status or not (row.mixed or row.code_hash ~= t.code_hash) then return false end
  return is_finished(status) or (row.step or 0) > 0
end

local function is_ours(i, shard) return not shard or (i - 1) % shard.of == shard.part - 1 end

-- Returns the trials of this shard that other code produced, finished ones and others.
local function other_code(run, shard)
  local finished, begun = {}, {}
  for i, t in ipairs(run.trials) do
    local status, row = run.records:status(t.id)
    if is_ours(i, shard) and by_other_code(t, status, row) then
      table.insert(is_finished(status) and finished or begun, t)
    end
  end
  return finished, begun
end

-- Reports finished trials that other code produced; with redo, queues them to run again, and makes
-- unfinished ones start over instead of resuming from the checkpoint of that code.
local function handle_other_code(run, options)
  local function note(list, what, fate)
    if #list == 0 then return end
    run.progress:note("%d %s trial%s made by other code: %s", #list, what,
      #list == 1 and "" or "s", fate)
    for _, t in ipairs(options.redo and list or {}) do run.records:redo(t.id) end
  end
  local finished, begun = other_code(run, options.shard)
  note(finished, "finished", options.redo and "made again"
    or "kept (run --redo makes them again)")
  note(options.redo and begun or {}, "unfinished", "started over")
end

-- Returns the unfinished trials of this shard, which are to run, and the number of finished ones of
-- all shards.
local function to_do(run, shard)
  local list, skipped = {}, 0
  for i, t in ipairs(run.trials) do
    local status, row = run.records:status(t.id)
    local ours = is_ours(i, shard)
    if is_finished(status) then
      t.status, skipped = status, skipped + 1
    elseif ours then
      -- A new trial has no row before it is enlisted.
      if row then t.step, t.had = row.step, row.seconds end
      list[#list + 1] = t
    end
  end
  return list, skipped
end

-- Numbers the trials, and returns those for which only(trial) holds (nil: all).
local function choose_trials(trials, only)
  local list = {}
  for i, t in ipairs(trials) do
    t.number = i
    if not only or only(t) then list[#list + 1] = t end
  end
  return list
end

-- Raises unless the devices of all trials that may start now are available. It runs before anything
-- of the store changes: --redo deletes results, which a missing device could not make again.
local function check_devices(run, options)
  local list = to_do(run, options.shard)
  local again = options.redo and other_code(run, options.shard) or {} -- unfinished ones are in list
  devices.check(run.exp, table.move(again, 1, #again, #list + 1, list))
end

local function prepare(path, overrides, options)
  local exp = experiment.load(path)
  local trials, about = plan.trials(exp, overrides)
  identity.identify(exp, trials)
  trials = choose_trials(trials, options.only)
  local given = options.steps or options.seconds
  local checkpoint = given and { steps = options.steps, seconds = options.seconds }
    or exp.checkpoint
  if not next(checkpoint) then checkpoint = { seconds = SECONDS } end
  return { exp = exp, trials = trials, axes = about.axes, folder = records.folder(options.dir),
    checkpoint = checkpoint, jobs = options.jobs or 1, timeout = options.timeout,
    turns = devices.turns(options.share or 1),
    fail_fast = options.fail_fast, threads = options.threads, used = 0.0,
    progress = progress.new { quiet = options.quiet, out = options.out } }
end

-- Returns the rows or columns that the experiment's report declares; nil if it declares none.
local function declared_list(exp, field)
  return type(exp.report) == "table" and exp.report[field] or nil
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

-- Returns the command that is stored: the one that continues the trials or tries them again. With
-- --redo it would instead delete what other code makes of them in the meantime.
local function without_redo(words)
  local kept = {}
  for _, word in ipairs(words) do
    if word ~= "--redo" then kept[#kept + 1] = word end
  end
  return kept
end

-- Inserts the rows of the sweep and of its trials.
local function enlist(run, path, overrides, options, threads)
  local about = provenance.collect(without_redo(options.command), run.exp.own)
  about.threads, run.scale = threads, scale_of(overrides)
  if about.dirty then about.changes = save_changes(run) end
  local sweep = run.records:sweep { experiment = run.exp.name, script = path,
    source = run.exp.text, sha256 = core.sha256(run.exp.text), command = about.command,
    scale = run.scale,
    plan = json.encode { axes = run.axes, overrides = secrets.words(overrides),
      trials = #run.trials, answers = run.exp.answers, columns = declared_list(run.exp, "columns"),
      rows = declared_list(run.exp, "rows") } }
  for _, t in ipairs(run.trials) do t.experiment, t.provenance = run.exp.name, about end
  run.records:enlist(sweep, run.trials)
end

-- Shows the results of a run whose trials are all finished, in a folder that cannot be written to.
-- why: the error that says so; it is raised if anything is to be done there.
local function show_stored(run, overrides, options, why)
  local readable = errors.is(why) and why.status == "EIO" and not options.redo and not options.only
    and core.sys.exists(run.folder .. "/runs.db")
  if not readable then error(why, 0) end
  local opened, store = pcall(records.open, run.folder, "r")
  if not opened then error(why, 0) end
  local guard <close> = store
  run.records, run.scale = store, scale_of(overrides)
  identity.find_earlier(store, run.exp, run.trials)
  local list, skipped = to_do(run)
  if #list > 0 then error(why, 0) end
  run.progress:note("nothing can be written there: %s", why.message)
  core.sys.release_signals()
  show_report(run)
  if not options.quiet then
    summary(run, { done = 0, skipped = skipped, pruned = 0, failed = 0 }, 0)
  end
  return errors.DONE, run.trials
end

-- Runs the experiment in the script at path under overrides ("key=value"). options: dir, quiet,
-- steps and seconds between checkpoints, jobs (workers), share (trials on a GPU), timeout (seconds
-- of a trial), fail_fast, shard ({part=, of=}), redo (run finished trials of other code again),
-- command (the whole command line as words), out (a file instead of stderr), threads (of each
-- worker), only (a predicate that selects trials; no report is then printed), enlisted (a function
-- called with the records and the trials once these have rows). Returns the exit code and the
-- trials; raises for errors that end the run.
function runner.run(path, overrides, options)
  local run = prepare(path, overrides, options)
  core.sys.catch_signals()
  local writable, store = pcall(records.open, run.folder, "w")
  if not writable then return show_stored(run, overrides, options, store) end
  run.records = store
  local guard <close> = run.records
  local began = core.sys.clock()
  identity.find_earlier(run.records, run.exp, run.trials)
  check_devices(run, options)
  replay(run)
  handle_other_code(run, options)
  local threads
  run.worker, threads = worker_words(run, path)
  enlist(run, path, overrides, options, threads)
  if options.enlisted then options.enlisted(run.records, run.trials) end
  local list, skipped = to_do(run, options.shard)
  run.progress:expect(#run.trials, run.jobs, skipped)
  local counts, reads = coordinator.new(run):go(list)
  core.sys.release_signals() -- all is stored, and a report may run forever
  counts.skipped = skipped
  if options.only then return counts.failed > 0 and errors.FAILED or errors.DONE, run.trials end
  show_report(run)
  if not options.quiet or counts.failed > 0 then
    summary(run, counts, core.sys.clock() - began)
  end
  warn_fixed(run, counts, reads)
  check_read(run, counts, reads)
  return counts.failed > 0 and errors.FAILED or errors.DONE, run.trials
end

-- Prints the trials of a command with their status and runs nothing. Takes the options of
-- runner.run.
function runner.list(path, overrides, options)
  local exp = experiment.load(path)
  local trials = plan.trials(exp, overrides)
  identity.identify(exp, trials)
  local folder, rows = records.folder(options.dir), {}
  local known = core.sys.exists(folder .. "/runs.db") and records.open(folder, "r")
  if known then identity.find_earlier(known, exp, trials) end
  for i, t in ipairs(trials) do
    local status, row = nil, nil
    if known then status, row = known:status(t.id) end
    local again = options.redo and by_other_code(t, status, row)
    rows[i] = { t.id:sub(1, 12), again and "redo" or status or "new", row and row.step, t.label }
  end
  if known then known:close() end
  text_table.print({ "id", "status", "step", "trial" }, rows)
  return errors.DONE
end

return runner
