-- test_scaling.lua: fits of a metric that falls with a size: known exponents, intervals that hold
-- the truth at their level, errors, and the printed and drawn results.
local t = require "harness"
local core = require "toeplab.core"
local curves = require "toeplab.report.figures.curves"
local groups = require "toeplab.report.groups"
local plot = require "toeplab.report.figures.plot"
local records = require "toeplab.store.records"
local scaling = require "toeplab.report.scaling"
local script_report = require "toeplab.report.script_report"
local sweeps = require "sweeps"

-- Returns points of y = E + A x^-alpha at several sizes over several decades, with `seeds` values
-- each, whose relative deviation is `noise`, drawn from the stream.
local function points_of(o, stream)
  local list = {}
  for i = 1, o.sizes do
    local x, y = 10.0 ^ (9 + (i - 1) * o.decades / (o.sizes - 1)), {}
    local z = stream and stream:normal(core.zeros(o.seeds)):totable() or { 0.0 }
    for k, normal in ipairs(z) do
      y[k] = ((o.E or 0) + o.A * x ^ -o.alpha) * math.exp((o.noise or 0) * normal)
    end
    list[i] = { x = x, y = y }
  end
  return list
end

t.test("finds exponents, factors and offsets of exact laws", function()
  for _, alpha in ipairs { -0.2, 0.05, 0.3, 1.5 } do
    local fit = scaling.fit(points_of { sizes = 4, decades = 2, A = 30.0, alpha = alpha })
    t.eq({ fit.alpha, fit.A, fit.E, fit.off }, { alpha, 30, 0, 0 }, 1e-9)
    t.eq({ fit.least, fit.most }, { alpha, alpha }, 1e-9)
    t.eq(fit.at(1e15), 30.0 * 1e15 ^ -alpha, 1e-9 * fit.at(1e15))
    t.eq(fit.low, nil)
  end
  for _, alpha in ipairs { 0.05, 0.3, 1.5 } do
    local fit = scaling.fit(points_of { sizes = 6, decades = 3, A = 1e9 ^ alpha, alpha = alpha,
      E = 1.7 }, "offset")
    t.eq({ fit.alpha, fit.E, fit.off }, { alpha, 1.7, 0 }, 2e-3)
  end
  -- a straight line has no offset, and a curve that bends down cannot have one
  local fit = scaling.fit(points_of { sizes = 5, decades = 2, A = 30.0, alpha = 0.2 }, "offset")
  t.eq({ fit.alpha, fit.E }, { 0.2, 0 }, 1e-3)
  fit = scaling.fit({ { x = 1, y = 9 }, { x = 2, y = 8 }, { x = 4, y = 6 }, { x = 8, y = 3 } },
    "offset")
  t.eq(fit.E, 0)
end)

t.test("values that do not fall have no offset",
  function()
    for y, alpha in pairs { [{ 1, 2, 4, 8, 16 }] = -1, [{ 5, 5, 5, 5, 5 }] = 0 } do
      local list = {}
      for i, v in ipairs(y) do list[i] = { x = 2 ^ i, y = { 0.999 * v, 1.001 * v } } end
      for _, form in ipairs { "offset", "auto" } do
        local fit = scaling.fits({ list }, form)[1]
        t.eq({ fit.alpha, fit.E }, { alpha, 0 }, 1e-9)
      end
    end
  end)

t.test("the form is auto unless it is said", function()
  local list = points_of { sizes = 6, decades = 3, A = 9.0, alpha = 0.2 }
  local fits, form = scaling.fits { list }
  local said, same = scaling.fits({ list }, "auto")
  t.eq({ form, fits[1].alpha, fits[1].E }, { same, said[1].alpha, said[1].E })
end)

t.test("the order of the points does not matter, and equal calls give equal fits", function()
  local list = points_of({ sizes = 4, decades = 2, A = 9.0, alpha = 0.1, seeds = 3, noise = 0.02 },
    core.stream(3, "order"))
  local a = scaling.fit(list)
  local b = scaling.fit { list[3], list[1], list[4], list[2] }
  t.eq({ a.alpha, a.low, a.high, a.off }, { b.alpha, b.low, b.high, b.off })
  t.ok(a.low < a.alpha and a.alpha < a.high)
  t.ok(a.least < a.most)
end)

-- Counts in how many of `times` simulations the interval of an exponent, and of the difference
-- from a second model with the same exponent, hold the truth.
local function coverage(o, form, times)
  local stream, one, two = core.stream(7, "coverage"), 0, 0
  for _ = 1, times do
    local a = scaling.fit(points_of(o, stream), form)
    local b = scaling.fit(points_of(o, stream), form)
    if a.low <= o.alpha and o.alpha <= a.high then one = one + 1 end
    local _, low, high = scaling.difference(a, b)
    if low <= 0 and 0 <= high then two = two + 1 end
  end
  return one / times, two / times
