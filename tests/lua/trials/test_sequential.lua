-- test_sequential.lua: seeds = "until 2 %": the rule, its looks, and runs that add seeds by it.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local seed_looks = require "toeplab.report.verdicts.seed_looks"
local sequential = require "toeplab.trials.sequential"
local stats = require "toeplab.report.stats"
local t = require "harness"
local trials = require "trials"

-- ---- The rule ---------------------------------------------------------------------------------

t.test("a rule has a percentage and the most seeds, and its looks share 5 %", function()
  for text, want in pairs {
    ["until 2 %"] = { 2, { 14, 18 } }, ["until 0.5%, at least 3"] = { 0.5, { 3, 5, 8, 12, 18 } },
    [" until 2 %, at least 3, at most 30 "] = { 2, { 3, 5, 8, 12, 18, 27, 30 } },
    ["until 2 %, at most 30 seeds"] = { 2, { 14, 21, 30 } },
    ["until 1e1 % at least 3 at most 4 seeds"] = { 10, { 3, 4 } },
    ["until 2 %, at most 3"] = { 2, { 3 } }, ["until 2 %, at least 30"] = { 2, { 30 } },
  } do
    local rule = sequential.rule(text)
    t.eq({ rule.percent, rule.looks }, want)
    t.eq(sequential.rule(rule.text), rule)
    local sum = 0.0
    for _, share in ipairs(rule.alpha) do sum = sum + share end
    t.eq(sum, 0.05, 1e-12)
  end
  for _, text in ipairs { "until 0 %", "until -3 %", "until banana", "until", "until 2", "until %",
    "until 100 %", "until nan %", "until 2 %, at most 2", "until 2 %, at most many",
    "until 2 %, at most 1001", "until 2 %, at most 9.5", "until 2 % or so",
    "until 2 %, at least 2", "until 2 %, at least 9, at most 8",
    "until 2 %, at least 5, at least 6", "until 2 %, at least many" } do
    t.ok(sequential.is_text(text), text)
    local rule, form = sequential.rule(text)
    t.eq(rule, nil)
    t.ok(form:find('write "until 2 %"', 1, true), form)
  end
  -- of a store of an earlier release
  t.eq(sequential.rule("until 2 %, at most 5", true).looks, { 3, 5 })
  t.ok(not sequential.is_text "untilted" and not sequential.is_text "3")
end)

-- ---- Coverage ---------------------------------------------------------------------------------

local RUNS = 1000

-- Returns whether the intervals of all looks at normal numbers of mean 0 cover 0.
local function covered_by_all(rule, list)
  local sum, squares, k = 0.0, 0.0, 1
  for n, x in ipairs(list) do
    sum, squares = sum + x, squares + x * x
    if n == rule.looks[k] then
      local se = math.sqrt((squares - sum * sum / n) / (n - 1) / n)
      if math.abs(sum / n) > stats.t_quantile(1 - rule.alpha[k] / 2, n - 1) * se then
        return false
      end
      k = k + 1
    end
  end
  return true
end

-- Follows RUNS rows by the rule "until 2 %, at least 3", whose logarithms are normal with the mean
-- 0 and this deviation. missed: the share of each look, or nil for that of the rule. Returns the
-- shares of the rows whose interval covers 1 where they stop, and at all looks, and the mean seeds
-- of a row.
local function covered(deviation, missed)
  local rule = sequential.rule "until 2 %, at least 3"
  for k in ipairs(rule.alpha) do rule.alpha[k] = missed or rule.alpha[k] end
  local stream = core.stream(7, "coverage " .. deviation)
  local at_stop, at_all, seeds = 0, 0, 0
  for _ = 1, RUNS do
    local list = stream:normal(core.zeros(rule.most)):totable()
    local function value_of(point, seed)
      return point.row and math.exp(deviation * list[seed]) or 1.0
    end
    local c = { { row = { row = true }, base = {} } }
    local state = seed_looks.judge(rule, c, value_of)[1]
    if state.low <= 1 and state.high >= 1 then at_stop = at_stop + 1 end
    seeds = seeds + state.seeds
    if covered_by_all(rule, list) then at_all = at_all + 1 end
  end
  return at_stop / RUNS, at_all / RUNS, seeds / RUNS
