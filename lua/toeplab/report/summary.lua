-- report/summary.lua: collects the data of the page about a sweep: its trials, their metrics, the
-- output of the experiment's own report, failures, and origins.
local core = require "toeplab.core"
local experiment = require "toeplab.trials.experiment"
local groups = require "toeplab.report.groups"
local config = require "toeplab.base.config"
local rows_of = require "toeplab.trials.rows"
local mean_table = require "toeplab.report.mean_table"
local overlay = require "toeplab.base.overlay"
local text_table = require "toeplab.base.text_table"
local secrets = require "toeplab.base.secrets"
local shell = require "toeplab.base.shell"
local scaling_report = require "toeplab.report.scaling_report"
local script_report = require "toeplab.report.script_report"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local sweeps = require "toeplab.store.sweeps"
local trial_files = require "toeplab.store.trial_files"

local summary = {}

summary.COLUMNS = 8 -- metrics in the table of trials
summary.MOST = 1000 -- trials that are listed one by one
summary.good = { done = true, queued = true, running = true, pruned = true }

-- ---- Trials -----------------------------------------------------------------------------------

local function details(store, id)
  local row = store:rows("SELECT * FROM v_trials WHERE id = ?", { id })[1]
  row.config, row.about = store:config(row.config), store:object(row.provenance)
  row.label = row.about.label or row.id:sub(1, 12)
  row.metrics = store:results(row.id)
  return row
end

