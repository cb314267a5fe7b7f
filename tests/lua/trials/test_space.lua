-- test_space.lua: axes that go together, random draws, rules and exceptions: which trials there
-- are.
local t = require "harness"
local config = require "toeplab.base.config"
local quantity = require "toeplab.base.quantity"
local experiment = require "toeplab.trials.experiment"
local plan = require "toeplab.trials.plan"
local errors = require "toeplab.base.errors"

-- The experiment whose fields besides fixed, grid and trial are in text.
local function declare(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write([[local tl = require "toeplab"
return tl.experiment "test" {
  fixed = { decay = 0.99, causal = true, inducing = 64, lr = 0.1, act = "relu", sizes = { 1, 2 } },
  grid = { model = { "tnn", "ski" } },
]], text, [[
  trial = function(t, c) end,
}]])
  file:close()
  local ok, result = pcall(experiment.load, path)
  os.remove(path)
  if not ok then error((tostring(result):gsub(path:gsub("%p", "%%%0"), "x.lua")), 0) end
  return result
end

local function labels(text, words)
  local trials, about = plan.trials(declare(text), words or {})
  local list = {}
  for i, trial in ipairs(trials) do list[i] = trial.label end
  return list, about, trials
end

t.test("zipped axes go together, and with the grid", function()
  local zip = "zip = { length = { 512, 1024 }, batch = { 16, 8 } },"
  t.eq(labels(zip), { "batch=16 length=512 model=tnn", "batch=8 length=1024 model=tnn",
    "batch=16 length=512 model=ski", "batch=8 length=1024 model=ski" })
  t.eq(labels(zip, { "length=64", "batch=2", "model=tnn" }), { "batch=2 length=64 model=tnn" })
  t.raises(labels, "zip: length has 1 value.* batch has 2: give equal numbers", zip,
    { "length=64" })
  t.eq(#labels("zip = { { a = {1,2}, b = {3,4} }, { e = {5,6,7}, f = {1,2,3} } },"), 12)
  t.eq(#labels(zip .. "scale = { smoke = { length = {8}, batch = {1} } },", { "scale=smoke" }), 2)
end)

t.test("rules apply where they match, and the command line overrides them", function()
  local when = [[when = { { where = { model = "ski" }, fixed = { decay = "none" },
    grid = { inducing = { 32, 64 } } } },]]
  local list, _, trials = labels(when)
  t.eq(list,
    { "model=tnn", "decay=none inducing=32 model=ski", "decay=none inducing=64 model=ski" })
  t.eq({ trials[1].config.decay, trials[1].config.inducing }, { 0.99, 64 })
  t.eq({ trials[2].config.decay, trials[2].config.inducing }, { "none", 32 })
  t.eq(labels(when, { "decay=0.5", "inducing=16" }), { "model=tnn", "model=ski" })
  local by_function = [[when = { { where = function(c) return c.model == "ski" end,
    fixed = { lr = 1 } } },]]
  t.eq(labels(by_function), { "model=tnn", "lr=1 model=ski" })
  t.raises(labels, "the configuration has no 'modell'; did you mean 'model'",
    "when = { { where = function(c) return c.modell == 1 end, fixed = { lr = 1 } } },")
end)

t.test("any key with several values on the command line becomes an axis", function()
  for word, want in pairs {
    ["lr=0.1,1"] = { "lr=0.1", "lr=1" }, ["causal=true,false"] = { "causal=true", "causal=false" },
    ["inducing=log2(16,64)"] = { "inducing=16", "inducing=32", "inducing=64" },
    ["inducing=log2(4,8),range(1,5,2)"] = { "inducing=4", "inducing=8", "inducing=1", "inducing=3",
      "inducing=5" },
    ["inducing=range(3,1,-1)"] = { "inducing=3", "inducing=2", "inducing=1" },
    ["lr=range(0.1,0.3,0.1)"] = { "lr=0.1", "lr=0.2", "lr=0.3" },
    ["inducing=range(1000000000001,1000000000002)"] = { "inducing=1000000000001",
      "inducing=1000000000002" },
    ["lr=log10(1e-3,0.1)"] = { "lr=0.001", "lr=0.01", "lr=0.1" },
    ["act=a,b"] = { "act=a", "act=b" }, ['act="a,b",c'] = { "act=a,b", "act=c" },
    ["sizes=[1,2],[3]"] = { "sizes=1,2", "sizes=3" },
    ["seed=range(1,3)"] = { "seed=1", "seed=2", "seed=3" },
    ["decay=range(1,2)"] = { "decay=1", "decay=2" },
    ["length=8,16"] = { "length=8", "length=16" }, -- of a scale alone
  } do
    local scaled = word:find "^length" ~= nil
    local words, expected = { "model=tnn", word, scaled and "scale=small" or nil }, {}
    for i, label in ipairs(want) do
      expected[i] = label < "model" and label .. " model=tnn" or "model=tnn " .. label
    end
    local text = scaled and "scale = { small = { length = 4 }, large = { length = 8 } }," or ""
    t.eq({ word, (labels(text, words)) }, { word, expected })
  end
  -- one value is no axis
  for word, want in pairs { ["sizes=3,4"] = { 3, 4 }, ["sizes=[5]"] = { 5 }, ['act="a,b"'] = "a,b",
    ["inducing=range(7,7)"] = 7, ["act=range(1,2)"] = "range(1,2)" } do
    local list, _, trials = labels("", { "model=tnn", word })
    t.eq({ list, trials[1].config[word:match "^%l+"] }, { { "model=tnn" }, want })
  end
  -- a rule of when leaves an axis of the command line as it is
  local when = "when = { { where = { model = 'ski' }, fixed = { inducing = 8 } } },"
  t.eq(labels(when, { "inducing=1,2", "model=ski" }),
    { "inducing=1 model=ski", "inducing=2 model=ski" })
  for word, want in pairs {
    ["lr=1,x"] = "lr takes a number in each place of a comma%-separated list, got '1,x'",
    ["lr=range(1,x)"] = "lr takes a number, got", ["lr=log2(0,4)"] = "lr takes a number, got",
    ["lr=log1(1,4)"] = "lr takes a number, got", ["lr=range(3,1)"] = "lr takes a number, got",
    ["lr=range(1,1e9)"] = "lr takes a number, got", ["lr=range(1,2,0)"] = "lr takes a number, got",
    ["inducing=range(1,2,0.5)"] = "inducing takes an integer, got",
    ["sizes=[1,x]"] = "sizes takes a list like", ["sizes=1,x"] = "sizes takes a list like",
    ["inducing=1,1"] = "inducing=1 model=tnn appears twice",
  } do
    t.raises(labels, want, "", { word })
  end
  -- what a rule of seeds compares may be such an axis
  local _, about = labels("", { "model=tnn", "lr=0.5,1", 'seeds=until 2 %',
    "compare=lr=0.5 metric=loss" })
  t.eq({ about.values.compared, about.axes }, { { with = { lr = 0.5 }, metric = "loss" },
    { "lr", "model" } })
end)

-- Two axes of rows, the second with tables as values.
local ROWS = [[rows = { kind = { { "b", decay = "none", heads = 2 }, { "a" },
  { "c", heads = 4, backend_options = { taps = 16, inner = { x = 1 } } } } },]]

-- Returns lines like "b: none 2 -", of the decay, heads and taps of each kind.
local function kinds(text, words)
  local list, _, trials = labels(text, table.move(words or {}, 1, 9, 2, { "model=tnn" }))
  for i, trial in ipairs(trials) do
    local c = trial.config
    list[i] = ("%s: %s %s %s"):format(c.kind, c.decay, c.heads or "-",
      c["backend_options.taps"] or "-")
  end
  return list, trials
end

t.test("the keys of a named row are in its configuration alone, over fixed", function()
  local declared = { "b: none 2 -", "a: 0.99 - -", "c: 0.99 4 16" }
  for _, case in ipairs {
    { ROWS, {}, declared },
    { ROWS, { "kind=c,b" }, { "c: 0.99 4 16", "b: none 2 -" } },
    -- a value of the command line or of a scale takes the place of each declared one
    { ROWS, { "heads=8" }, { "b: none 8 -", "a: 0.99 - -", "c: 0.99 8 16" } },
    { ROWS, { "decay=0.5" }, { "b: 0.5 2 -", "a: 0.5 - -", "c: 0.5 4 16" } },
    { ROWS, { "decay=none" }, { "b: none 2 -", "a: none - -", "c: none 4 16" } },
    { ROWS, { "backend_options.taps=8" }, { "b: none 2 -", "a: 0.99 - -", "c: 0.99 4 8" } },
    -- of several values of a key that only rows set, these rows have all
    { ROWS, { "heads=8,1" }, { "b: none 8 -", "b: none 1 -", "a: 0.99 - -", "c: 0.99 8 16",
      "c: 0.99 1 16" } },
    { ROWS, { "backend_options.taps=log2(2,4)", "kind=a,c" }, { "a: 0.99 - -", "c: 0.99 4 2",
      "c: 0.99 4 4" } },
    { ROWS, { "decay=0.5,none", "kind=a,b" }, { "a: 0.5 - -", "b: 0.5 2 -", "a: none - -",
      "b: none 2 -" } },
    { ROWS .. "scale = { small = { backend_options = { taps = 4 }, kind = { 'c' } } },",
      { "scale=small" }, { "c: 0.99 4 4" } },
    { ROWS .. "scale = { small = { heads = 1 } },", { "scale=small", "heads=5" },
      { "b: none 5 -", "a: 0.99 - -", "c: 0.99 5 16" } },
    { ROWS .. "when = { { where = { heads = 4 }, fixed = { decay = 0.7 } } },", {},
      { "b: none 2 -", "a: 0.99 - -", "c: 0.7 4 16" } },
    { ROWS .. "except = { { where = { decay = 'none' }, reason = 'x' } },", {},
      { "a: 0.99 - -", "c: 0.99 4 16" } },
    { ROWS .. "zip = { kind = { 'c', 'a' }, n = { 1, 2 } },", {},
      { "c: 0.99 4 16", "a: 0.99 - -" } },
    { ROWS .. "zip = { backend_options = { inducing = { 1 } } },", {}, declared },
  } do
    t.eq({ case[1], case[2], (kinds(case[1], case[2])) }, case)
  end
  -- of the axis row, in the order of their names or of the list
  t.eq(labels("rows = { ski = { lr = 1 }, fd = {} },", { "model=tnn" }),
    { "model=tnn row=fd", "model=tnn row=ski" })
  t.eq(labels("rows = { { 'ski', lr = 1 }, { 'fd' } },", { "model=tnn" }),
    { "model=tnn row=ski", "model=tnn row=fd" })
  local list, about = labels(ROWS, { "model=tnn", "kind=c" })
  t.eq({ list, about.axes, about.row_keys }, { { "kind=c model=tnn" }, { "kind", "model" },
    { "backend_options.inner.x", "backend_options.taps", "decay", "heads" } })
end)

t.test("a trial reads tables of keys as tables, and counts as their reader", function()
  local _, trials = kinds(ROWS, { "kind=c" })
  local c, reads = config.new(trials[1].config), {}
  t.eq(c.backend_options, { taps = 16, inner = { x = 1 } })
  t.eq(c.heads, 4)
  config.add_reads(c, reads)
  t.eq(reads, { heads = true, ["backend_options.taps"] = true, ["backend_options.inner.x"] = true })
  _, trials = kinds(ROWS, { "kind=a" })
  t.raises(function() return config.new(trials[1].config).backend_options end,
    "has no 'backend_options'")
end)

t.test("mistakes in named rows are errors with their line", function()
  for _, case in ipairs {
    { "rows = { kind = { { 'a', lr = 1 }, { 'a' } } },", "x%.lua:5: rows: kind has two rows 'a'" },
    { "rows = { kind = { { lr = 1 } } },", 'x%.lua:5: rows: row 1 of kind is not { "name", key' },
    { "rows = { a = 3 },", "row 1 of row is not { " },
    { "rows = { a = { 5, n = 1 } },", "row 1 of row is not { " },
    { "rows = { kind = { 'a' } },", "row 1 of kind is not { " },
    { "rows = { kind = { { 'a', 'b' } } },", "row 1 of kind is not { " },
    { "rows = { kind = { { 'a', model = 1 } } },",
      "x%.lua:4: rows: 'model' is an axis, and the row 'a' of kind sets it" },
    { "rows = { kind = { { 'a', kind = 1 } } },", "'kind' is an axis, and the row 'a'" },
    { "rows = { kind = { { 'a', n = 1 } }, size = { { 's', n = 2 } } },",
      "'n' is set by rows of kind and of size" },
    { "rows = { kind = { { 'a', ['n-m'] = 1 } } },", "'n%-m' cannot be a key" },
    { "rows = { kind = { { 'a', opt = { ['n-m'] = 1 } } } },", "'opt%.n%-m' cannot be a key" },
    { "rows = { kind = { { 'a', seed = 1 } } },", "the key 'seed' is set by the runner" },
    { ROWS .. "scale = { small = { headss = 2 } },", "did you mean 'heads'" },
    { "tune = { key = 'lr', values = { 1, 2 }, metric = 'loss', seed = 101 },"
      .. "rows = { kind = { { 'a', lr = 1 } } },", "lr is chosen for every point, so no row may" },
  } do
    t.raises(declare, case[2], case[1])
  end
  for word, want in pairs {
    ["kind=xyz"] = "lua_%w+:5: kind: there is no row 'xyz' %(present: b, a, c%)",
    ["heads=none"] = "heads takes an integer, got 'none'",
    ["backend_options.tap=1"] = "lua_%w+:6: unknown key .*tap' .* mean '.*taps'",
    ["backend_options.taps=x"] = "lua_%w+:6: backend_options.taps takes an integer, got 'x'",
  } do
    t.raises(kinds, want, ROWS, { word })
  end
end)

t.test("exceptions exclude points with a reason", function()
  local except = 'except = { { where = { model = "ski", causal = true }, reason = "no form" } },'
  local list, about = labels(except)
  t.eq(list, { "model=tnn" })
  t.eq({ about.left_out[1].label, about.left_out[1].reason }, { "model=ski", "no form" })
  t.eq(labels(except, { "causal=false" }), { "model=tnn", "model=ski" })
  t.raises(labels, "no trial is left: except excludes all 1, e.g. no form", except, { "model=ski" })
  local lists = 'except = { { where = { sizes = {1, 2}, model = {"ski", "fd"} }, reason = "r" } },'
  t.eq(labels(lists), { "model=tnn" })
end)

t.test("random draws depend on the seed and the key", function()
  local random = [[random = { draws = 5, seed = 3, rate = { "log", 1e-4, 1e-2 },
    width = { "integer", 2, 4 }, kind = { "choice", "a", "b" }, share = { "uniform", 0, 0.5 } },]]
  local _, _, trials = labels(random, { "model=tnn" })
  t.eq(#trials, 5)
  for _, trial in ipairs(trials) do
    local c = trial.config
    t.ok(c.rate >= 1e-4 and c.rate <= 1e-2 and c.share >= 0 and c.share <= 0.5)
    t.ok(math.type(c.width) == "integer" and c.width >= 2 and c.width <= 4)
    t.ok(c.kind == "a" or c.kind == "b")
  end
  local _, _, more = labels(random, { "model=tnn", "draws=7", "kind=a" })
  t.eq(#more, 7)
  for i, trial in ipairs(trials) do t.eq(more[i].config.rate, trial.config.rate) end
  t.eq(more[6].config.kind, "a")
  local _, _, pinned = labels(random, { "model=tnn", "rate=0.5" })
  t.eq(pinned[1].config.rate, 0.5)
end)

t.test("mistakes in axes and rules are errors with their line", function()
  local cases = {
    { "zip = { length = { 1, 2 }, batch = { 1 } },",
      "x%.lua:5: zip: length has 2 values and batch has 1" },
    { "zip = { model = { 1 } },", "model is declared twice, in grid and in zip" },
    { "zip = { a = 1 },", "x%.lua:5: zip: a must be a list" },
    { "zip = {},", "a table with at least one list" },
    { "random = { rate = { 'log', 1e-4, 1 } },", "needs draws, the number of points" },
    { "random = { draws = 2, rate = { 'logg', 1, 2 } },", "did you mean 'log'" },
    { "random = { draws = 2, rate = { 'log', 0, 2 } },", "must be above 0" },
    { "random = { draws = 2, rate = { 'uniform', 3, 2 } },", "not above the high value" },
    { "random = { draws = 2, rate = { 'integer', 1, 2.5 } },", "takes two integers" },
    { "random = { draws = 0, rate = { 'uniform', 1, 2 } },", "an integer of at least 1, not 0" },
    { "random = { draws = 2 },", "random: needs a key" },
    { "random = { draws = 2, n = { 'integer', math.mininteger, 1 } },", "too far apart" },
    { "random = { draws = 2, n = { 'uniform', -1e308, 1e308 } },", "uniform: .* too far apart" },
    { "random = { draws = 2, n = { 'log', 1e-300, 1e300 } },", "log: .* too far apart" },
    { "rows = { row = { { 'x', ['a.b'] = 1, a = { b = 2 } } } },", "x%.lua:5: a%.b is declared" },
    { "scale = { small = { ['a.b'] = 1, a = { b = 2 } } },", "a%.b is declared twice" },
    { "zip = { ['a.b'] = { 1 }, a = { b = { 2 } } },", "a%.b is declared twice" },
    { "random = { draws = 1, ['a.b'] = { 'uniform', 1, 2 }, a = { b = { 'uniform', 1, 2 } } },",
      "a%.b is declared twice" },
    { "when = { { where = { ['a.b'] = 1, a = { b = 1 } }, fixed = { lr = 1 } } },",
      "a%.b is declared twice" },
    { "when = { { where = { lr = 1 }, fixed = { ['a.b'] = 1, a = { b = 1 } } } },",
      "a%.b is declared twice" },
    { "zip = { { a = { 1, 2 } }, b = { 1, 2 } },", "a table of lists, or a list of such tables" },
    { "when = { { where = { model = 'tnn' }, fixed = { lr = 1 }, grid = { lr = { 1 } } } },",
      "a rule sets lr twice" },
    { "when = { { where = { model = 1 }, fixed = { lr = 1 } } },", "model is never a number" },
    { "except = { { where = { lr = { 1, '2' } }, reason = 'x' } },", "lr is never a string" },
    { "except = { { where = { lr = { 1, least = 2 } }, reason = 'x' } },",
      "lr must be a value or a list of at least one value" },
    { "except = { { where = { lr = {} }, reason = 'x' } },", "or a list of at least one value" },
    { "when = { { where = { modell = 1 }, fixed = { lr = 1 } } },", "did you mean 'model'" },
    { "when = { { where = { model = 1 }, fixed = { lrr = 1 } } },", "did you mean 'lr'" },
    { "when = { { where = { model = 1 } } },", "a rule must set something" },
    { "when = { { fixed = { lr = 1 } } },", "a rule needs where" },
    { "when = { { where = { model = 1 }, grid = { lr = 1 } } },", "lr must be a list" },
    { "when = { where = { model = 1 } },", "a list of rules" },
    { "when = { { where = { model = 'ski' }, fixed = { lr = 1 } }, grid = { lr = { 1 } } },",
      "a list of rules {where=...} and nothing else" },
    { "except = { { where = { model = 1 } } },", "needs a reason" },
    { "except = { { where = { model = 1 }, because = 'x' } },", "no field 'because'" },
    { "guard = { metrik = 'loss' },", "guard: unknown option 'metrik'; did you mean 'metric'" },
    { "guard = { metric = 'loss', nan = 'ignore' },", "is not one of stop, rollback" },
    { "prune = { metric = 'loss', eta = 1.0 },", "eta.* at least 1.1" },
    { "prune = { metric = 'loss', rule = 'median', eta = 3 },", 'eta requires rule = "asha"' },
    { "checkpoint = { seconds = math.huge },", "must be above 0 and finite" },
    { "budget = { trial = '30' },", 'budget: trial must be like "90s"' },
    { "budget = { memory = '6 GB' },", 'must be like "6G"' },
  }
  for _, case in ipairs(cases) do t.raises(declare, case[2], case[1]) end
end)

t.test("invalid plans are usage errors", function()
  local function refused(want, ...)
    local ok, why = pcall(labels, ...)
    t.eq({ ok, errors.is(why) and why.code }, { false, errors.USAGE })
    t.ok(tostring(why):find(want), tostring(why))
  end
  local rule = "when = { { where = function() error(%s) end, fixed = { lr = 1 } } },"
  refused("where: .*boo", rule:format "'boo'")
  refused("where: nil", rule:format "nil")
  refused("appears twice .*: a rule of when fixes the axis model; .* leave them out by except",
    "when = { { where = { lr = 1 }, fixed = { model = 'tnn' } } },", { "lr=1" })
  refused("model=ski n=1 seed=1 appears twice", "zip = { n = { 2, 1, 1.0 } }, seeds = 2,",
    { "model=ski" })
  refused("appears twice", "zip = { n = { { 1, 2 }, { 1.0, 2 } } },")
  refused("appears twice", "random = { draws = 20, n = { 'choice', 1, 1.0 } },")
  refused("drawn by random: draw fewer", "random = { draws = 5, n = { 'integer', 1, 2 } },")
  refused("1e%+08 trials; the limit is", "random = { draws = 100000000, n = { 'uniform', 1, 2 } },")
  refused("2e%+06 trials; the limit is", "seeds = 1000000,")
  t.eq(labels("zip = { kind = { 'a\\nb' } },", { "model=ski" }), { "kind=a b model=ski" })
end)

t.test("budgets are seconds and bytes", function()
  local e = declare "budget = { trial = '30m', total = '4h', memory = '6G' },"
  t.eq({ e.budget.trial, e.budget.total, e.budget.memory }, { 1800.0, 14400.0, 6.0 * 2 ^ 30 })
  t.eq({ quantity.seconds "1.5d", quantity.seconds(9), quantity.bytes "512K" },
    { 129600.0, 9.0, 524288.0 })
  t.eq({ quantity.seconds "-1s" == nil, quantity.seconds "1x" == nil, quantity.bytes "0G" == nil },
    { true, true, true })
  local g = declare "guard = { metric = 'loss' }, prune = { metric = 'ppl' },"
  t.eq({ g.guard.nan, g.guard.retries, g.prune.rule, g.prune.eta }, { "stop", 2, "asha", 3.0 })
end)
t.test("a plan of many trials says how many before it checks them", function()
  local exp, said = declare "check = function(c) error 'not yet' end,", {}
  local function tell(text) said[#said + 1] = text end
  t.raises(plan.trials, "not yet", exp, { "seeds=499" }, tell)
  t.eq(said, {})
  t.raises(plan.trials, "not yet", exp, { "seeds=500" }, tell)
  t.eq(said, { "1000 trials are planned" })
end)

t.test("run and plan print the number of many trials at once", function()
  t.in_folder(function(folder)
    local script = folder .. "/x.lua"
    t.write(script, [[local tl = require "toeplab"
return tl.experiment "many" { check = function() error "wrong" end, trial = function() end }]])
    for _, verb in ipairs { "run", "plan" } do
      local _, code, said = t.toeplab(("%s '%s' seeds=1000 -C '%s'"):format(verb, script, folder))
      t.eq({ code, (said:match "^[^\n]*") }, { errors.USAGE, "1000 trials are planned" })
    end
  end)
end)

t.done()
