-- runs/summary.lua: prints the report and the summary line at the end of a run, and warns about
-- keys and metrics that no trial used.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local progress = require "toeplab.base.progress"
local mean_table = require "toeplab.report.mean_table"
local overlay = require "toeplab.base.overlay"
local prepare = require "toeplab.runs.prepare"
local rounds = require "toeplab.runs.rounds"
local rows = require "toeplab.trials.rows"
local sheet = require "toeplab.report.script_report"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"
local text_table = require "toeplab.base.text_table"
local versions = require "toeplab.report.versions"

local summary = {}

-- Returns whether the command chose one of the values that the script declares for an axis.
local function narrowed(run, key)
  local first = json.encode { run.trials[1].point[key] }
  for _, t in ipairs(run.trials) do
    if json.encode { t.point[key] } ~= first then return false end
  end
  return #(run.exp:axes()[key] or {}) > 1
end

-- Adds to the set reads the keys that finished trials of the run read, also in earlier runs. Their
-- workers recorded the other keys (worker.lua); earlier releases, and trials that resumed, recorded
-- none, and count as having read all.
local function add_stored_reads(run, reads)
  local unread = {}
  for _, row in ipairs(run.records:rows "SELECT trial, text FROM v_events WHERE kind = 'unread'") do
    unread[row.trial] = row.text
  end
  for _, t in ipairs(run.trials) do
    local skip = {}
    for key in (unread[t.id] or ""):gmatch "%S+" do skip[key] = true end
    for key in pairs(prepare.is_finished(run.exp, t.status) and t.config or {}) do
      reads[key] = reads[key] or not skip[key]
    end
  end
end