-- Returns details of the first MOST of the trials (of frames.lua), and of the first MOST of those
-- that did not end well.
local function trials_of(store, all)
  local list, failed = {}, {}
  for i, t in ipairs(all) do
    local row = i <= summary.MOST and details(store, t.id)
    list[i] = row or nil
    if not summary.good[t.status] and #failed < summary.MOST then
      failed[#failed + 1] = row or details(store, t.id)
    end
  end
  return list, failed
end

-- Natural order: "ppl@64" before "ppl@512".
local function natural(a, b)
  local function key(name)
    return (name:gsub("%d+", function(digits) return ("%012d"):format(tonumber(digits)) end))
  end
  return key(a) < key(b)
end

-- Returns the metrics that get a column: those of the experiment's report or, if it names none,
-- preferably those that were logged once.
local function columns(frame, known)
  local once, often = {}, {}
  for _, name in ipairs(sorted_keys(known)) do
    local list = known[name] == 1 and once or often
    list[#list + 1] = name
  end
  table.sort(once, natural)
  local list, taken = {}, {}
  local function add(name)
    if known[name] and not taken[name] and #list < summary.COLUMNS then
      taken[name], list[#list + 1] = true, name
    end
  end
  for _, source in ipairs { frame.plan.columns or {}, once, { "loss" }, often } do
    for _, name in ipairs(source) do add(name) end
  end
  return list
end

-- ---- The experiment's own report --------------------------------------------------------------

-- Returns the functions that a report of the trials receives; they record their arguments in parts.
local function recorder(parts, trials, row_keys)
  local given = overlay(text_table, mean_table)
  function given.table(header, rows, _, note)
    parts[#parts + 1] = { kind = "table", header = header, rows = rows }
    if note then parts[#parts + 1] = { kind = "text", text = note } end
  end
  function given.plot(spec) parts[#parts + 1] = { kind = "plot", spec = spec } end
  given.print = given.table
  function given.scaling(spec)
    scaling_report.write(given, trials, spec, "", print, row_keys)
  end
  return given
end

-- Runs fn with print going into parts.
local function printing(parts, fn)
  local show = print
  rawset(_G, "print", function(...)
    local words = table.pack(...)
    for i = 1, words.n do words[i] = tostring(words[i]) end
    local text, last = table.concat(words, "\t"), parts[#parts]
    if last and last.kind == "text" then
      last.text = last.text .. "\n" .. text
    else
      parts[#parts + 1] = { kind = "text", text = text }
    end
  end)
  local ok, why = pcall(fn)
  rawset(_G, "print", show)
  return ok, why
end

-- Returns what the report of the script prints and draws, as a list of parts {kind="table",
-- header=, rows=}, {kind="plot", spec=}, {kind="text", text=}; nil if the report is a table of
-- columns or absent, or no trial is done. The second result says why it is missing or, if it
-- failed, incomplete; nil in all other cases. The script runs only if the file on disk is unchanged
-- and lies outside the results folder: that folder may come from somebody else, with a malicious
-- script.
local function own_report(store, sweep, trials)
  if trial_files.holds(store.folder, sweep.script) then
    return nil, ("%s lies in the results folder, which may come from somebody else, so it "
      .. "is not run"):format(sweep.script)
  end
  local text = core.sys.kind(sweep.script) == "file" and core.sys.read_file(sweep.script)
  if not text or core.sha256(text) ~= sweep.sha256 then
    return nil, ("%s is missing or has changed since it was run, so its own report is left out")
      :format(sweep.script)
  end
  local ok, exp = pcall(experiment.load, sweep.script)
  if not ok then return nil, "the script cannot be read: " .. errors.text(exp) end
  local list = store:finished(trials)
  if type(exp.report) ~= "function" or #list == 0 then return nil end
  local parts = {}
  local report = recorder(parts, list, rows_of.keys(exp.rows))
  local fine, why = printing(parts, function() exp.report(list, report) end)
  return parts, not fine and "the report of the script failed: " .. errors.text(why) or nil
end

-- ---- Origin ------------------------------------------------------------------------------------

-- Returns rows {number of trials, command, commit, host, version, threads, code}.
local function origins(trials)
  local rows, found = {}, {}
  for _, t in ipairs(trials) do
    if t.command then
      local commit = t.git_commit and t.git_commit:sub(1, 12) .. (t.git_dirty == 1
        and " with changes" or "") or "none"
      local row = { 0, shell.portable(secrets.text(t.command)), commit, t.host, t.about.version,
        t.about.threads, (t.code_hash or ""):sub(1, 12) }
      local key = ("%s\n"):rep(6):format(table.unpack(row, 2, 7))
      if not found[key] then
        found[key], rows[#rows + 1] = row, row
      end
      found[key][1] = found[key][1] + 1
    end
  end
  return rows
end

-- Returns rows {name of the data, sha256} of what the trials have read, which each stores by the
-- key that names it; the column data_hash is a hash over all of these.
local function data(trials)
  local rows, seen = {}, {}
  for _, t in ipairs(trials) do
    for _, key in ipairs(sorted_keys(t.about.data or {})) do
      local row = { config.show(t.config[key] or key), t.about.data[key] }
      local text = table.concat(row, "\n")
      if not seen[text] then seen[text], rows[#rows + 1] = true, row end
    end
  end
  return rows
end

local function events(store, trials)
  local list = {}
  for _, t in ipairs(trials) do
    for _, row in ipairs(store:rows([[SELECT kind, step, text FROM v_events
        WHERE trial = ? AND kind <> 'part' ORDER BY created, step]], { t.id })) do
      list[#list + 1] = { trial = t, kind = row.kind, step = row.step, text = row.text }
    end
  end
  return list
end

-- Collects everything about the sweeps of frame (frames.lua).
function summary.collect(store, frame)
  local sweep = sweeps.get(store, frame.sweeps[1].id)
  local all = frame:trials {}
  local trials, failed = trials_of(store, all)
  local ids, seconds, counts = {}, 0, {}
  for _, t in ipairs(all) do
    seconds, counts[t.status] = seconds + (t.seconds or 0), (counts[t.status] or 0) + 1
  end
  for i, t in ipairs(trials) do ids[i] = t.id end
  local set = groups.set(store, ids)
  local known = groups.metrics(set)
  local d = { frame = frame, sweep = sweep, trials = trials, failed = failed, total = #all,
    seconds = seconds, set = set, known = known,
    question = script_report.question(sweep.source), columns = columns(frame, known),
    counts = counts, origins = origins(trials), data = data(trials),
    events = events(store, trials), axes = frame:own_axes(all) }
  if #all == #trials then
    d.own, d.own_missing = own_report(store, sweep, trials)
  else
    d.own_missing = ("There are more than %d trials, so the experiment's own report is left out")
      :format(summary.MOST)
  end
  return d
end

return summary
