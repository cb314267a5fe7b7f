-- commands/plan.lua: toeplab plan: prints everything that a run would do, before it costs anything.
local arguments = require "toeplab.base.arguments"
local core = require "toeplab.core"
local estimate = require "toeplab.runs.estimate"
local experiment = require "toeplab.trials.experiment"
local identity = require "toeplab.trials.identity"
local json = require "toeplab.base.json"
local output = require "toeplab.report.output"
local plan = require "toeplab.trials.plan"
local progress = require "toeplab.base.progress"
local records = require "toeplab.store.records"
local text_table = require "toeplab.report.text_table"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local command = {
  example = "toeplab plan experiments/quickstart.lua\n"
    .. "  toeplab plan experiments/quickstart.lua scale=smoke seeds=5 -j4 --list",
  usage = "toeplab plan FILE [key=value...]",
  about = "Counts the trials of toeplab run with the same words: by axis, the excepted ones\n"
    .. "with their reasons, and those that are done, would continue, or would begin. Estimates\n"
    .. "time and disk from finished trials of the experiment: from those whose configuration\n"
    .. "differs in the fewest keys. Runs nothing.",
  options = {
    { name = "jobs", short = "j", value = "N", help = "estimate the time for N workers (1)" },
    { name = "list", short = "l", help = "also list the trials" },
    output.csv, output.json, output.dir,
  },
}

-- ---- The plan ----------------------------------------------------------------------------------

-- Returns the state of trial t: status, the step from which it would resume, the seconds spent, and
-- whether the present code alone ran it.
local function state_of(store, t)
  local status, row = nil, nil
  if store then status, row = store:status(t.id) end
  if not status then return "new" end
  local kept = store:rows([[SELECT max(step) AS step FROM v_artifacts
    WHERE trial = ? AND kind = 'checkpoint']], { t.id })[1].step
  return status, kept, row.seconds, row.code_hash == t.code_hash and not row.mixed
end

local over = { done = true, pruned = true }

