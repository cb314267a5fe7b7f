-- runner.lua: runs the trials of an experiment one after the other. The same command starts,
-- continues and repairs: what is done is skipped, what was interrupted goes on from its checkpoint.
local config = require "toeplab.config"
local core = require "toeplab.core"
local corpus = require "toeplab.corpus"
local experiment = require "toeplab.experiment"
local json = require "toeplab.json"
local plan = require "toeplab.plan"
local progress = require "toeplab.progress"
local provenance = require "toeplab.provenance"
local records = require "toeplab.records"
local report = require "toeplab.report"
local sheet = require "toeplab.sheet"
local stop = require "toeplab.stop"
local streams = require "toeplab.streams"
local suggest = require "toeplab.suggest"
local trial = require "toeplab.trial"

local runner = {}

local HOOK_INSTRUCTIONS, SECONDS = 1000, 60

-- The keys whose values name a corpus, and the sha256 of each: { corpus = "9f..." }.
local function data_of(exp, values)
  local hashes = {}
  local names = exp.data or (values.corpus and { "corpus" }) or {}
  for _, key in ipairs(names) do
    if type(values[key]) ~= "string" then
      stop.usage("%s: data names the key '%s', which is no text", exp:where("data"), key)
    end
    hashes[key] = corpus.hash(values[key])
  end
  return hashes
end