end

t.test("about 95 % of the 95 % intervals over three seeds hold the exponent", function()
  local draws = scaling.DRAWS
  scaling.DRAWS = 200
  local one, two = coverage({ sizes = 5, decades = 2.3, A = 30.0, alpha = 0.1, seeds = 3,
    noise = 0.005 }, "power", 300)
  t.ok(one > 0.91 and one < 0.99, one)
  t.ok(two > 0.91 and two <= 1, two)
  scaling.DRAWS = 100
  one = coverage({ sizes = 5, decades = 2.3, A = 60.0, alpha = 0.2, seeds = 3, noise = 0.005,
    E = 2.0 }, "offset", 30)
  t.ok(one >= 0.83, one)
  scaling.DRAWS = draws
end)

t.test("fits an offset only if the seeds distinguish it from 0 in every model", function()
  local stream = core.stream(11, "auto")
  local straight = points_of({ sizes = 5, decades = 2, A = 30.0, alpha = 0.1, seeds = 3,
    noise = 0.005 }, stream)
  local bent = points_of({ sizes = 5, decades = 2, A = 1e4, alpha = 0.4, E = 2.0, seeds = 3,
    noise = 0.002 }, stream)
  local fits, form = scaling.fits({ bent, bent }, "auto")
  t.eq({ form, fits[2].form }, { "offset", "offset" })
  t.ok(fits[1].E_low > 0 and fits[1].E_low < 2 and fits[1].E_high > 2)
  t.eq(scaling.difference(fits[1], fits[2]), 0)
  fits, form = scaling.fits({ bent, straight }, "auto")
  t.eq({ form, fits[1].form, fits[2].form }, { "power", "power", "power" })
  bent[5] = nil -- four sizes leave no size over to tell the forms apart
  t.eq(select(2, scaling.fits({ bent }, "auto")), "power")
end)

t.test("a difference at a size agrees with the curves", function()
  local a = scaling.fit(points_of { sizes = 3, decades = 2, A = 30.0, alpha = 0.1 })
  local b = scaling.fit(points_of { sizes = 3, decades = 2, A = 20.0, alpha = 0.1 })
  t.eq({ scaling.difference(a, b, 1e10) }, { -10.0 * 1e10 ^ -0.1 }, 1e-9)
  t.eq({ scaling.difference(a, b) }, { 0.0 }, 1e-9)
end)

t.test("points that cannot be fitted are an error with the reason", function()
  local function at(x, y) return { { x = 1, y = 3 }, { x = 2, y = 2 }, { x = x, y = y } } end
  for _, row in ipairs {
    { { { x = 1, y = 3 }, { x = 2, y = 2 } }, "power",
      "2 sizes; a fit of form power takes at least 3" },
    { at(3, 1), "offset", "3 sizes; a fit of form offset takes at least 4" },
    { at(0, 1), "power", "size 3 is 0, not a positive number" },
    { at(-1, 1), "power", "size 3 is %-1, not a positive number" },
    { at("big", 1), "power", "size 3 is big, not" },
    { at(3, 0), "power", "a value at size 3 is 0, not a positive number" },
    { at(3, { 1, 0 / 0 }), "power", "a value at size 3 is nan, not a positive number" },
    { at(3, 1 / 0), "power", "a value at size 3 is inf, not a positive number" },
    { at(3, {}), "power", "size 3 has no values" },
    { at(2, 1), "power", "size 2 is given twice" },
    { { { x = 1, y = 3 }, { x = 1 + 1e-9, y = 2 }, { x = 1 + 2e-9, y = 1 } }, "power",
      "all sizes are about 1, too close to fit a curve" },
    { { name = "model=a", at(3, 1)[1] }, "power", "^scaling: model=a: 1 size; a fit" },
    { { 1, 2, 3 }, "power", "point 1 is a number, not a table {x=, y=}" },
    { at(3, 1), "pover", "no form 'pover'; did you mean 'power'" },
  } do
    t.raises(scaling.fit, row[3], row[1], row[2])
  end
  t.raises(scaling.fits, "there is nothing to fit", {}, "auto")
end)

-- ---- Figures and tables -------------------------------------------------------------------------

-- Trials of two models at four widths, two seeds each; the loss is 3 width^-alpha, and the FLOP are
-- width^3.
local function trials()
  local list = {}
  for model, alpha in pairs { a = 0.1, b = 0.2 } do
    for _, width in ipairs { 8, 16, 32, 64 } do
      for seed = 1, 2 do
        list[#list + 1] = { config = { model = model, width = width, lr = 0.08 / width },
          seed = seed, metrics = { flop = width ^ 3, bigram = 2.5,
            loss = 3 * width ^ -alpha * (1 + 0.01 * (2 * seed - 3)) } }
      end
    end
  end
  table.sort(list, function(x, y)
    if x.config.model ~= y.config.model then return x.config.model < y.config.model end
    if x.config.width ~= y.config.width then return x.config.width < y.config.width end
    return x.seed > y.seed
  end)
  return list
