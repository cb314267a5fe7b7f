-- commands/plan.lua: toeplab plan: prints what a run would do and cost, without running anything.
local arguments = require "toeplab.base.arguments"
local core = require "toeplab.core"
local estimate = require "toeplab.runs.estimate"
local identity = require "toeplab.trials.identity"
local json = require "toeplab.base.json"
local output = require "toeplab.report.output"
local config = require "toeplab.base.config"
local plan = require "toeplab.trials.plan"
local prepare = require "toeplab.runs.prepare"
local progress = require "toeplab.base.progress"
local quantity = require "toeplab.base.quantity"
local rates = require "toeplab.bench.rates"
local records = require "toeplab.store.records"
local runner = require "toeplab.runs.runner"
local resolution = require "toeplab.report.verdicts.resolution"
local shell = require "toeplab.base.shell"
local text_table = require "toeplab.base.text_table"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local trial_files = require "toeplab.store.trial_files"
local workload = require "toeplab.runs.workload"

local command = {
  example = "toeplab plan experiments/quickstart.lua\n"
    .. "  toeplab plan experiments/quickstart.lua scale=smoke seeds=5 -j4 --list",
  usage = "toeplab plan FILE [key=value...]",
  about = "Counts the trials of toeplab run with the same words: by axis, the excluded ones\n"
    .. "with their reasons, and those that are done, would continue, or would start. Estimates\n"
    .. "time, as a range, core-hours and disk from the cost of the models (FLOP, memory) and\n"
    .. "from finished trials of the experiment: from those whose configuration differs in the\n"
    .. "fewest keys, or else from the rates of the machine. Prints which difference of two rows\n"
    .. "the seeds detect 4 times in 5, if trials have finished. With\n"
    .. "seeds=\"until P %\": how many trials are run at least, and at most. Trains nothing.",
  words = { "experiment", "keys" },
  options = {
    { name = "jobs", short = "j", value = "N", help = "estimate the time for N workers (1)" },
    { name = "list", short = "l", help = "list the trials instead" },
    output.csv, output.json, output.dir,
  },
}

-- ---- The plan ----------------------------------------------------------------------------------

-- Returns the state of trial t: status, the step from which it would resume, the seconds spent, and
-- whether the present code alone ran it.
local function state_of(store, t)
  local status, row = nil, nil
  if store and t.id then status, row = store:status(t.id) end
  if not status then return "new" end
  local kept = store:rows([[SELECT max(step) AS step FROM v_artifacts
    WHERE trial = ? AND kind = 'checkpoint']], { t.id })[1].step
  return status, kept, row.seconds, row.code_hash == t.code_hash and not row.mixed
end

-- Adds to each trial its state, its estimated time and its cost; returns all counts as a table.
-- machine: of estimate.new.
local function add_states(store, exp, trials, machine)
  local model = estimate.new(store, exp.name, machine)
  local p = { trials = #trials, done = 0, other_code = 0, resumable = 0, to_run = 0, times = {},
    lows = {}, highs = {}, after = 0.0, unknown = 0, finished = model.finished, gpu_seconds = 0.0,
    by_rates = 0, by_finished = 0, farthest = 0, differ = {}, model = model, cost = workload.sum() }
  for _, t in ipairs(trials) do
    local present
    t.status, t.step, t.had, present = state_of(store, t)
    if prepare.is_finished(exp, t.status) then
      p.done = p.done + 1
      if not present then p.other_code = p.other_code + 1 end
    else
      p.to_run = p.to_run + 1
      if t.step then p.resumable = p.resumable + 1 end
      p.cost:add(t, machine.cost(t.config))
      local about = model:left(t.config, t.step, t.had)
      if about then
        local n = #p.times + 1
        t.seconds = about.seconds
        p.times[n], p.lows[n], p.highs[n] = t.seconds, about.low, about.high
        p.after, p.farthest = p.after + about.after, math.max(p.farthest, about.far)
        for _, key in ipairs(about.keys) do p.differ[key] = true end
        local basis = about.trials == 0 and "by_rates" or "by_finished"
        p[basis] = p[basis] + 1
        p.scaled = p.scaled or about.scaled
        if t.config.device ~= "cpu" then p.gpu_seconds = p.gpu_seconds + t.seconds end
        t.low, t.high = about.low, about.high
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

