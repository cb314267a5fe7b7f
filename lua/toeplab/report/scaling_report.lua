-- report/scaling_report.lua: makes the tables and the figure of report.scaling: how a metric falls
-- with the size of what was trained, for each value of a key, with fitted curves.
local options = require "toeplab.base.options"
local config = require "toeplab.base.config"
local scaling = require "toeplab.report.scaling"
local stats = require "toeplab.report.stats"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local scaling_report = {}

local spec = options.declare "report.scaling" {
  { "metric", "string", "the metric to fit, such as test_loss" },
  { "against", "string", "the size: a metric such as training_flop, or a key" },
  { "by", "string", "the key by which models differ" },
  { "form", options.field { default = "auto", choices = scaling.forms }, "of the curves" },
  { "beside", {}, "metrics of the same tokens to draw without a fit" },
  { "name", options.field { type = "string", optional = true },
    "of the tables and the figure (default: the experiment's name)" },
}

-- ---- Points -----------------------------------------------------------------------------------

-- Returns the value of a metric or a key of a trial. Raises if the trial has neither.
local function value_of(trial, name)
  local value = trial.metrics[name]
  if value == nil then value = trial.config[name] end
  if value ~= nil then return value end
  local known = sorted_keys(trial.metrics)
  table.move(sorted_keys(trial.config), 1, #sorted_keys(trial.config), #known + 1, known)
  error(("report.scaling: a trial has no metric and no key '%s'%s"):format(name,
    suggest.hint(name, known)), 0)
end

-- Returns the number that a metric or a key has in a trial. Raises if it is not a number.
local function number_of(trial, name)
  local value = value_of(trial, name)
  if type(value) == "number" then return value end
  error(("report.scaling: '%s' is %s in a trial, not a number"):format(name, config.show(value)), 0)
end

-- Returns the size of a trial. Raises if it is not a positive number.
local function size_of(trial, name)
  local size = number_of(trial, name)
  if size > 0 and size < math.huge then return size end
  error(("report.scaling: '%s' is %s in a trial; a size is a positive number"):format(name,
    size ~= size and "nan" or config.show(size)), 0)
end

-- Returns the point of a group at a size, which it adds if it is missing.
local function point(group, x)
  for _, p in ipairs(group.points) do
    if p.x == x then return p end
  end
  local p = { x = x, y = {}, beside = {}, trials = {} }
  table.insert(group.points, p)
  return p
end

-- Returns the trials in groups by the key: {name=, points= {x=, y= (values by seed), beside= (name
-- -> values)}}, the groups in the order of the trials, the points in the order of their sizes.
local function collect(trials, o)
  local groups, found = {}, {}
  local by_seed = table.move(trials, 1, #trials, 1, {})
  local place = {}
  for i, trial in ipairs(trials) do place[trial] = i end
  table.sort(by_seed, function(a, b)
    if a.seed ~= b.seed then return a.seed < b.seed end
    return place[a] < place[b]
  end)
  for _, trial in ipairs(by_seed) do
    local name = config.show(value_of(trial, o.by))
    if not found[name] then
      found[name] = { name = name, points = { name = name } }
      groups[#groups + 1] = found[name]
    end
    local p = point(found[name], size_of(trial, o.against))
    table.insert(p.y, number_of(trial, o.metric))
    table.insert(p.trials, trial)
    for _, other in ipairs(o.beside) do
      p.beside[other] = p.beside[other] or {}
      table.insert(p.beside[other], trial.metrics[other])
    end
  end
  for _, group in ipairs(groups) do
    table.sort(group.points, function(p, q) return p.x < q.x end)
  end
  return groups
end

-- ---- Tables -----------------------------------------------------------------------------------

local function interval(low, high)
  return low and low == low and ("%.4g to %.4g"):format(low, high) or nil
end

-- Returns the keys of the configuration whose values differ between points and are equal at each
-- of them, such as the width and the learning rate, without those in the set row_keys.
local function keys_of(groups, o, row_keys)
  local first, differs = {}, {}
  for _, group in ipairs(groups) do
    for _, p in ipairs(group.points) do
      for key, value in pairs(p.trials[1].config) do
        local text = config.show(value)
        first[key] = first[key] or text
        if differs[key] == nil and first[key] ~= text then differs[key] = true end
        for _, trial in ipairs(p.trials) do
          if config.show(trial.config[key]) ~= text then differs[key] = false end
        end
      end
    end
  end
  local list = {}
  for _, key in ipairs(sorted_keys(differs)) do
    local covered = key == o.by or key == o.against or row_keys[key]
    if differs[key] and not covered then list[#list + 1] = key end
  end
  return list
end

-- Returns header and rows: the mean of the metric at each size of each group.
local function sizes(groups, o, row_keys)
  local keys, rows = keys_of(groups, o, row_keys), {}
  local header = table.move(keys, 1, #keys, 2, { o.by })
  for _, name in ipairs { o.against, "seeds", o.metric, "95 % interval" } do
    header[#header + 1] = name
  end
  for _, name in ipairs(o.beside) do header[#header + 1] = name end
  for _, group in ipairs(groups) do
    for _, p in ipairs(group.points) do
      local at, row = stats.interval(p.y), { group.name }
      for i, key in ipairs(keys) do row[1 + i] = config.show(p.trials[1].config[key]) end
      local last = 1 + #keys
      row[last + 1], row[last + 2], row[last + 3], row[last + 4] = ("%.4g"):format(p.x), at.n,
        at.mean, interval(at.low, at.high)
      for i, name in ipairs(o.beside) do row[last + 4 + i] = stats.mean(p.beside[name]) end
      rows[#rows + 1] = row
    end
  end
  return header, rows
end

-- Returns the largest size that all fits cover.
local function common(fits)
  local last = math.huge
  for _, fit in ipairs(fits) do last = math.min(last, fit.x[#fit.x]) end
  return last
end

-- Returns header and rows: the exponent of each group, its difference from the first group's, and
-- how far its curve is from the first one's at the largest size that all have.
local function exponents(groups, fits, form, o)
  local last, first = common(fits), groups[1].name
  local header = { o.by, "exponent", "95 % interval", "without one size", "beside " .. first,
    "95 % interval", ("beside %s at %.3g"):format(first, last), "95 % interval" }
  if form == "offset" then
    header[#header + 1], header[#header + 2] = "E", "95 % interval"
  end
  header[#header + 1] = "off by at most, %"
  local rows = {}
  for i, fit in ipairs(fits) do
    local row = { groups[i].name, ("%.4g"):format(fit.alpha), interval(fit.low, fit.high),
      interval(fit.least, fit.most) }
    for k, size in ipairs { false, last } do
      local difference, low, high = scaling.difference(fits[1], fit, size)
      if i > 1 then
        row[3 + 2 * k], row[4 + 2 * k] = ("%.4g"):format(difference), interval(low, high)
      end
    end
    if form == "offset" then row[9], row[10] = fit.E, interval(fit.E_low, fit.E_high) end
    row[#header] = ("%.2g"):format(100 * fit.off)
    rows[i] = row
  end
  return header, rows
end

-- Returns the note below the table of sizes, which says what its columns mean.
local function note_of_sizes(o)
  return ("%s: the mean over the seeds, with its 95 %% interval (Student's t)."):format(o.metric)
end

-- Returns the note below the table of fits.
local function note_of_fits(groups, form, o)
  local first = groups[1].name
  return ("%s = %sA %s^-exponent, fitted to the means over the seeds. The 95 %% intervals show how "
    .. "far the values would move with other seeds, not that the curve is right. Without one size: "
    .. "the least and the greatest exponent if one size is left out. Beside %s: the difference "
    .. "from its exponent; beside %s at a size: how far the fitted curve lies above that of %s "
    .. "there. Off by at most: the largest distance of a mean from the curve.%s"):format(
    o.metric, form == "offset" and "E + " or "", o.against, first, first, first,
    form == "offset" and " E: the limit at infinite size." or "")
end

-- ---- The figure -------------------------------------------------------------------------------

local function points_of(group, fit, colour)
  local s = { name = group.name, style = "points", x = {}, y = {}, error = {}, colour = colour }
  if fit then s.name = s.name .. ": " .. scaling.describe(fit) end
  for i, p in ipairs(group.points) do
    local at = stats.interval(p.y)
    s.x[i], s.y[i], s.error[i] = p.x, at.mean, at.half or 0
  end
  return s
end

-- Returns the spec of the figure: the means with their intervals, the fitted curves, and as dashed
-- lines the metrics beside them, at the sizes of the first group.
local function figure(groups, fits, o)
  local spec_ = { xlabel = o.against, ylabel = o.metric, logx = true, logy = true, key = "below",
    series = {} }
  for i, group in ipairs(groups) do
    table.insert(spec_.series, points_of(group, fits and fits[i], i))
    if fits then
      local x, y = scaling.curve(fits[i])
      table.insert(spec_.series, { x = x, y = y, colour = i })
    end
  end
  for k, name in ipairs(o.beside) do
    local s = { name = name, x = {}, y = {}, dashed = true, colour = #groups + k }
    for i, p in ipairs(groups[1].points) do s.x[i], s.y[i] = p.x, stats.mean(p.beside[name]) end
    table.insert(spec_.series, s)
  end
  return spec_
end

-- Returns the metrics of a list that all trials have. The language models of large texts lack
-- those of n-grams, so what is missing is a warning.
local function present(trials, names, warn)
  local list = {}
  for _, name in ipairs(names) do
    local missing = 0
    for _, trial in ipairs(trials) do
      if trial.metrics[name] == nil then missing = missing + 1 end
    end
    if missing == 0 then
      list[#list + 1] = name
    else
      warn(("%s is left out: %d of %d trials have not logged it"):format(name, missing, #trials))
    end
  end
  return list
end

-- Prints and stores, by the functions of report, the output of given (spec): the table NAME-sizes,
-- the table NAME of the fits, and the figure NAME. If the trials cannot be fitted, e.g. because
-- they have too few sizes, calls warn(reason), and the figure has no curves. row_keys: the set of
-- the keys that named rows set.
function scaling_report.write(report, trials, given, name, warn, row_keys)
  local o = options.check("report.scaling", spec, given)
  if #trials == 0 then return warn "no fit: there are no trials" end
  name = o.name or name
  o.beside = present(trials, o.beside, warn)
  local groups = collect(trials, o)
  local header, rows = sizes(groups, o, row_keys)
  report.table(header, rows, name .. "-sizes", note_of_sizes(o))
  local lists = {}
  for i, group in ipairs(groups) do lists[i] = group.points end
  local ok, fits, form = pcall(scaling.fits, lists, o.form)
  if ok then
    local fit_header, fit_rows = exponents(groups, fits, form, o)
    report.table(fit_header, fit_rows, name, note_of_fits(groups, form, o))
  else
    warn("no fit: " .. fits:gsub("^scaling: ", ""))
  end
  report.plot(figure(groups, ok and fits, o), name)
end

return scaling_report