-- Warns about keys of fixed or rows that no trial read, which may be misspelt (weight_deacy). Does
-- not warn if some trials are not done, or the command omitted values of an axis, because those
-- trials may read the key.
local function warn_fixed(run, counts, reads)
  if counts.done + counts.skipped ~= #run.trials then return end
  for _, key in ipairs(sorted_keys(run.exp:axes())) do
    if narrowed(run, key) then return end
  end
  local unread = {}
  for _, key in ipairs(sorted_keys(overlay(rows.keys(run.exp.rows), run.exp.fixed))) do
    if not reads[key] and not run.exp.always[key] then unread[#unread + 1] = key end
  end
  if #unread == 0 then return end
  run.progress:warn("%s: no trial read %s%s: is the name misspelt, or is the key not needed?",
    run.exp:where(unread[1]), "'" .. table.concat(unread, "', '") .. "'",
    run.scale ~= "" and " at scale " .. run.scale or "")
end

-- Notes which values of fixed a scale replaces: a key that the script sets there, such as corpus,
-- has no effect at that scale. Keys of the command line (the set given) count over both.
function summary.note_scale(run, given)
  local keys, set = {}, run.exp.scale[run.scale] or {}
  for _, key in ipairs(sorted_keys(set)) do
    local value = run.exp.fixed[key]
    if value ~= nil and not given[key] and json.encode { value } ~= json.encode { set[key] } then
      keys[#keys + 1] = key
    end
  end
  if #keys == 0 then return end
  run.progress:note("scale %s replaces the values in fixed of %s", run.scale,
    table.concat(keys, ", "))
end

-- Warns after the first trial about axes that it did not read. check_read raises at the end of the
-- run if no trial has read an axis.
function summary.warn_axes(run, reads)
  local conditional = {}
  rows.add_reads(run.exp.rows, reads)
  for _, rule in ipairs(run.exp.when or {}) do
    for key in pairs(rule.grid or {}) do conditional[key] = true end
  end
  for _, key in ipairs(run.axes) do
    if not reads[key] and not conditional[key] then
      run.progress:warn("%s: the first trial did not read '%s'; if none does, its values make no "
        .. "difference", run.exp:where(key), key)
    end
  end
end

-- Raises if no trial read an axis: all its values then gave the same trial.
local function check_axes(run, counts, reads)
  if counts.done + counts.skipped == 0 then return end
  rows.add_reads(run.exp.rows, reads)
  for _, key in ipairs(run.axes) do
    if not reads[key] and not narrowed(run, key) then
      errors.usage("%s: no trial read '%s', so its values made no difference: read it or remove it",
        run.exp:where(key), key)
    end
  end
end

-- Warns about fixed keys, and raises for an axis, that no trial read, now or in an earlier run.
-- reads: the set of the keys that trials read now.
function summary.check_read(run, counts, reads)
  add_stored_reads(run, reads)
  warn_fixed(run, counts, reads)
  check_axes(run, counts, reads)
end

-- Returns the set of the names of all metrics that the trials logged.
local function names_logged(trials)
  local set = {}
  for _, t in ipairs(trials) do
    for name in pairs(t.metrics) do set[name] = true end
  end
  return set
end

-- Returns the finished trials that have the chosen value of a tuned key.
local function chosen(run, finished)
  local tune, list, results, points, kept = run.exp.tune, {}, {}, {}, {}
  if not run.exp.tuned then return finished end
  for _, t in ipairs(finished) do results[t.id] = t.metrics[tune.metric] end
  for i, t in ipairs(run.trials) do
    list[i] = { at = t.point, seed = t.seed, status = t.status, result = results[t.id] }
    points[t.id] = t.point
  end
  local counts = versions.chosen(list, tune.key, tune.goal)
  for _, t in ipairs(finished) do kept[#kept + 1] = counts(points[t.id]) and t or nil end
  return kept
end

-- Prints a table of all metrics, for experiments that declare no report.
local function plain_report(trials)
  local names, rows = sorted_keys(names_logged(trials)), {}
  for i, t in ipairs(trials) do
    rows[i] = { t.label }
    for c, name in ipairs(names) do rows[i][c + 1] = t.metrics[name] end
  end
  text_table.print({ "trial", table.unpack(names) }, rows)
end

-- Warns if no trial logged a metric that a field of the script names, which may be misspelt.
-- effect: the consequence, or "".
local function warn_absent(run, logged, field, name, effect)
  if logged[name] then return end
  run.progress:warn("%s: no trial logged '%s'%s%s", run.exp:where(field), name, effect,
    suggest.hint(name, sorted_keys(logged)))
end

function summary.show_report(run)
  local trials, wanted = chosen(run, run.records:finished(run.trials)), run.exp.report
  if #trials == 0 then return end
  local logged = names_logged(trials)
  for _, field in ipairs { "guard", "prune" } do
    local spec = run.exp[field]
    if spec then
      warn_absent(run, logged, field, spec.metric, (", so that %s did nothing"):format(field))
    end
  end
  if type(wanted) == "function" then
    local ok, why = xpcall(wanted, run.exp:handler(), trials, sheet.new { folder = run.folder,
      name = run.exp.name, scale = run.scale, text = run.exp.text, progress = run.progress,
      trials = trials, row_keys = rows.keys(run.exp.rows) })
    if not ok then
      error(type(why) ~= "string" and why or why
        .. "\n(The report failed. All results are stored: the same command reports again.)", 0)
    end
  elseif wanted then
    text_table.print(mean_table.by({ rows = wanted.rows or run.axes, columns = wanted.columns },
      trials))
    for _, name in ipairs(wanted.columns) do
      if not run.exp:sets(name) then warn_absent(run, logged, "columns", name, "") end
    end
  else
    plain_report(trials)
  end
end

local kinds = { { "done", "done" }, { "skipped", "already done" }, { "pruned", "pruned" },
  { "failed", "failed" }, { "stopped", "stopped (the same command continues)" },
  { "taken", "run by other processes" }, { "removed", "removed" } }

-- Returns the counts of trials as a string: "3 trials: 2 done, 1 failed". counts may lack kinds.
function summary.counts_text(run, counts)
  local parts = {}
  for _, kind in ipairs(kinds) do
    local count = counts[kind[1]] or 0
    if count > 0 then parts[#parts + 1] = count .. " " .. kind[2] end
  end
  if #parts == 0 then parts[1] = "none of them here" end -- but in no task yet
  return ("%d trial%s: %s"):format(#run.trials, #run.trials == 1 and "" or "s",
    table.concat(parts, ", "))
end

local function print_counts(run, counts, seconds)
  run.progress:say("%s  (%s, %s)", summary.counts_text(run, counts), progress.duration(seconds),
    run.folder)
  if counts.failed > 3 then
    run.progress:say("toeplab ls --failures %s groups them by their causes", run.exp.name)
  end
end

-- Prints the results of all trials and their summary. counts: {done=, failed=, pruned=, skipped=};
-- began: the time of the run's start.
function summary.conclude(run, counts, began, options)
  summary.show_report(run)
  rounds.show(run.chosen)
  if not options.quiet or counts.failed > 0 then
    print_counts(run, counts, core.sys.clock() - began)
  end
end

return summary