-- Returns the mean number of threads of finished trials of the experiment; nil if there is none.
local function mean_threads(store, name)
  return store:rows([[SELECT avg(json_extract(provenance, '$.threads')) AS threads FROM v_trials
    WHERE experiment = ? AND status = 'done']], { name })[1].threads
end

-- Adds to the plan p the trials that a run with seeds = "until 2 %" may add: chosen (of
-- rounds.choose), later (their number) and later_seconds (nil: unknown).
local function add_later(store, p, exp, words, chosen, machine)
  if not chosen then return end
  local asked = exp.asked
  exp.asked = chosen.limit
  local all = plan.trials(exp, words)
  identity.identify_if_here(exp, all, store)
  exp.asked = asked
  local every = add_states(store, exp, all, machine)
  p.chosen, p.later = chosen, every.to_run - p.to_run
  if #every.times == every.to_run and p.seconds then
    p.later_seconds = estimate.makespan(every.times, p.jobs) - p.seconds
  end
end

-- Adds to the plan p the sums over its trials: time, work and disk. Where the time of a trial is
-- unknown, the low end is that of the others, a lower bound, and the other sums are nil.
local function add_sums(store, p, exp, threads)
  p.bytes = p.cost:disk(store and mean_bytes(store, exp.name), p.model:checkpoint(), p.to_run,
    p.by_finished == p.to_run)
  if #p.times == 0 then return end
  p.seconds_low = estimate.makespan(p.lows, p.jobs)
  if p.unknown > 0 then return end
  p.seconds = estimate.makespan(p.times, p.jobs)
  p.seconds_high = estimate.makespan(p.highs, p.jobs)
  p.threads = store and p.by_finished > 0 and mean_threads(store, exp.name) or threads
  local sum = 0.0
  for _, seconds in ipairs(p.times) do sum = sum + seconds end
  p.core_hours = sum * p.threads / 3600
  p.gpu_hours = p.gpu_seconds > 0 and p.gpu_seconds / 3600 or nil
end