end

t.test("plot --fit draws curves through last values, against a key or another metric", function()
  t.in_folder(function(folder)
    local list = sweeps.write(folder, { experiment = "grow", axes = { "model", "width" },
      trials = trials() })
    local store <close> = records.open(folder, "w")
    local ids = {}
    for i, trial in ipairs(list) do ids[i] = trial.id end
    local set = groups.set(store, ids)
    local o = { by = { "model" }, fit = "power", logx = true, logy = true }
    for key, power in pairs { width = 1, flop = 3 } do
      local spec = curves.against(set, "loss", key, o)
      t.eq(#spec.series, 4)
      t.eq(spec.series[1].x, { 8 ^ power, 16 ^ power, 32 ^ power, 64 ^ power })
      t.ok(spec.series[1].name:find(("model=a: exponent %.3g"):format(0.1 / power), 1, true),
        spec.series[1].name)
      t.eq({ spec.series[1].style, spec.series[3].name, spec.key }, { "points", nil, "below" })
      t.eq(spec.series[3].y[1], 3 * 8 ^ -0.1, 1e-6)
    end
    t.raises(curves.against, "1 size; a fit of form power takes at least 3 %(%-%-by KEYS", set,
      "loss", "flop", { fit = "power" })
    t.raises(curves.against, "%-%-fit requires numbers along model, which has words", set, "loss",
      "model", { fit = "power", by = { "width" } })
    t.raises(curves.against, "no key or metric 'flp'; did you mean 'flop'", set, "loss", "flp")

    local few = table.move(ids, 9, 12, 5, table.move(ids, 1, 4, 1, {})) -- two widths of each model
    t.raises(curves.against, "%-%-fit: model=a: 2 sizes; a fit", groups.set(store, few), "loss",
      "width", o)

    local path = folder .. "/x.svg"
    local function command(words, also)
      return os.execute(("'%s' plot grow --metric loss %s -C '%s' -o '%s' >/dev/null 2>'%s'%s")
        :format(core.sys.executable(), words, folder, path, folder .. "/said", also or ""))
    end
    t.ok(command "--against flop --by model --fit auto --log xy", t.read(folder .. "/said"))
    t.ok(t.read(path):find("model=b: exponent 0.0667", 1, true))
    for words, want in pairs { ["--fit power"] = "--fit requires --against or --at",
      ["--against flop --fit powr"] = "--fit: there is no form 'powr'; did you mean 'power'",
      ["--fit power matrix"] = "is for curves" } do
      t.ok(not command(words))
      t.ok(t.read(folder .. "/said"):find(want, 1, true), t.read(folder .. "/said"))
    end
  end)
end)

t.test("a logarithmic axis within a decade has round numbers, not only powers of ten", function()
  local svg = assert(plot.picture({ logy = true, series = { { y = { 3.1, 4.9 } } } }, "svg"))
  for _, number in ipairs { "3.5", "4", "4.5", "5" } do
    t.ok(svg:find("> ?" .. number:gsub("%.", "%%.") .. "<"), number)
  end
  t.ok(not svg:find "> ?10<")
end)

t.test("an offset does not hide the decay above it", function()
  -- E, A and alpha of SciPy's curve_fit with sigma = y
  for offset, want in pairs { [10.0] = { -0.0015409862513847514, 3.0062660620684745,
    0.3504857927017589 }, [1e3] = { -1.1842799028467344e-05, 3.0053995022258344,
    0.3510284511215441 }, [1e9] = { 8.809953717758322e-06, 3.0053864416653298,
    0.3510354839549988 } } do
    local points = {}
    for i = 0, 5 do
      points[i + 1] = { x = 4.0 ^ i,
        y = offset + 3 * 4.0 ^ (-0.35 * i) + (i % 2 == 0 and 1 or -1) / 128 }
    end
    local fit = scaling.fit(points, "offset")
    t.eq({ fit.E - offset, fit.A, fit.alpha }, want, 5e-6)
  end
end)

t.test("an axis shows a small spread of large values", function()
  local spec = { series = { { y = { 1e10 + 1, 1e10 + 8, 1e10 + 3, 1e10 + 5 } } } }
  t.holds(plot.text(spec), " 10000000008 |", " 10000000001 |")
  spec.logy = true
  t.holds(plot.text(spec), " 10000000008 |", " 10000000002 |")
end)

t.test("values that are equal except for rounding, or huge, have an axis", function()
  for _, y in ipairs { { 7, 7 + 1e-14, 7 }, { 1e15, 1e15, 1e15 } } do
    for _, log in ipairs { false, true } do
      local drawn, why = plot.picture({ logy = log, series = { { y = y } } }, "svg")
      t.ok(drawn, why)
    end
  end
end)

-- Runs fn(report, folder, said) with the functions of a report of the trials.
local function with_report(list, fn)
  t.in_folder(function(folder)
    local said, show = {}, print
    local progress = { say = function() end,
      warn = function(_, ...) said[#said + 1] = string.format(...) end }
    for _, trial in ipairs(list) do trial.made = {} end
    local report = script_report.new { folder = folder, name = "grow", scale = "",
      text = "-- why\n", progress = progress, trials = list }
    rawset(_G, "print", function() end)
    local ok, why = pcall(fn, report, folder, said)
    rawset(_G, "print", show)
    if not ok then error(why, 0) end
  end)
end

t.test("report.scaling writes the sizes, the fits and the figure", function()
  with_report(trials(), function(report, folder, said)
    report.scaling { metric = "loss", against = "flop", by = "model", beside = { "bigram" } }
    t.eq(said, {})
    local sizes = t.read(folder .. "/tables/grow-sizes.md"):gsub(" +", " ")
    t.ok(sizes:find("| model | lr | width | flop | seeds | loss | 95 % interval | bigram |", 1,
      true), sizes)
    t.ok(sizes:find("| a | 0.01 | 8 | 512 | 2 |", 1, true), sizes)
    local fits = t.read(folder .. "/tables/grow.md"):gsub(" +", " ")
    t.ok(fits:find("| a | 0.03333 |", 1, true) and fits:find("| b | 0.06667 |", 1, true), fits)
    t.ok(fits:find("| 0.03333 | 0.03333 to 0.03333 |", 1, true), fits) -- b beside a: equal noise
    local svg = t.read(folder .. "/figures/grow.svg")
    t.ok(svg:find("b: exponent 0.0667", 1, true) and svg:find(">bigram<", 1, true))
  end)
end)

t.test("leaves out a metric of `beside` that a trial lacks, with a warning", function()
  local list = trials()
  list[3].metrics.bigram = nil
  with_report(list, function(report, folder, said)
    report.scaling { metric = "loss", against = "flop", by = "model", beside = { "bigram" } }
    t.eq(said, { "bigram is left out: 1 of 16 trials have not logged it" })
    t.ok(not t.read(folder .. "/tables/grow-sizes.md"):find "bigram")
    t.ok(t.read(folder .. "/figures/grow.svg"):find("b: exponent 0.0667", 1, true))
  end)
end)

t.test("report.scaling of too few sizes warns, and still writes the sizes", function()
  local few = {}
  for _, trial in ipairs(trials()) do
    if trial.config.width > 16 then few[#few + 1] = trial end
  end
  with_report(few, function(report, folder, said)
    report.scaling { metric = "loss", against = "flop", by = "model" }
    t.eq(said, { "no fit: a: 2 sizes; a fit of form power takes at least 3" })
    t.ok(core.sys.exists(folder .. "/tables/grow-sizes.md"))
    t.ok(not core.sys.exists(folder .. "/tables/grow.md"))
    t.raises(report.scaling, "no metric and no key 'flob'; did you mean 'flop'",
      { metric = "loss", against = "flob", by = "model" })
    t.raises(report.scaling, "'model' is a in a trial, not a number",
      { metric = "loss", against = "model", by = "width" })
    t.raises(report.scaling, "'model' is a in a trial, not a number",
      { metric = "model", against = "flop", by = "width" })
    t.raises(report.scaling, "'meric'", { meric = "loss", against = "flop", by = "model" })
  end)
end)

t.test("report.scaling warns about values that are not numbers, and about no trials", function()
  local list = trials()
  list[1].metrics.loss, list[9].metrics.flop = 0 / 0, 0.0
  with_report({ table.unpack(list, 1, 8) }, function(report, folder, said)
    report.scaling { metric = "loss", against = "flop", by = "model" }
    t.eq(said, { "no fit: a: a value at size 512 is nan, not a positive number" })
    t.ok(not t.read(folder .. "/tables/grow-sizes.md"):find "%-nan")
  end)
  with_report({ table.unpack(list, 9) }, function(report)
    t.raises(report.scaling, "'flop' is 0.0 in a trial; a size is a positive number",
      { metric = "loss", against = "flop", by = "model" })
  end)
  with_report({}, function(report, _, said)
    report.scaling { metric = "loss", against = "flop", by = "model" }
    t.eq(said, { "no fit: there are no trials" })
  end)
end)

t.done()