end

-- Below this, 1,000 rows of a true coverage of 95 % fall about twice in a thousand cases.
local LEAST = 0.95 - 3 * math.sqrt(0.95 * 0.05 / RUNS)

t.test("the interval at which a row stops covers the ratio in 95 % of the cases", function()
  local means = {}
  for i, deviation in ipairs { 0.002, 0.004, 0.01, 0.02, 0.05 } do
    local at_stop, at_all, seeds = covered(deviation)
    t.ok(at_stop >= LEAST and at_all >= LEAST, ("deviation %g: %g, at all looks %g"):format(
      deviation, at_stop, at_all))
    means[i] = seeds
  end
  t.ok(means[1] < 4 and means[3] > 5 and means[3] < 8 and means[5] > 17, table.concat(means, " "))
end)

t.test("intervals of 95 % at each look would not", function()
  local _, at_all = covered(0.02, 0.05)
  t.ok(at_all < 0.9, at_all)
end)

-- ---- What is compared -------------------------------------------------------------------------

t.test("rows are compared with the one that shares the further keys", function()
  local points = {}
  for _, task in ipairs { "a", "b" } do
    for _, op in ipairs { "x", "y", "z" } do points[#points + 1] = { task = task, op = op } end
  end
  local list = seed_looks.comparisons(points, { op = "x" })
  t.eq(#list, 4)
  for _, c in ipairs(list) do t.eq({ c.base.op, c.base.task }, { "x", c.row.task }) end
  -- of a zip, the other keys go along
  points = { { op = "x", layers = 3 }, { op = "y", layers = 4 } }
  list = seed_looks.comparisons(points, { op = "x" })
  t.eq({ #list, list[1].row.layers, list[1].base.layers }, { 1, 4, 3 })
  -- a key that was tuned separates nothing
  points = { { op = "x", task = "a", lr = 1 }, { op = "x", task = "b", lr = 2 },
    { op = "y", task = "a", lr = 2 } }
  t.eq(seed_looks.comparisons(points, { op = "x" }, "lr")[1].base, points[1])
  t.eq(select(2, seed_looks.comparisons(points, { op = "w" })), "no row has op=w (there are: "
    .. "lr=1 op=x task=a; lr=2 op=x task=b; lr=2 op=y task=a)")
  t.eq(select(2, seed_looks.comparisons({ { op = "x" } }, { op = "x" })),
    "every row has op=x, so there is nothing to compare")
  t.eq(select(2, seed_looks.comparisons({ { op = "x", task = "a" }, { op = "x", task = "b" },
    { op = "y", task = "c" } }, { op = "x" })),
    "op=y task=c has 0 rows with op=x to be compared with, and needs one")
end)

-- ---- Runs -------------------------------------------------------------------------------------

-- The loss of decay 0.99 is 1. That of the others is about 2, and swings with the seed: little
-- for 0.9, which stops at the first look, more for 0.95, which is known at the third and last, and
-- much for "none", which is not.
local text = [[
local tl = require "toeplab"
return tl.experiment "seq" {
  fixed = { steps = 2, pause = 0.0 }, grid = { decay = { 0.9, 0.95, "none", 0.99 } },
  seeds = "until 2 %, at least 3, at most 8", EXTRA
  compare = { with = { decay = 0.99 } },
  trial = function(t, c)
    local swing = ({ [0.9] = 0.0005, [0.95] = 0.018, none = 0.1, [0.99] = 0 })[c.decay]
    local base = c.decay == 0.99 and 1 or 2
    for step in t:steps(c.steps) do
      BEFORE
      t:log { loss = base * math.exp(swing * (c.seed * 7 % 11 - 5) / 5) }
      tl.sys.sleep(c.pause)
    end
  end,
  report = { rows = "decay", columns = { "loss" } },
}]]

local function script(extra, before)
  return (text:gsub("EXTRA", extra or ""):gsub("BEFORE", before or ""))
end

-- Returns how many finished seeds each row in folder has: "0.9: 3, 0.95: 8, ...".
local function seeds_of(folder)
  local parts = {}
  for i, row in ipairs(trials.query(folder, [[SELECT json_extract(config, '$.decay') AS decay,
      count(*) AS n, max(seed) AS most FROM v_trials WHERE status = 'done' GROUP BY 1
      ORDER BY 1]])) do
    t.eq(row.n, row.most)
    parts[i] = ("%s: %d"):format(row.decay, row.n)
  end
  return table.concat(parts, ", ")
end

local whole = "0.9: 3, 0.95: 8, 0.99: 8, none: 8"

-- Runs the program with words on the script in folder; returns its code and all that it prints.
local function program(folder, words)
  local said, code = t.shell(("cd '%s' && '%s' %s -C '%s/results' 2>&1"):format(folder,
    core.sys.executable(), words, folder))
  return code, said
end

local function test(name, fn)
  t.test(name, function() t.in_folder(fn) end)
end

test("each row gets seeds until its ratio is known, and the table says why it stopped",
  function(folder)
    t.write(folder .. "/x.lua", script())
    local code, said = program(folder, "run -j2 x.lua")
    t.eq(code, errors.DONE)
    t.eq(seeds_of(folder), whole)
    t.holds(said, "2 rows continue with up to 5 seeds", "2 rows continue with up to 8 seeds",
      "27 trials: 27 done")
    local lines = { "after 3, 5 and 8 seeds", "corrected for the 3 looks: they share 5 %",
      "decay=0.9 over decay=0.99, loss: ratio ", ", 3 seeds, look 1 of 3; stopped: known to ",
      ", 8 seeds, look 3 of 3; stopped: known to ",
      ", 8 seeds, look 3 of 3; stopped: at the most seeds, known to " }
    t.holds(said, table.unpack(lines))
    local _, shown = program(folder, "table seq --md")
    t.holds(shown, table.unpack(lines))
    code, said = program(folder, "run x.lua") -- nothing is left to do
    t.eq(code, errors.DONE)
    t.holds(said, "27 trials: 27 already done", table.unpack(lines))
    t.eq(#trials.query(folder, "SELECT 1 FROM sweeps"), 1)
  end)

test("a repeated command after a stop runs the same trials", function(folder)
  local code, runs = trials.run_stopped(folder, script(), { "0.9-1-1", "none-4-1", "0.95-7-1",
    "0.99-8-2" }, [[c.decay .. "-" .. c.seed .. "-" .. step]], nil,
    { jobs = 2 })
  t.eq(code, errors.DONE)
  t.ok(runs > 3, runs)
  t.eq(seeds_of(folder), whole)
end)

test("a trial that fails ends the seeds of its row alone, and is tried again", function(folder)
  local flag = folder .. "/flag"
  t.write(flag, "")
  t.write(folder .. "/x.lua", script("", ([[if c.decay == 0.95 and c.seed == 4 and io.open "%s" then
    error "no" end]]):format(flag)))
  local code, said = program(folder, "run -j2 x.lua")
  t.eq(code, errors.FAILED)
  t.holds(said, "decay=0.95 over decay=0.99, loss: ratio ", ", 3 seeds, look 1 of 3; stopped: "
    .. "decay=0.95 seed=4 failed", "8 seeds, look 3 of 3; stopped: at the most seeds")
  local _, shown = program(folder, "table seq")
  t.holds(shown:gsub("\n  ", " "), "3 seeds, look 1 of 3; stopped: decay=0.95 seed=4 failed")
  os.remove(flag)
  t.eq(program(folder, "run -q -j2 x.lua"), errors.DONE)
  t.eq(seeds_of(folder), whole)
end)

test("a result without a ratio ends the seeds of its row", function(folder)
  t.write(folder .. "/x.lua", script("", "if c.decay == 0.9 then t:log { loss = 0 / 0 } end")
    :gsub("t:log { loss = base", "if c.decay ~= 0.9 then t:log { loss = base", 1)
    :gsub("/ 5%) }", "%0 end") .. "")
  local code, said = program(folder, "run -q -j2 x.lua")
  t.eq(code, errors.DONE)
  t.holds(said,
    "decay=0.9 over decay=0.99, loss: no look yet; stopped: decay=0.9 seed=1 has loss = ",
    "nan, and a ratio needs a number above 0")
end)

test("when the budget ends, the run prints its progress, and continues later", function(folder)
  t.write(folder .. "/x.lua", script('budget = { total = "1s" },'))
  -- 18 trials of 0.1 seconds
  local words = "run -q x.lua pause=0.05 'seeds=until 2 %, at least 3, at most 5'"
  local code, said = program(folder, words)
  t.eq(code, errors.BUDGET)
  t.holds(said, "; the budget ended", "the same command continues")
  local again = 0
  repeat
    code, again = program(folder, words), again + 1
  until code == errors.DONE or again > 20
  t.eq(code, errors.DONE)
  t.eq(seeds_of(folder), "0.9: 3, 0.95: 5, 0.99: 5, none: 5")
end)

test("the command line takes the rule, and a fixed number of seeds shares its trials",
  function(folder)
    local plain = script():gsub('seeds = "until 2 %%, at least 3, at most 8",', "seeds = 4,")
      :gsub("compare = .-}, *\n", "")
    t.eq(trials.run(folder, plain, { "seeds=until 2 %, at least 3, at most 5",
      "compare=decay=0.99" }),
      errors.DONE)
    t.eq(seeds_of(folder), "0.9: 3, 0.95: 5, 0.99: 5, none: 5")
    local _, said = trials.run(folder, plain, { "seeds=5" })
    t.ok(said:find("20 trials: 2 done, 18 already done", 1, true), said)
    local row = trials.query(folder, "SELECT id FROM v_trials WHERE seed = 4 LIMIT 1")[1]
    local code, again = program(folder, "reproduce " .. row.id)
    t.eq(code, errors.DONE)
    t.holds(again, "bit-identical")
  end)

test("plan says what is run at least and at most", function(folder)
  t.write(folder .. "/x.lua", script())
  local _, said = program(folder, "plan x.lua")
  t.holds(said, "decay(4) x seeds(3 to 8)", "2 % of loss over decay=0.99; looks at 3, 5, 8 seeds; "
    .. "at least the 12 trials to run, and at most 20 more")
  t.eq(program(folder, "run -q -j2 x.lua"), errors.DONE)
  _, said = program(folder, "plan x.lua --json")
  t.holds(said, '"done":27', '"later":0', '"to_run":0')
  _, said = program(folder, "plan x.lua steps=1 --csv")
  t.holds(said, "to_run,12\nlater,20\n")
  _, said = program(folder, "run x.lua --dry-run")
  t.holds(said, "until 2 %, at least 3, at most 8: 27 trials at most")
end)

test("a key that is tuned is chosen first, and for each seed", function(folder)
  local tune = [[tune = { key = "lr", values = { 0.5, 1.0 }, metric = "loss", seed = 101 },]]
  local tuned = script(tune):gsub("steps = 2,", "steps = 2, lr = 0.1,")
    :gsub("= base", "= c.lr * base")
  t.write(folder .. "/x.lua", tuned)
  local _, said = program(folder, "plan x.lua")
  t.holds(said, "seq-tuning", "2 % of loss over decay=0.99; looks at 3, 5, 8 seeds; "
    .. "at least the 12 trials to run, and at most 20 more\n")
  _, said = program(folder, "run x.lua --dry-run")
  t.holds(said, "until 2 %, at least 3, at most 8: 32 trials at most")
  t.eq(program(folder, "run -q -j2 x.lua"), errors.DONE)
  t.eq(#trials.query(folder, "SELECT 1 FROM v_trials WHERE experiment = 'seq-tuning'"), 8)
  t.eq(#trials.query(folder, [[SELECT 1 FROM v_trials WHERE experiment = 'seq'
    AND status = 'done']]), 27)
  _, said = program(folder, "table seq")
  t.holds(said:gsub("\n  ", " "), "decay=0.95 lr=0.5 over decay=0.99 lr=0.5, loss: ratio ")
end)

test("of a tuned key that has several values in a row, the looks judge the better one",
  function(folder)
    local tune = [[tune = { key = "lr", values = { 1.0, 1.02 }, metric = "loss", seed = 101 },]]
    -- the small sweep, at seed 101, has them the other way round
    t.write(folder .. "/x.lua", (script(tune):gsub("steps = 2,", "steps = 2, lr = 0.1,")
      :gsub("= base", "= (c.seed == 101 and 1 / c.lr or c.lr) * base")))
    t.eq(program(folder, "run -q -j2 x.lua"), errors.DONE)
    t.eq(trials.query(folder, [[SELECT json_extract(config, '$.lr') AS lr, count(*) AS n
      FROM v_trials WHERE experiment = 'seq' AND status = 'done' GROUP BY 1 ORDER BY 1]]),
      { { lr = 1.0, n = 27 }, { lr = 1.02, n = 27 } })
    local _, said = program(folder, "table seq")
    t.holds(said:gsub("\n  ", " "), "decay=0.95 lr=1.0 over decay=0.99 lr=1.0, loss: ratio ",
      "look 3 of 3; stopped: known to 2 %")
  end)

-- ---- Mistakes ---------------------------------------------------------------------------------

test("mistakes are errors that show the right form", function(folder)
  local compare = "compare = { with = { decay = 0.99 } },"
  local function with(what) return { compare, what } end
  local rule = 'seeds = "until 2 %%, at least 3, at most 8",'
  for _, case in ipairs {
    { { rule, 'seeds = "until 0 %%",' },
      'x.lua:4: seeds = \'until 0 %\' is not valid: write "until' },
    { { rule, 'seeds = "until -3 %%",' }, "is not valid: write" },
    { { rule, 'seeds = "banana",' }, "seeds = 'banana' is not valid: write \"until 2 %\", or" },
    { with "", 'declare compare = { with = { decay = 0.9 } }, or give compare=KEY=VALUE' },
    { with "compare = { with = { decy = 0.99 } },",
      "there is no axis 'decy'; did you mean 'decay'" },
    { with "compare = { with = { steps = 2 } },", "there is no axis 'steps' (present: decay)" },
    { with "compare = { with = { decay = 0.5 } },",
      "x.lua:5: compare: no row has decay=0.5 (there are: decay=0.9; decay=0.95; decay=none; " },
    { with "compare = { with = { decay = { 0.9, 0.99 } } },", "decay needs one value" },
    { with "compare = { with = {} },", "with is empty" },
    { with "compare = { decay = 0.99 },", "did you mean" },
    { with "compare = { with = { decay = 0.99 }, metric = 'lss' },",
      "seed=1 logged no 'lss'; did you mean 'loss'?" },
    { { compare, compare .. " prune = { metric = 'loss' }," }, "cannot be combined with prune" },
    { { 'report = { rows = "decay", columns = { "loss" } },', "" },
      'requires a metric: declare metric = "loss" in compare' },
  } do
    local wrong = script()
    local from, to = wrong:find(case[1][1]:gsub("%%%%", "%%"), 1, true)
    wrong = wrong:sub(1, from - 1) .. case[1][2]:gsub("%%%%", "%%") .. wrong:sub(to + 1)
    if not case[2]:find "did you mean$" then
      local code, said = trials.run(folder, wrong)
      t.eq(code, errors.USAGE)
      t.holds(said, case[2])
    else
      t.eq(trials.run(folder, wrong), errors.USAGE)
    end
  end
  for _, case in ipairs {
    { { "seeds=until 0 %" }, "seeds='until 0 %' is not valid: write \"until 2 %\"" },
    { { "seeds=until banana" }, "seeds='until banana' is not valid" },
    { { "seeds=banana" }, "seeds takes integers of at least 1, or a rule like \"until 2 %\", got" },
    { { "compare=0.99" }, "compare takes key=value of the baseline row" },
    { { "compare=steps=2" }, "there is no axis 'steps'" },
    { { "compare=decay=0.98" }, "no row has decay=0.98" },
    { { "seeds=3", "compare=decay=0.99" }, 'compare requires seeds like "until 2 %": give both' },
    { { "decay=0.99" }, "every row has decay=0.99, so there is nothing to compare" },
    { { "compare=decay=0.99 metric=los" }, "seed=1 logged no 'los'; did you mean 'loss'?" },
    { {}, "--on cannot be combined with seeds like", { on = {} } },
  } do
    local code, said = trials.run(folder, script(), case[1], case[3])
    t.eq(code, errors.USAGE)
    t.holds(said, case[2])
  end
end)

t.done()