-- Returns the number of trials at each scale of the experiment with the same other words, "quick
-- (18 trials), smoke (30)", sorted; nil without scales.
local function scales_text(exp, words)
  local others, parts = {}, {}
  for _, word in ipairs(words) do
    if not word:find "^scale=" then others[#others + 1] = word end
  end
  for _, name in ipairs(sorted_keys(exp.scale)) do
    local given = table.move(others, 1, #others, 1, {})
    given[#given + 1] = "scale=" .. name
    local ok, trials = pcall(plan.trials, exp, given)
    if ok then
      parts[#parts + 1] = ("%s (%s)"):format(name, #parts > 0 and #trials
        or output.count(#trials, "trial"))
    end
  end
  return parts[1] and table.concat(parts, ", ")
end

-- Returns the first column of the report, or, if the report is a function, the metric by which tune
-- chooses; nil if there is neither.
local function first_metric(exp)
  return type(exp.report) == "table" and exp.report.columns[1] or exp.tune and exp.tune.metric
end

local function make_plan(exp, path, words, set, chosen)
  local trials, about = plan.trials(exp, words, errors.say)
  local folder = records.folder(set.dir)
  local store <close> = prepare.stored(folder)
  local absent = identity.identify_if_here(exp, trials, store)
  local jobs = arguments.integer("plan", set, "jobs", 1) or 1
  local threads = math.max(1, core.threads() // jobs) -- as run gives each worker
  local machine = { cost = workload.new(exp), rates = rates.of(store, threads) }
  local p = add_states(store, exp, trials, machine)
  p.jobs, p.absent = jobs, absent
  add_sums(store, p, exp, threads)
  p.free = core.sys.free_space(trial_files.nearest(folder))
  p.resolution = store and not about.values.rule
    and resolution.of(store, trials, first_metric(exp), #about.seeds) or nil
  add_later(store, p, exp, words, chosen, machine)
  p.exp, p.list, p.about, p.path = exp, trials, about, path
  return p
end

-- ---- Text of axes and rules --------------------------------------------------------------------

local function axis(key, list) return ("%s(%d)"):format(key, #list) end

-- Formats the axes: "decay(3) x zip{batch,length}(2) x random{lr}(20) x seeds(3)".
local function product_text(about)
  local values, parts = about.values, {}
  for _, key in ipairs(sorted_keys(values.axes)) do
    parts[#parts + 1] = axis(key, values.axes[key])
  end
  for _, axes in ipairs(values.zips) do
    local keys = sorted_keys(axes)
    parts[#parts + 1] = ("zip{%s}(%d)"):format(table.concat(keys, ","), #axes[keys[1]])
  end
  if next(values.random) then
    parts[#parts + 1] = ("random{%s}(%d)"):format(
      table.concat(sorted_keys(values.random), ","), values.draws)
  end
  local rule = about.values.rule
  parts[#parts + 1] = rule and ("seeds(%d to %d)"):format(rule.looks[1], rule.most)
    or axis("seeds", about.seeds)
  return table.concat(parts, " x ")
end

-- Formats a rule: "when model=ski: rank(2)". given: the keys that the command line sets, which a
-- rule leaves as they are.
local function rule_text(r, given)
  local where, adds = {}, {}
  if type(r.where) == "function" then
    where[1] = "a function matches"
  else
    for i, key in ipairs(sorted_keys(r.where)) do
      where[i] = key .. "=" .. config.show(r.where[key])
    end
  end
  for _, key in ipairs(sorted_keys(r.fixed or {})) do
    if not given[key] then adds[#adds + 1] = key .. "=" .. config.show(r.fixed[key]) end
  end
  for _, key in ipairs(sorted_keys(r.grid or {})) do
    if not given[key] then adds[#adds + 1] = axis(key, r.grid[key]) end
  end
  if #adds == 0 then adds[1] = "nothing, since the command line sets its keys" end
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

local MOST_KEYS = 4 -- that a line names

-- Describes the basis of the time estimate.
local function estimate_basis(p)
  local trials, keys = output.count(p.finished, "finished trial"), sorted_keys(p.differ)
  local rates = "from FLOP, bytes and the rates of the device; steps only"
  if p.by_finished == 0 then return rates end
  local mixed = p.by_rates > 0 and ("; %d of %d trials %s"):format(p.by_rates, #p.times, rates)
    or ""
  if #keys == 0 then return ("from the same configurations among %s%s"):format(trials, mixed) end
  return ("from %s; the nearest differ in %s%s%s%s"):format(trials,
    table.concat(keys, ", ", 1, math.min(#keys, MOST_KEYS)),
    #keys > MOST_KEYS and " and " .. output.count(#keys - MOST_KEYS, "more key") or "",
    p.scaled and "; scaled with the cost of a step" or "", mixed)
end

-- Returns the range of a time: "12m to 18m" or, where both ends read the same, "about 12m".
local function time_range(from, to)
  local low, high = progress.duration(from), progress.duration(to)
  return low == high and "about " .. low or low .. " to " .. high
end

-- Returns why the time of trials is unknown.
local function why_unknown(p)
  local none = p.finished == 0 and "no trial of this experiment has finished here"
    or "the finished trials are of another size"
  if p.cost.unknown > 0 then
    return none .. (p.finished > 0 and ", and the cost is not known" or "")
  end
  if p.cost.trials == 0 then return none end
  return none .. (p.cost.flop
    and shell.named ", and no rate of its GPU is stored here: toeplab bench gpu measures it"
    or ", and no key 'steps' tells how long it trains")
end

local function time_line(p)
  if p.to_run == 0 then return nil end
  if #p.times == 0 then return "unknown: " .. why_unknown(p) end
  local workers = output.count(p.jobs, "worker")
  if p.jobs > p.to_run then
    workers = ("%s, only %s can run at once"):format(workers, output.count(p.to_run, "trial"))
  end
  if p.unknown > 0 then
    return ("at least %s with %s (%d of %d trials, %s); the others: %s"):format(
      progress.duration(p.seconds_low), workers, #p.times, p.to_run, estimate_basis(p),
      why_unknown(p))
  end
  return ("%s with %s (%s)"):format(time_range(p.seconds_low, p.seconds_high), workers,
    estimate_basis(p))
end

local function after_line(p)
  if not p.seconds or p.after < 1 then return nil end
  local sum = 0.0
  for _, seconds in ipairs(p.times) do sum = sum + seconds end
  return ("%.0f %% of it after the last step of each trial, as for an evaluation: %s a trial")
    :format(100 * p.after / sum, progress.duration(p.after / #p.times))
end

local function work_line(p)
  if not p.core_hours then return nil end
  local gpus = p.gpu_hours and ("%s GPU-hours, "):format(quantity.short(p.gpu_hours)) or ""
  return ("%s%s core-hours (threads of a %s: %.3g)"):format(gpus, quantity.short(p.core_hours),
    p.by_finished > 0 and "finished trial" or "worker", p.threads)
end

local function disk_line(p)
  if p.to_run == 0 then return nil end
  if not p.bytes then return p.finished > 0 and "unknown" or nil end
  local free = p.free and (" (%s free%s)"):format(output.bytes(p.free),
    p.free < 2 * p.bytes and ": too little" or "") or ""
  return output.bytes(p.bytes) .. free
end

local function resolution_line(p)
  local r = p.resolution
  return r and ("%.2g %% of %s with %d paired seeds, 4 times in 5; %s spread by %.2g %% (%s)")
    :format(100 * r.share, r.metric, #p.about.seeds,
      r.pairs > 0 and "differences at a seed" or "differences of independent rows would",
      100 * r.spread, r.pairs > 0 and output.count(r.pairs, "pair") .. " of finished rows"
        or "from " .. output.count(r.rows, "finished row"))
end

local function later_line(p)
  local rule = p.about.values.rule
  if not rule then return nil end
  local compared, with = p.about.values.compared, {}
  for i, key in ipairs(sorted_keys(compared.with)) do
    with[i] = key .. "=" .. config.show(compared.with[key])
  end
  local more = ""
  if p.chosen and p.later + p.to_run == 0 then
    more = "; all rows have stopped"
  elseif p.chosen then
    more = ("; at least the %s to run, and at most %d more%s"):format(
      output.count(p.to_run, "trial"), p.later, p.later > 0 and p.later_seconds
        and ", about " .. progress.duration(p.later_seconds) or "")
  end
  return ("%g %% of %s over %s; looks at %s seeds%s"):format(rule.percent, compared.metric,
    table.concat(with, " "), table.concat(rule.looks, ", "), more)
end

local function show(p)
  local seeds, rows = #p.about.seeds, {}
  local function add(what, count, more) rows[#rows + 1] = { "  " .. what, count, more or "" } end
  print(("%s  %s, script %s"):format(p.exp.name, p.path, core.sha256(p.exp.text):sub(1, 12)))
  add(product_text(p.about), ("%d"):format(p.about.counts[1] * seeds))
  for i, r in ipairs(p.about.values.when) do
    local more = p.about.counts[i + 1] - p.about.counts[i]
    add(rule_text(r, p.about.values.given), ("+%d"):format(more * seeds))
  end
  for _, group in ipairs(exceptions(p.about)) do
    add("except " .. group.reason, ("-%d"):format(#group.labels * seeds),
      group.labels[1] .. (#group.labels > 1 and ", ..." or ""))
  end
  if p.done > 0 then
    add("already done", ("-%d"):format(p.done), p.other_code > 0
      and ("%d of them by other code (run --redo runs them again)"):format(p.other_code) or nil)
  end
  if p.later and p.later > 0 then
    add("if a look requires them", ("-%d"):format(p.later))
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
    time_range(p.longest.low, p.longest.high))
  local before = p.tuned_by and ("%s chooses the values of %s for each point"):format(p.tuned_by,
    p.exp.tune.key)
  for _, line in ipairs { { "time", time_line(p) }, { "after", after_line(p) },
    { "work", work_line(p) }, { "cost", p.cost:text() },
    { "disk", disk_line(p) }, { "longest", longest or nil }, { "until", later_line(p) },
    { "resolves", resolution_line(p) },
    { "before", before }, { "scales", p.scales },
    { "data", p.absent and p.absent .. ": unknown which trials are done" },
    { "code", p.exp.reach.whole and "the whole script counts: " .. p.exp.reach.whole } } do
    if line[2] then print(("  %-8s %s"):format(line[1], line[2])) end
  end
  for _, line in ipairs(prepare.why_new(p.list)) do print("  " .. line) end
end

-- Prints the trials of the plans.
local function print_list(plans, set)
  local rows = {}
  local plain = not set.csv and not set.json
  for _, p in ipairs(plans) do
    for _, t in ipairs(p.list) do
      local seconds = t.seconds
      -- A key that is yet to be tuned is part of a trial's id.
      local id = not p.tuned_by and t.id and (plain and t.id:sub(1, 12) or t.id) or nil
      rows[#rows + 1] = { id, t.status, t.step,
        plain and seconds and progress.duration(seconds) or seconds, t.label, p.exp.name }
    end
    for _, out in ipairs(p.about.left_out) do
      rows[#rows + 1] = { nil, "excepted", nil, nil, out.label .. ": " .. out.reason, p.exp.name }
    end
  end
  local header = { "id", "status", "step", plain and "time" or "seconds", "trial" }
  if not plain or #plans > 1 then header[#header + 1] = "experiment" end
  output.rows(set, header, rows)
end

local names = { "experiment", "trials", "excepted", "done", "other_code", "resumable", "to_run",
  "later", "later_seconds", "jobs", "seconds", "seconds_low", "seconds_high", "core_hours",
  "gpu_hours", "flop", "step_flop", "memory", "checkpoint", "without_cost",
  "finished", "farthest", "unknown", "longest", "longest_seconds", "bytes", "free", "resolves",
  "resolves_metric", "spread" }

-- Returns the counts for programs as lists {name, value}, in order, and as a table.
local function values_of(p)
  local all = { experiment = p.exp.name, excepted = #p.about.left_out * #p.about.seeds,
    longest = p.longest and p.longest.label, longest_seconds = p.longest and p.longest.seconds,
    resolves = p.resolution and p.resolution.share, spread = p.resolution and p.resolution.spread,
    resolves_metric = p.resolution and p.resolution.metric,
    flop = p.cost.unknown == 0 and p.cost.flop or nil,
    step_flop = p.cost.step, memory = p.cost.memory, checkpoint = p.cost.checkpoint,
    without_cost = p.cost.unknown }
  local rows = {}
  for _, name in ipairs(names) do
    if all[name] == nil and name ~= "longest" then all[name] = p[name] end
    local asked = p.chosen or not name:find "^later"
    if asked then rows[#rows + 1] = { name, all[name] } end
  end
  return rows, all
end

-- Prints the counts for programs: an object a line for each plan, or lines name,value, of which
-- `experiment` begins a plan.
local function print_values(plans, set)
  local lines = {}
  for _, p in ipairs(plans) do
    local rows, all = values_of(p)
    table.move(rows, 1, #rows, #lines + 1, lines)
    if set.json then print(json.line(all)) end
  end
  if set.csv then io.write(text_table.csv({ "name", "value" }, lines)) end
end

function command.run(set, words)
  output.check("plan", set)
  local path = table.remove(words, 1)
  if not path then errors.usage("plan: which experiment? Give the path of its file") end
  if path:find("=") then
    errors.usage("plan: the file comes first, then key=value; got '%s'", path)
  end
  local stages, missing, exp = runner.stages(path, words, set.dir)
  if missing > 0 then stages[2] = runner.main_stage(exp, words) end
  local plans = {}
  for i, stage in ipairs(stages) do
    plans[i] = make_plan(stage.exp, path, stage.words, set, stage.chosen)
    if missing > 0 and i == 2 then plans[i].tuned_by = stages[1].exp.name end
  end
  plans[#plans].scales = scales_text(exp, words)
  if set.list then
    print_list(plans, set)
  elseif set.csv or set.json then
    print_values(plans, set)
  else
    for _, p in ipairs(plans) do show(p) end
  end
  return errors.DONE
end

return command