-- Adds to each trial its state and its estimated time; returns all counts as a table.
local function add_states(store, exp, trials)
  local model = store and estimate.new(store, exp.name)
  local p = { trials = #trials, done = 0, other_code = 0, resumable = 0, to_run = 0, times = {},
    unknown = 0, finished = model and model.finished or 0, farthest = 0, learnt = model }
  for _, t in ipairs(trials) do
    local present
    t.status, t.step, t.had, present = state_of(store, t)
    if over[t.status] then
      p.done = p.done + 1
      if not present then p.other_code = p.other_code + 1 end
    else
      p.to_run = p.to_run + 1
      if t.step then p.resumable = p.resumable + 1 end
      local far
      if model then t.seconds, far = model:left(t.config, t.step, t.had) end
      if t.seconds then
        p.times[#p.times + 1], p.farthest = t.seconds, math.max(p.farthest, far)
        if not p.longest or t.seconds > p.longest.seconds then p.longest = t end
      else
        p.unknown = p.unknown + 1
      end
    end
  end
  return p
end

-- Returns the mean bytes of the files of a finished trial of the experiment; nil if there is none.
local function mean_bytes(store, name)
  return store:rows([[SELECT total(a.bytes) / count(DISTINCT t.id) AS bytes FROM v_trials t
    LEFT JOIN v_artifacts a ON a.trial = t.id
    WHERE t.experiment = ? AND t.status = 'done']], { name })[1].bytes
end

local function make_plan(path, words, set)
  local exp = experiment.load(path)
  local trials, about = plan.trials(exp, words)
  identity.identify(exp, trials)
  local folder = records.folder(set.dir)
  local store <close> = core.sys.exists(folder .. "/runs.db") and records.open(folder, "r") or nil
  if store then identity.find_earlier(store, exp, trials) end
  local p = add_states(store, exp, trials)
  p.jobs = arguments.integer("plan", set, "jobs", 1) or 1
  p.seconds = #p.times > 0 and estimate.makespan(p.times, p.jobs) or nil
  local bytes = store and mean_bytes(store, exp.name)
  p.bytes = bytes and math.floor(bytes * p.to_run) or nil
  p.free = core.sys.free_space(records.nearest(folder))
  p.exp, p.list, p.about, p.path, p.learnt = exp, trials, about, path, nil
  return p
end

-- ---- Text of axes and rules --------------------------------------------------------------------

local function axis(key, list) return ("%s(%d)"):format(key, #list) end

-- Formats the axes: "decay(3) x zip{batch,length}(2) x random{lr}(20) x seeds(3)".
local function product_text(about)
  local values, parts = about.values, {}
  for _, key in ipairs(suggest.keys(values.axes)) do
    parts[#parts + 1] = axis(key, values.axes[key])
  end
  for _, axes in ipairs(values.zips) do
    local keys = suggest.keys(axes)
    parts[#parts + 1] = ("zip{%s}(%d)"):format(table.concat(keys, ","), #axes[keys[1]])
  end
  if next(values.random) then
    parts[#parts + 1] = ("random{%s}(%d)"):format(
      table.concat(suggest.keys(values.random), ","), values.draws)
  end
  parts[#parts + 1] = axis("seeds", about.seeds)
  return table.concat(parts, " x ")
end

-- Formats a rule: "when model=ski: rank(2)".
local function rule_text(r)
  local where, adds = {}, {}
  if type(r.where) == "function" then
    where[1] = "a function fits"
  else
    for i, key in ipairs(suggest.keys(r.where)) do
      where[i] = key .. "=" .. plan.show(r.where[key])
    end
  end
  for _, key in ipairs(suggest.keys(r.fixed or {})) do
    adds[#adds + 1] = key .. "=" .. plan.show(r.fixed[key])
  end
  for _, key in ipairs(suggest.keys(r.grid or {})) do adds[#adds + 1] = axis(key, r.grid[key]) end
  return ("when %s: %s"):format(table.concat(where, " "), table.concat(adds, " "))
end

-- Groups the excluded points by their reasons: {reason=, count=, labels=}, in order.
local function exceptions(about)
  local list, known = {}, {}
  for _, out in ipairs(about.left_out) do
    local group = known[out.reason]
    if not group then
      group = { reason = out.reason, labels = {} }
      known[out.reason], list[#list + 1] = group, group
    end
    table.insert(group.labels, out.label)
  end
  return list
end

-- ---- Output -----------------------------------------------------------------------------------

-- Describes the basis of the time estimate.
local function estimate_basis(p)
  local trials = output.count(p.finished, "finished trial")
  if p.farthest == 0 then return ("from %s of the same configurations"):format(trials) end
  return ("from %s; the nearest differ in up to %s"):format(trials,
    output.count(p.farthest, "key"))
end

local function time_line(p)
  if p.to_run == 0 then return nil end
  if not p.seconds then return "unknown: no trial of this experiment has finished here" end
  return ("%s with %s (%s)%s"):format(progress.duration(p.seconds),
    output.count(p.jobs, "worker"), estimate_basis(p),
    p.unknown > 0 and (", without %d of no known time"):format(p.unknown) or "")
end

local function disk_line(p)
  if p.to_run == 0 or not p.bytes then return nil end
  local free = p.free and (" (%s free%s)"):format(output.bytes(p.free),
    p.free < 2 * p.bytes and ": too little" or "") or ""
  return output.bytes(p.bytes) .. free
end

local function show(p)
  local seeds, rows = #p.about.seeds, {}
  local function add(what, count, more) rows[#rows + 1] = { "  " .. what, count, more or "" } end
  print(("%s  %s, script %s"):format(p.exp.name, p.path, core.sha256(p.exp.text):sub(1, 12)))
  add(product_text(p.about), ("%d"):format(p.about.counts[1] * seeds))
  for i, r in ipairs(p.about.values.when) do
    add(rule_text(r), ("+%d"):format((p.about.counts[i + 1] - p.about.counts[i]) * seeds))
  end
  for _, group in ipairs(exceptions(p.about)) do
    add("except " .. group.reason, ("-%d"):format(#group.labels * seeds),
      group.labels[1] .. (#group.labels > 1 and ", ..." or ""))
  end
  if p.done > 0 then
    add("already done", ("-%d"):format(p.done), p.other_code > 0
      and ("%d of them by other code (run --redo makes them again)"):format(p.other_code) or nil)
  end
  add("to run", tostring(p.to_run), p.resumable > 0
    and ("%d of them from a checkpoint"):format(p.resumable) or nil)
  local width = 0
  for _, row in ipairs(rows) do width = math.max(width, #row[2]) end
  for _, row in ipairs(rows) do row[2] = (" "):rep(width - #row[2]) .. row[2] end
  for i, line in ipairs(text_table.lines({ "", "", "" }, rows)) do
    if i > 1 then print(line) end
  end
  local longest = p.longest and #p.times > 1 and ("%s, %s"):format(p.longest.label,
    progress.duration(p.longest.seconds))
  for _, line in ipairs { { "time", time_line(p) }, { "disk", disk_line(p) },
    { "longest", longest or nil } } do
    if line[2] then print(("  %-8s %s"):format(line[1], line[2])) end
  end
end

local function as_list(p, set)
  local rows = {}
  local plain = not set.csv and not set.json
  for i, t in ipairs(p.list) do
    local seconds = t.seconds
    rows[i] = { plain and t.id:sub(1, 12) or t.id, t.status, t.step,
      plain and seconds and progress.duration(seconds) or seconds, t.label }
  end
  for _, out in ipairs(p.about.left_out) do
    rows[#rows + 1] = { nil, "excepted", nil, nil, out.label .. ": " .. out.reason }
  end
  output.rows(set, { "id", "status", "step", plain and "time" or "seconds", "trial" }, rows)
end

local names = { "experiment", "trials", "excepted", "done", "other_code", "resumable", "to_run",
  "jobs", "seconds", "finished", "farthest", "unknown", "longest", "longest_seconds", "bytes",
  "free" }

-- Prints the counts for programs: one object, or lines name,value.
local function as_values(p, set)
  local all = { experiment = p.exp.name, excepted = #p.about.left_out * #p.about.seeds,
    longest = p.longest and p.longest.label, longest_seconds = p.longest and p.longest.seconds }
  local rows = {}
  for _, name in ipairs(names) do
    if all[name] == nil and name ~= "longest" then all[name] = p[name] end
    rows[#rows + 1] = { name, all[name] }
  end
  if set.json then print(json.line(all)) else io.write(text_table.csv({ "name", "value" },
    rows)) end
end

function command.run(set, words)
  output.check("plan", set)
  local path = table.remove(words, 1)
  if not path then errors.usage("plan: which experiment? Give the path of its file") end
  if path:find("=") then
    errors.usage("plan: the file comes first, then key=value; got '%s'", path)
  end
  local p = make_plan(path, words, set)
  if set.list then
    as_list(p, set)
  elseif set.csv or set.json then
    as_values(p, set)
  else
    show(p)
  end
  return errors.DONE
end

return command