local function check_backend(exp, values)
  if type(values.backend) ~= "string" then return end
  local names = {}
  for i, backend in ipairs(core.backends()) do names[i] = backend.name end
  names[#names + 1] = "auto"
  local ok, why = suggest.choose("backend", values.backend, names)
  if not ok then stop.usage("%s: %s", exp:where("backend"), why) end
end

-- Gives each trial its id, a hash of all that its numbers depend on, and its folder.
local function identify(exp, trials)
  local code, script = provenance.code_hash(), core.sha256(exp.text)
  local modules = provenance.modules_hash()
  for _, t in ipairs(trials) do
    check_backend(exp, t.config)
    local data = data_of(exp, t.config)
    t.code_hash, t.data_hash = code, next(data) and core.sha256(json.encode(data)) or ""
    t.json = json.encode(t.config)
    t.id = core.sha256(json.encode { config = t.config, script = script, modules = modules,
      code = code, data = data, seed = t.seed })
    t.path = "runs/" .. t.id:sub(1, 12)
  end
end

-- ---- One trial --------------------------------------------------------------------------------

-- Removes what a killed run left half done: files that no row knows.
local function sweep_folder(run, t)
  local folder, known = run.folder .. "/" .. t.path, {}
  local rows = run.records:rows("SELECT path FROM artifacts WHERE trial = ?", { t.id })
  for _, row in ipairs(rows) do known[row.path] = true end
  for _, name in ipairs(core.sys.list(folder) or {}) do
    local ours = name:find("^[%w_%-]+%-%d+%.txt$") or name:find("^%l+%-%d+%.json$")
      or name:find("^%l+%-%d+%.h5$") or name:find("^%..*%.tmp")
    if ours and not known[t.path .. "/" .. name] then core.sys.remove(folder .. "/" .. name) end
  end
end

-- Prefixes message with the line of the script that led to it, if it does not name the script.
local function located(exp, message)
  if message:find(exp.file, 1, true) then return message end
  local level = 3
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then return message end
    if info.source == "@" .. exp.file then
      return ("%s:%d: %s"):format(exp.file, info.currentline, message)
    end
    level = level + 1
  end
end

local function handler(exp)
  return function(e)
    if stop.is(e) then return e end
    local message = located(exp, stop.text(e))
    if os.getenv("TOEPLAB_TRACEBACK") then message = debug.traceback(message, 2) end
    local status = type(e) == "table" and rawget(e, "status")
    return type(status) == "string" and core.error(status, message) or message
  end
end

-- Looks for signals all the time, not only between steps; in coroutines too. Returns what ends it.
local function watch(t)
  local function look() t:check_signals(true) end
  local create, wrap = coroutine.create, coroutine.wrap
  local function watched(fn)
    local thread = create(fn)
    debug.sethook(thread, look, "", HOOK_INSTRUCTIONS)
    return thread
  end
  local function pass(fine, ...)
    if not fine then error((...), 0) end
    return ...
  end
  coroutine.create = watched
  coroutine.wrap = function(fn)
    local thread = watched(fn)
    return function(...) return pass(coroutine.resume(thread, ...)) end
  end
  debug.sethook(look, "", HOOK_INSTRUCTIONS)
  return function()
    debug.sethook()
    coroutine.create, coroutine.wrap = create, wrap
  end
end

local function call_trial(run, t)
  local c = config.new(t.config)
  local handle = trial.new {
    records = run.records:of(t.id), folder = run.folder, path = t.path, seed = t.seed,
    progress = run.progress, checkpoint = run.checkpoint,
  }
  streams.seed(t.seed)
  corpus.seed, corpus.progress = t.seed, run.progress
  local unwatch, open_modules = watch(handle), provenance.close_modules()
  local ok, why = xpcall(function()
    run.exp.trial(handle, c)
    handle:flush()
  end, handler(run.exp))
  open_modules()
  unwatch()
  local storing = handle.busy -- it ended in the middle of storing something
  local stopped = handle:stopped() -- counts even if the script caught it, or raised another error
  if stopped and (ok or not stop.storage_problem(why)) then ok, why = false, stopped end
  if not ok then pcall(handle.flush, handle) end -- what led to it is worth keeping
  core.tape_clear()
  config.add_reads(c, run.reads)
  return ok, why, storing
end

-- What a failure means: the exit code if it ends the run, nil if the other trials go on. A file of
-- the script's own may be damaged without the results being so.
local function verdict(why, storing)
  local signals = { [stop.INTERRUPT] = true, [stop.TERMINATE] = true, [stop.HANGUP] = true }
  if stop.is(why) and signals[why.code] then return why.code end
  local problem = stop.storage_problem(why)
  if problem == "full" or problem and storing then return stop.STORAGE end
end

local function run_trial(run, t)
  local ok, why = core.sys.mkdir(run.folder .. "/" .. t.path)
  if not ok then stop.raise(stop.STORAGE, "%s", why) end
  t.provenance.label = t.label
  t.provenance_json = json.encode(t.provenance)
  run.records:begin(t)
  sweep_folder(run, t)
  local fine, problem, storing = call_trial(run, t)
  run.progress:clear()
  collectgarbage()
  if fine then
    run.records:finish(t.id, "done")
    return "done"
  end
  local code, message = verdict(problem, storing), tostring(problem)
  -- A full disk may refuse this row too; the trial is then taken up as one whose process died.
  pcall(run.records.finish, run.records, t.id, code and "interrupted" or "failed", message)
  if code == stop.STORAGE then
    local advice = stop.storage_problem(problem) == "full" and "free some space" or "repair it"
    stop.raise(code, "%s: %s\nthe storage failed: %s and give the same command again", t.label,
      message, advice)
  elseif code then
    stop.raise(code, "%s: %s; the same command continues", t.label, message)
  end
  run.progress:say("%s failed: %s", t.label, message)
  return "failed"
end

-- ---- All trials -------------------------------------------------------------------------------

local function announce(run, number, t, step)
  local prefix = #run.trials > 1 and ("[%d/%d] %s"):format(number, #run.trials, t.label) or ""
  run.progress:start(prefix)
  run.progress:note("%s  %s/%s%s", prefix ~= "" and prefix or t.label, run.folder, t.path,
    step and step > 0 and (" (has a checkpoint at step %d)"):format(step) or "")
end

local function run_all(run)
  local counts = { done = 0, skipped = 0, failed = 0 }
  for number, t in ipairs(run.trials) do
    local status, step = run.records:status(t.id)
    if status == "done" then
      counts.skipped = counts.skipped + 1
      t.status = "done"
    else
      announce(run, number, t, step)
      t.status = run_trial(run, t)
      counts[t.status] = counts[t.status] + 1
    end
  end
  return counts
end

local function warn_unread(run, counts)
  if counts.done == 0 then return end
  for _, key in ipairs(run.axes) do
    if not run.reads[key] then
      run.progress:warn("%s: no trial read '%s', so its values made no difference",
        run.exp:where(key), key)
    end
  end
end

local function finished(run)
  local list = {}
  for _, t in ipairs(run.trials) do
    if t.status == "done" then
      local metrics, texts = run.records:results(t.id)
      list[#list + 1] = { id = t.id, label = t.label, seed = t.seed, config = t.config,
        metrics = metrics, texts = texts, made = run.records:origin(t.id),
        series = function(_, name) return run.records:of(t.id):series(name) end }
    end
  end
  return list
end

-- A table of all metrics, for experiments that ask for nothing.
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
  report.print({ "trial", table.unpack(names) }, rows)
end

-- A column that no trial logged is a slip in its name.
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
  local trials, wanted = finished(run), run.exp.report
  if #trials == 0 then return end
  if type(wanted) == "function" then
    wanted(trials, sheet.new { folder = run.folder, name = run.exp.name, scale = run.scale,
      text = run.exp.text, progress = run.progress, trials = trials })
  elseif wanted then
    report.print(report.by(wanted, trials))
    warn_columns(run, trials)
  else
    plain_report(trials)
  end
end

local function summary(run, counts, seconds)
  local parts = {}
  for _, name in ipairs { "done", "skipped", "failed" } do
    local words = { done = "done", skipped = "already done", failed = "failed" }
    if counts[name] > 0 then parts[#parts + 1] = counts[name] .. " " .. words[name] end
  end
  run.progress:say("%d trial%s: %s  (%s, %s)", #run.trials, #run.trials == 1 and "" or "s",
    table.concat(parts, ", "), progress.duration(seconds), run.folder)
end

local function scale_of(words)
  for _, word in ipairs(words) do
    if word:find("^scale=") then return word:sub(7) end
  end
  return ""
end

-- Runs the experiment in the script at path under overrides ("key=value"). options: dir, quiet,
-- steps and seconds between checkpoints, command (the words of the whole command line), out (a file
-- instead of stderr). Returns the
-- exit code; raises for what ends the run.
function runner.run(path, overrides, options)
  local exp = experiment.load(path)
  local trials, axes = plan.trials(exp, overrides)
  identify(exp, trials)
  core.sys.catch_signals()
  local folder = records.folder(options.dir)
  local run = { exp = exp, trials = trials, axes = axes, folder = folder, reads = {} }
  run.records = records.open(folder, "w")
  local guard <close> = run.records
  run.progress = progress.new { quiet = options.quiet, out = options.out }
  local given = options.steps or options.seconds
  run.checkpoint = given and { steps = options.steps, seconds = options.seconds } or exp.checkpoint
  if not next(run.checkpoint) then run.checkpoint = { seconds = SECONDS } end
  local began = core.sys.clock()
  local about = provenance.collect(options.command)
  run.scale = scale_of(overrides)
  local sweep = run.records:sweep { experiment = exp.name, script = path, source = exp.text,
    sha256 = core.sha256(exp.text), command = about.command, scale = run.scale,
    plan = json.encode { axes = axes, overrides = overrides, trials = #trials } }
  for _, t in ipairs(trials) do
    t.experiment, t.sweep = exp.name, sweep
    t.provenance = config.copy(about)
  end
  local counts = run_all(run)
  warn_unread(run, counts)
  show_report(run)
  if not options.quiet or counts.failed > 0 then
    summary(run, counts, core.sys.clock() - began)
  end
  return counts.failed > 0 and stop.FAILED or stop.DONE
end

-- Prints the trials that a command stands for, and how each stands; runs nothing.
function runner.list(path, overrides, options)
  local exp = experiment.load(path)
  local trials = plan.trials(exp, overrides)
  identify(exp, trials)
  local folder, rows = records.folder(options.dir), {}
  local known = core.sys.exists(folder .. "/runs.db") and records.open(folder, "r")
  for i, t in ipairs(trials) do
    local status, step = nil, nil
    if known then status, step = known:status(t.id) end
    rows[i] = { t.id:sub(1, 12), status or "new", step, t.label }
  end
  if known then known:close() end
  report.print({ "id", "status", "step", "trial" }, rows)
  return stop.DONE
end

return runner
