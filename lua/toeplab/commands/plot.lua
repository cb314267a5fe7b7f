-- commands/plot.lua: toeplab plot: draws what trials logged, and the operators that they learnt.
local arguments = require "toeplab.base.arguments"
local axes_of = require "toeplab.report.figures.axes"
local curves = require "toeplab.report.figures.curves"
local frames = require "toeplab.report.frames"
local groups = require "toeplab.report.groups"
local kernels = require "toeplab.report.figures.kernels"
local open_model = require "toeplab.trials.open_model"
local output = require "toeplab.report.output"
local style = require "toeplab.report.figures.style"
local plot = require "toeplab.report.figures.plot"
local records = require "toeplab.store.records"
local selection = require "toeplab.store.selection"
local series = require "toeplab.report.figures.series"
local errors = require "toeplab.base.errors"
local experiment = require "toeplab.trials.experiment"
local scaling = require "toeplab.report.scaling"
local sorted_keys = require "toeplab.base.sorted_keys"
local tensors = require "toeplab.report.figures.tensors"
local trial_files = require "toeplab.store.trial_files"

local legends = {}
for i, place in ipairs(sorted_keys(series.places)) do legends[i] = place:gsub(" ", "-") end

local command = {
  example = "toeplab plot quickstart --metric loss --log y\n"
    .. "  toeplab plot tnn-table10 --at ppl@ --by decay -o figure.png\n"
    .. "  toeplab plot scaling --metric test_loss --against training_flop --by model \\\n"
    .. "    --fit auto --log xy\n"
    .. "  toeplab plot tnn-table10 --at ppl@ --log xy --size 3.25x2.2 --font Times,8 -o ppl.pdf\n"
    .. "  toeplab plot @last matrix --n 64 --term\n"
    .. "  toeplab plot @last --tensor kernel",
  usage = "toeplab plot [TRIAL...] [curves | matrix | kernel | response]\n"
    .. "       toeplab plot [TRIAL...] --tensor NAME",
  about = "Draws with gnuplot: metrics of trials; the matrices, kernels or frequency responses of\n"
    .. "the Toeplitz operators of their models; or tensors that trials logged. Trials that\n"
    .. "differ only in the seed become one line, their mean. An experiment's name selects the\n"
    .. "trials that table and report show; @all experiment=NAME draws all, sweep=N one sweep.\n"
    .. "Without TRIAL: the sweep of the most recently started trial.\n" .. selection.help,
  words = { { of = "trials", choices = kernels.kinds } },
  options = {
    { name = "metric", short = "m", value = "NAME", many = true, of = "metrics",
      help = "the metric (default: loss); if repeated, one panel each" },
    { name = "against", value = "KEY", of = "columns",
      help = "last values, against a key or another metric",
      more = "Such as `training_flop`." },
    { name = "at", value = "PREFIX", of = "prefixes",
      help = "metrics PREFIX512, PREFIX1024, ... as one line",
      more = "Against that number." },
    { name = "by", value = "KEYS", many = true, of = "keys_stored", list = true,
      help = "a line for each value of KEYS (A,B): the mean of all others",
      more = "By default a line for each setting." },
    { name = "each", help = "a line for each trial" },
    { name = "fit", value = "FORM", choices = scaling.forms,
      help = "curves through last values, and their exponents: power, offset or auto",
      more = [[
        Requires `--against` or `--at`; the legend shows the exponents with their 95 % intervals
        over the seeds. `power` is y = A x^-alpha, for at least 3 sizes, `offset` y = E + A
        x^-alpha, for at least 4, `auto` is offset if the seeds tell E from 0 on every line, else
        power. A line that cannot be fitted is an error. toeplab-lua(7) describes the fit at
        tl.scaling.fit.]] },
    { name = "layer", value = "N", many = true, help = "layer number, from 1 (default: all)" },
    { name = "channel", value = "N", many = true,
      help = "channel number, from 1; of a matrix, a panel each (default: the mean)" },
    { name = "tensor", value = "NAME",
      help = "a tensor that trials logged: a vector over the steps, a matrix at the last",
      more = "Axes longer than 400 are thinned to every second, third, ... position." },
    { name = "step", value = "N", many = true,
      help = "with --tensor: at step N; a vector is then a line, a matrix a panel" },
    { name = "n", value = "LENGTH",
      help = "length of the operator (default: the model's training length, at most 256)" },
    { name = "script", value = "FILE", of = "experiment",
      help = "the experiment whose function model makes the models (of a class of its own)" },
    { name = "log", value = "AXES", of = "axes",
      help = "logarithmic axes: x, y or xy; for a matrix z" },
    { name = "panels", value = "KEY", of = "keys_stored",
      help = "a panel for each value of KEY, with equal axes and one legend" },
    { name = "order", value = "NAMES", many = true,
      help = "the lines, panels and words along x that come first (A,B), in this order",
      more = [[
        A name is a value, `KEY=VALUE`, or a legend entry. If the option is repeated, each is one
        name, which may contain commas.]] },
    { name = "legend", value = "PLACE", choices = legends,
      help = "place of the legend: top-left, top-right, bottom-left, bottom-right, outside, "
        .. "below or none" },
    { name = "term", help = "draw in the terminal" },
    output.dir,
  },
}
table.move(style.options, 1, #style.options, #command.options + 1, command.options)

local PANELS = 48

-- ---- Options -----------------------------------------------------------------------------------

local function axes(set)
  local chosen = {}
  for axis in (set.log or ""):gmatch "." do
    if not ("xyz"):find(axis, 1, true) then
      errors.usage("plot: --log takes letters of x, y and z, got '%s'", set.log)
    end
    chosen[axis] = true
  end
  return chosen
end

local function integers(set, name, least)
  if not set[name] then return nil end
  local list = {}
  for i, text in ipairs(set[name]) do
    list[i] = arguments.integer("plot", { [name] = text }, name, least)
  end
  return list
end

-- The options of each kind of figure, and how messages name it.
local own = {
  { "curves", "metric", "against", "at", "by", "each", "fit", "panels", "order", "legend" },
  { "matrix, kernel and response", "layer", "channel", "n", "script" },
  { "--tensor NAME", "step" },
}

-- Raises if an option does not apply to the kind of figure, an index of own.
local function check(set, kind)
  for i, names in ipairs(own) do
    for k = 2, i ~= kind and #names or 0 do
      if set[names[k]] then errors.usage("plot: --%s is for %s", names[k], names[1]) end
    end
  end
  for _, pair in ipairs { { "at", "against" }, { "at", "metric" }, { "by", "each" },
    { "term", "output" }, { "panels", "fit" } } do
    if set[pair[1]] and set[pair[2]] then
      errors.usage("plot: choose one of --%s and --%s", pair[1], pair[2])
    end
  end
  if set.fit and not set.against and not set.at then
    errors.usage("plot: --fit requires --against or --at")
  end
  style.check("plot", set)
end

-- ---- Figures -----------------------------------------------------------------------------------

-- Returns ids without those that the frame of an experiment leaves out, for each experiment that is
-- selected as a whole, and reports how many.
local function newest(store, words, ids)
  local left = 0
  for _, word in ipairs(words) do
    if word:find "^sweep[=<>!]" then return ids end
  end
  for _, name in ipairs(selection.experiments(store, words)) do
    local in_frame, kept = {}, {}
    for _, t in ipairs(frames.find(store, "experiment", name, {}):trials {}) do
      in_frame[t.id] = true
    end
    for _, id in ipairs(ids) do
      local of = store:rows("SELECT experiment FROM v_trials WHERE id = ?", { id })[1].experiment
      if of ~= name or in_frame[id] then kept[#kept + 1] = id end
    end
    left, ids = left + #ids - #kept, kept
  end
  if left > 0 then
    io.stderr:write(("%s of other scales, earlier code or rejected values left out; @all "
      .. "experiment=NAME draws all, sweep=N one\n"):format(output.count(left, "trial")))
  end
  return ids
end

local function ids_of(store, words)
  if #words > 0 then return newest(store, words, selection.ids(store, words, "plot")) end
  local last = selection.one(store, "@last")
  local ids = {}
  for i, row in ipairs(store:rows([[SELECT m.trial AS id FROM v_members m JOIN v_trials t
      ON t.id = m.trial WHERE m.sweep = ? ORDER BY m.position]], { last.sweep, n = 1 })) do
    ids[i] = row.id
  end
  return #ids > 0 and ids or { last.id }
end

-- Returns the default metric: loss, or the one with the most values.
local function usual(trials)
  local known, most = groups.metrics(trials), nil
  for _, name in ipairs(sorted_keys(known)) do
    if not most or known[name] > known[most] then most = name end
  end
  return { known.loss and "loss" or most or "loss" }
end

-- Gives the specs of parts, one for each value of a key (curves.panels), equal axes, as panels of
-- one figure. Returns their common title, if they have one.
local function side_by_side(specs, parts)
  local title = specs[1].title
  for _, spec in ipairs(specs) do title = spec.title == title and title or nil end
  for _, axis in ipairs { "x", "y" } do
    local low, high = math.huge, -math.huge
    for _, spec in ipairs(specs) do
      local first, last = axes_of.extent(spec, axis, true)
      low, high = math.min(low, first), math.max(high, last)
    end
    local log = specs[1]["log" .. axis]
    for i, spec in ipairs(specs) do
      spec.title, spec.key = parts[i].title, "none"
      spec[axis .. "range"] = axis == "y" and axes_of.wider(low, high, log)
        or not spec.xnames and low < high and { low, high } or nil
    end
  end
  return title
end

-- Returns the names of --order; nil without it.
local function order_of(texts)
  if not texts or texts[2] then return texts end
  local list = {}
  for name in texts[1]:gmatch "[^,]+" do list[#list + 1] = name:match "^%s*(.-)%s*$" end
  return list
end

local function check_order(trials, order)
  for _, name in ipairs(order or {}) do
    if not trials.ordered[name] then
      errors.usage("plot: --order %s: no line, panel or word along x has this name", name)
    end
  end
end

local function check_panels(count)
  if count <= PANELS then return end
  errors.usage("plot: that is %d panels or more; the limit is %d: name fewer trials, or fewer "
    .. "panels by --panels or --layer", count, PANELS)
end

local function of_curves(store, ids, set)
  local trials, panels, log = groups.set(store, ids, set.each), {}, axes(set)
  if log.z then errors.usage "plot: --log z is for a matrix; curves have x and y" end
  if trials.older > 0 then
    io.stderr:write(("%s of the same configuration and seed by other code left out; --each draws "
      .. "all\n"):format(output.count(trials.older, "trial")))
  end
  local order = order_of(set.order)
  local parts = set.panels and curves.panels(trials, set.panels, order) or { false }
  check_panels(#parts)
  local metrics, title = set.metric or not set.at and usual(trials) or { set.at }, nil
  for _, metric in ipairs(metrics) do
    local row = {}
    for i, part in ipairs(parts) do
      local o = { by = arguments.list("plot", set, "by"), each = set.each, logx = log.x,
        logy = log.y, fit = set.fit, order = order, panel = part or nil }
      row[i] = set.at and curves.at(trials, metric, o)
        or set.against and curves.against(trials, metric, set.against, o)
        or curves.steps(trials, metric, o)
    end
    if set.panels then
      local common = side_by_side(row, parts)
      title = #metrics == 1 and common or groups.title(trials)
    end
    table.move(row, 1, #row, #panels + 1, panels)
  end
  check_order(trials, order)
  local what = set.at and "at-" .. set.at or table.concat(metrics, "-")
  if set.against then what = what .. "-against-" .. set.against end
  if set.panels then what = what .. "-by-" .. set.panels end
  return panels, table.concat(trials.experiments, "-") .. "-" .. what, title
end

-- Calls fn(row, t, title) for each trial, as a row of v_trials and one of groups.set. Returns the
-- panels that the calls return, a name for the file and a title. fn gets no title if there is only
-- one trial.
local function of_each(store, ids, fn)
  local panels, row, label = {}, nil, nil
  check_panels(#ids)
  local trials = groups.set(store, ids, true).trials
  if #trials == 0 then errors.usage "plot: none of these trials has a result to draw" end
  for _, t in ipairs(trials) do
    row = store:rows("SELECT * FROM v_trials WHERE id = ?", { t.id })[1]
    label = store:object(row.provenance).label or ""
    local list = fn(row, t, #ids > 1 and (#label > 0 and #label <= 28 and label
      or row.id:sub(1, 7)) or nil)
    table.move(list, 1, #list, #panels + 1, panels)
    check_panels(#panels)
  end
  local name = #ids == 1 and row.experiment .. "-" .. row.id:sub(1, 7) or row.experiment
  return panels, name, #ids == 1 and ("%s %s, %s"):format(row.experiment, row.id:sub(1, 7), label)
    or row.experiment
end

local function check_colours(panel, log)
  if panel.matrix and log.x then errors.usage "plot: --log of a matrix takes z, not x" end
end

local function of_tensors(store, ids, set)
  local log, steps = axes(set), integers(set, "step", 0)
  local panels, name, title = of_each(store, ids, function(row, _, of)
    return tensors.panels(store, row.id, set.tensor, { steps = steps, log = log.y or log.z,
      logx = log.x, title = of })
  end)
  check_colours(panels[1], log)
  name = name .. "-" .. set.tensor
  return panels, steps and name .. "-" .. table.concat(steps, "-") or name, title
end

local function of_models(store, ids, set, kind)
  local log, build = axes(set), experiment.builder(set.script)
  local n = arguments.integer("plot", set, "n", 2)
  local channels, layers = integers(set, "channel", 1), integers(set, "layer", 1)
  local panels, name, title = of_each(store, ids, function(row, t, of)
    local model, _, about = open_model.trial(store, row.id, { build = build })
    local trained = math.tointeger(about.length or t.config.length)
    return kernels.panels(model, kind, { n = n or kernels.length(trained), layers = layers,
      channels = channels, log = log.y or log.z, logx = log.x, title = of })
  end)
  check_colours(panels[1], log)
  kernels.one_scale(panels)
  return panels, name .. "-" .. kind, title
end

local MOST_ACROSS = 6 -- panels of a row

-- Returns one spec of panels in a size that suits their kind and number. Up to MOST_ACROSS channels
-- of matrices give each layer a row; panels of a key give each metric a row.
local function spec_of(panels, set, title)
  local first, many, channels, across = panels[1], #panels > 1, #(set.channel or {}), 2
  if first.matrix and #panels > 4 then across = 3 end
  if first.matrix and channels > 1 and channels <= MOST_ACROSS then across = channels end
  if set.panels then across = math.min(#panels // #(set.metric or { 1 }), MOST_ACROSS) end
  local legend = set.panels and set.legend ~= "none" or nil
  local spec = many and { panels = panels, columns = across, legend = legend } or first
  local caption = not many and title and title .. ", " .. first.title or title or first.title
  style.apply("plot", set, spec, caption)
  for _, panel in ipairs(panels) do
    if set.legend and not set.panels then panel.key = set.legend:gsub("-", " ") end
    if spec.size and panel.key == "outside" and not set.legend then panel.key = "below" end
  end
  if first.matrix then
    spec.width, spec.height = many and 400 or 560, many and 320 or 480
  elseif many and first.key ~= "outside" then
    spec.width, spec.height = 480, 340
  end
  return spec, caption
end

-- ---- Output ------------------------------------------------------------------------------------

local function place(store, set, name, filters)
  if set.output then return set.output end
  return ("%s/%s.svg"):format(trial_files.make(store.folder, "figures"),
    output.file_name(name:gsub("[^%w_-]+", "-"), filters))
end

function command.run(set, words)
  local kind, rest = nil, {}
  for _, word in ipairs(words) do
    local known = word == "curves"
    for _, name in ipairs(kernels.kinds) do known = known or word == name end
    if known then kind = word else rest[#rest + 1] = word end
  end
  if set.tensor and kind then
    errors.usage("plot: choose one of %s and --tensor %s", kind, set.tensor)
  end
  local is_curves = not set.tensor and (kind or "curves") == "curves"
  check(set, set.tensor and 3 or is_curves and 1 or 2)
  local store <close> = records.snapshot(records.folder(set.dir))
  local panels, name, title
  local filters = {} -- so that different filters write different files
  if is_curves then
    panels, name, title = of_curves(store, ids_of(store, rest), set)
    for _, word in ipairs(rest) do
      if selection.is_filter(word) then filters[#filters + 1] = word end
    end
  else
    local ids = #rest > 0 and ids_of(store, rest) or selection.ids(store, { "@last" }, "plot")
    local of = set.tensor and of_tensors or of_models
    panels, name, title = of(store, ids, set, kind)
  end
  local spec, caption = spec_of(panels, set, title)
  if not set.term then
    style.draw("plot", spec, place(store, set, name, filters), caption)
    return errors.DONE
  end
  local drawn, why = plot.text(spec)
  if not drawn then errors.raise(errors.FAILED, "plot: %s", why) end
  print(drawn)
  return errors.DONE
end

return command
