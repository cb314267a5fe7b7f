-- test_tuning.lua: a key that is chosen for each point by a small sweep of its own, before the
-- trials of the experiment run.

local t = require "harness"
local core = require "toeplab.core"
local compare = require "toeplab.report.verdicts.compare"
local errors = require "toeplab.base.errors"
local frames = require "toeplab.report.frames"
local json = require "toeplab.base.json"
local records = require "toeplab.store.records"
local reproduce = require "toeplab.runs.reproduce"
local stores = require "stores"
local sweeps = require "toeplab.store.sweeps"
local trials = require "trials"

-- The loss, if none is given, is least at lr = 0.2 for decay 0.9 and at lr = 0.3 for decay 0.99.
local function script(tune, more, loss)
  return ([[local tl = require "toeplab"
return tl.experiment "test" {
  fixed = { lr = 0.1, steps = 2 }, grid = { decay = { 0.9, 0.99 } }, seeds = 2,
  tune = { %s },
  scale = { smoke = { steps = 1 }, big = { lr = 0.05, steps = 3 } },
  trial = function(t, c)
    for step in t:steps(c.steps) do
      t:log { loss = %s }
    end
    %s
  end,
  report = { rows = "decay", columns = { "loss" } },
}]]):format(tune, loss or "(c.lr - (c.decay == 0.9 and 0.2 or 0.3)) ^ 2", more or "")
end

local usual = [[key = "lr", values = { 0.2, 0.3, 0.4 }, metric = "loss", seed = 101,
  without = { "smoke" }]]

-- A test in an empty folder.
local function test(name, fn)
  t.test(name, function() t.in_folder(fn) end)
end

-- Returns what the trials of an experiment of the folder have: "decay lr seed" in order.
local function points(folder, name)
  local list = {}
  for i, row in ipairs(trials.query(folder, ([[SELECT json_extract(config, '$.decay') || ' ' ||
      json_extract(config, '$.lr') || ' ' || seed AS point FROM v_trials
      WHERE experiment = '%s' AND status = 'done' ORDER BY 1]]):format(name))) do
    list[i] = row.point
  end
  return list
end

local chosen = { "0.9 0.2 1", "0.9 0.2 2", "0.99 0.3 1", "0.99 0.3 2" }

test("each named row runs with the value that was best for it", function(folder)
  local rows = script(usual):gsub("grid = { decay = { 0.9, 0.99 } }", [[
    rows = { model = { { "a", decay = 0.9, steps = 4 }, { "b", decay = 0.99 } } }]])
    :gsub("without = ", "fixed = { steps = 1 }, without = ")
    :gsub('rows = "decay"', 'rows = "model"')
  t.eq(trials.run(folder, rows), errors.DONE)
  t.eq(points(folder, "test"), chosen)
  t.eq(trials.query(folder, [[SELECT DISTINCT experiment || json_extract(config, '$.model')
    || json_extract(config, '$.steps') AS at FROM v_trials ORDER BY 1]]),
    { { at = "test-tuninga1" }, { at = "test-tuningb1" }, { at = "testa4" }, { at = "testb2" } })
end)

test("each point runs with the value that was best for it", function(folder)
  t.eq(trials.run(folder, script(usual)), errors.DONE)
  t.eq(points(folder, "test"), chosen)
  t.eq(points(folder, "test-tuning"), { "0.9 0.2 101", "0.9 0.3 101", "0.9 0.4 101",
    "0.99 0.2 101", "0.99 0.3 101", "0.99 0.4 101" })
end)

test("values whose results are within 3 % of the best, or as declared, are run", function(folder)
  for i, case in ipairs {
    { "1.05, 1.02, 1.0", 'goal = "min"', { 0.3, 0.4 } },
    { "1.05, 1.031, 1.0", 'goal = "min"', { 0.4 } },
    { "0.96, 0.98, 1.0", 'goal = "max"', { 0.3, 0.4 } },
    { "-0.96, -0.98, -1.0", 'goal = "min"', { 0.3, 0.4 } },
    { "0, 0, 0", 'goal = "max"', { 0.2, 0.3, 0.4 } },
    { "1.05, 1.02, 1.0", 'goal = "min", within = 0.1', { 0.2, 0.3, 0.4 } },
    { "1.05, 1.02, 1.0", 'goal = "min", within = 0', { 0.4 } },
  } do
    local text = script(("%s, %s"):format(usual, case[2]), nil,
      ("({ %s })[(10 * c.lr - 0.5) // 1 | 0] + 0 * c.decay"):format(case[1]))
    local of_case, rates = folder .. "/" .. i, {}
    core.sys.mkdir(of_case)
    t.eq(trials.run(of_case, text, { "seeds=1", "decay=0.9" }), errors.DONE)
    for k, point in ipairs(points(of_case, "test")) do
      rates[k] = tonumber(point:match " (%S+) ")
    end
    t.eq(rates, case[3])
  end
end)

-- At seed 101 both values are level. Over the other seeds 0.3 is better for decay 0.9, 0.2 for
-- 0.99, where 0.3 diverges at seed 2 of three.
test("of several values that were run, the one that is better over all seeds counts",
  function(folder)
    local loss = [[c.seed == 101 and 1 + 0 * c.decay * c.lr or c.lr == 0.4 and 9 or
      c.decay == 0.9 and 1.2 - c.lr + c.seed / 50 or
      c.lr == 0.3 and c.seed == 2 and 0 / 0 or 1.3 - c.lr / 10 + c.seed ^ 2 / 100]]
    local text = script((usual:gsub("0.4 }", "0.4 }, fixed = { steps = 1 }")), nil, loss)
    t.eq(trials.run(folder, text, { "seeds=3" }), errors.DONE)
    t.eq(#points(folder, "test"), 2 * 3 * 3) -- all values of two decays
    local store <close> = records.open(folder .. "/results", "r")
    local frame = frames.find(store, "experiment", "test", {})
    local found = {}
    for _, trial in ipairs(frame:trials { "loss" }) do
      found[trial.point.at.decay] = trial.point.at.lr
    end
    t.eq(found, { [0.9] = 0.3, [0.99] = 0.2 })
    t.eq({ #frame:trials { "loss" }, #frame:trials({ "loss" }, { lr = true }) }, { 6, 18 })
    t.eq(frame:left_out(), nil)
    -- a filter on the key chooses by itself
    local filtered = frames.find(store, "experiment", "test", { lr = { "0.2" } })
    t.eq(#filtered:trials { "loss" }, 6)
    local function said(words) return t.toeplab(("%s -C '%s/results'"):format(words, folder)) end
    t.holds(said "compare test decay=0.9 decay=0.99",
      "lr was tuned for each side: 0.2 here, 0.3 for decay=0.9")
    -- all values count where the key itself is looked at
    for words, parts in pairs {
      ["compare test lr=0.2 lr=0.3"] = { "decay=0.9: by -0.1 at each of 3 seeds",
        "1 trial of these diverged" },
      ["compare test decay=0.9 decay=0.99 lr=0.2,0.3"] = { "\nlr=0.2: decay=0.99 is worse",
        "\nlr=0.3: " },
      ["compare test decay=0.9 decay=0.99 --by lr"] = { "\nlr=0.2: ", "\nlr=0.3: ",
        "\nlr=0.4: " },
      ["table test --rows lr"] = { "\n0.2 ", "\n0.3 ", "\n0.4 ", "over decay" },
      ["table test --rows decay lr=0.2,0.3"] = { "each number averages over lr" },
    } do
      local shown = said(words)
      t.holds(shown, table.unpack(parts))
      t.eq(shown:find("of each row", 1, true), nil) -- how a value was chosen
    end
    t.holds(said "table test --rows decay", "lr of each row: of 0.2,0.3,0.4, those within")
  end)

test("scales, other seeds and a second run use what is known", function(folder)
  t.eq(trials.run(folder, script(usual), { "scale=big" }), errors.DONE)
  t.eq(points(folder, "test"), chosen)
  local count = #points(folder, "test-tuning")
  t.eq(trials.run(folder, script(usual), { "scale=big", "seeds=3" }), errors.DONE)
  t.eq(#points(folder, "test"), 6)
  t.eq(#points(folder, "test-tuning"), count)
end)

test("a store of an older schema is upgraded by the run that asks what was best", function(folder)
  trials.run(folder, script(usual), { "seeds=1" })
  stores.make_old(folder .. "/results")
  t.eq(trials.run(folder, script(usual)), errors.DONE)
  t.eq(points(folder, "test"), chosen)
end)

for word, lr in pairs { ["lr=0.7"] = "0.7", ["scale=smoke"] = "0.1" } do
  test(word .. " leaves nothing to tune", function(folder)
    t.eq(trials.run(folder, script(usual), { word, "seeds=1" }), errors.DONE)
    t.eq(points(folder, "test"), { "0.9 " .. lr .. " 1", "0.99 " .. lr .. " 1" })
    t.eq(points(folder, "test-tuning"), {})
  end)
end

test("goal = max takes the highest", function(folder)
  t.eq(trials.run(folder, script(usual .. [[, goal = "max"]]), { "seeds=1" }), errors.DONE)
  -- 0.2 and 0.4 give 0.99 the same loss
  t.eq(points(folder, "test"), { "0.9 0.4 1", "0.99 0.2 1", "0.99 0.4 1" })
end)

test("a failure in the small sweep ends the run before the experiment", function(folder)
  local failing = script(usual, [[if c.lr == 0.4 then error "too high" end]])
  local code, said = trials.run(folder, failing)
  t.eq(code, errors.FAILED)
  t.holds(said, "test has not begun: it waits for 2 trials of test-tuning; run the same command")
  t.eq(points(folder, "test"), {})
  t.eq(#points(folder, "test-tuning"), 4)
  -- The same command goes on from there.
  t.eq(trials.run(folder, failing), errors.FAILED)
  t.eq(#points(folder, "test-tuning"), 4)
end)

-- 0.2 and 0.4 give 0.99 the same loss.
local without_0_3 = { "0.9 0.2 1", "0.9 0.2 2", "0.99 0.2 1", "0.99 0.2 2", "0.99 0.4 1",
  "0.99 0.4 2" }

test("a value with which a gradient is not finite loses, too, without a guard", function(folder)
  local text = script(usual):gsub("trial = function%(t, c%)", [[%0
    local model = tl.nn.Linear(1, 1)
    local opt = tl.optim.sgd(model, { lr = 0.1 })
    local function update()
      opt:zero_grad()
      local y = model(tl.zeros(1, 1))
      if c.lr == 0.3 then y = tl.sqrt(y - y) end
      y:sum():backward()
      opt:step()
    end]]):gsub("t:steps%(c.steps%)", "t:steps(c.steps, model, opt)"):gsub("t:log", "update() %0")
  local code, said = trials.run(folder, text)
  t.eq(code, errors.DONE)
  t.ok(said:find("the gradient's norm is nan at step 1", 1, true), said)
  t.eq(points(folder, "test"), without_0_3)
end)

for goal, value in pairs { min = "0 / 0", max = "1 / 0" } do
  test("a value without a finite result loses, goal = " .. goal, function(folder)
    local wrong = script(("%s, goal = '%s'"):format(usual, goal),
      ("if c.lr < 0.4 then t:log { loss = %s } end"):format(value))
    t.eq(trials.run(folder, wrong, { "seeds=1" }), errors.DONE)
    t.eq(points(folder, "test"), { "0.9 0.4 1", "0.99 0.4 1" })
  end)
end

test("the seeds of a scale are those of the experiment only", function(folder)
  local own = script(usual):gsub("lr = 0.05, steps = 3", "%0, seeds = 1")
  t.eq(trials.run(folder, own, { "scale=big" }), errors.DONE)
  t.eq(points(folder, "test"), { "0.9 0.2 1", "0.99 0.3 1" })
  for _, point in ipairs(points(folder, "test-tuning")) do t.ok(point:find " 101$", point) end
end)

test("a value at which a guard stops the trial loses", function(folder)
  local guarded = script(usual .. [[}, guard = { metric = "loss" ]],
    [[if c.lr == 0.2 then t:log { loss = 0 / 0 } end]])
  for _ = 1, 2 do -- the second run tries the stopped trials again, and ends as the first did
    t.eq(trials.run(folder, guarded, { "seeds=1" }), errors.DONE)
    t.eq(points(folder, "test"), { "0.9 0.3 1", "0.99 0.3 1" })
  end
end)

test("--redo of the small sweep chooses again", function(folder)
  local flag = folder .. "/flag"
  local changing = script(usual, ([[if io.open "%s" then t:log { loss = -c.lr } end]]):format(flag))
  t.eq(trials.run(folder, changing, { "seeds=1" }), errors.DONE)
  t.eq(points(folder, "test"), { "0.9 0.2 1", "0.99 0.3 1" })
  do
    local store <close> = records.open(folder .. "/results", "w")
    store:rows "UPDATE trials SET code_hash = 'other' WHERE experiment = 'test-tuning'"
  end
  t.write(flag, "")
  t.eq(trials.run(folder, changing, { "seeds=1" }, { redo = true }), errors.DONE)
  t.eq(points(folder, "test"), { "0.9 0.2 1", "0.9 0.4 1", "0.99 0.3 1", "0.99 0.4 1" })
end)

test("a trial of either sweep can be run again", function(folder)
  t.eq(trials.run(folder, script(usual .. ", fixed = { steps = 1 }"), { "scale=big" }), errors.DONE)
  local store <close> = records.open(folder .. "/results", "r")
  local rows = store:rows [[SELECT id FROM v_trials WHERE json_extract(config, '$.lr') = 0.2
    AND seed > 1 ORDER BY seed]]
  t.eq(#rows, 3)
  for i, row in ipairs(rows) do
    local stored = reproduce.stored(store, row.id)
    t.eq(reproduce.run(stored, folder .. "/again" .. i, { threads = 1, quiet = true,
      command = { "toeplab" }, out = { write = function() end, flush = function() end } }), row.id)
  end
end)

test("the small sweep has its own fixed keys, whatever a rule says of them", function(folder)
  local ruled = script(usual .. [[, fixed = { steps = 1 } },
    when = { { where = { decay = 0.9 }, fixed = { steps = 5 } } ]])
  t.eq(trials.run(folder, ruled, { "seeds=1" }), errors.DONE)
  t.eq(trials.query(folder, "SELECT experiment, max(step) AS step FROM v_trials GROUP BY 1"),
    { { experiment = "test", step = 5 }, { experiment = "test-tuning", step = 1 } })
end)

test("the seed of the small sweep cannot be a seed of a trial", function(folder)
  local seeds = script(usual):gsub("steps = 3 }", "steps = 3, seeds = { 7, 101 } }")
  for _, word in ipairs { "seed=101", "seeds=3,101", "scale=big" } do
    local code, said = trials.run(folder, seeds, { word })
    t.eq(code, errors.USAGE)
    t.ok(said:find("x.lua:4: seed 101 is used to choose the lr", 1, true), said)
  end
  t.eq(trials.run(folder, seeds, { "seed=101", "lr=0.5" }), errors.DONE)
end)

-- what the script adds: a row of `tune`, and a call of the trial; the finished trials of the first
-- run and of the second, which knows them
local without_metric = {
  { "no code sets the metric: one trial tells", "", "", 1, 1 },
  { "the script names the metric elsewhere", 'better = { los = "lower" },', "", 1, 1 },
  { "the metric is logged under a condition: as many trials as values", "",
    "if c.lr > 1 then t:log { los = c.lr } end", 3, 3 },
  { "the first trial diverges, and the next tells", "",
    "t:log { acc = c.lr == 0.2 and 0 / 0 or 1 }", 2, 2 },
}

for _, case in ipairs(without_metric) do
  test("a metric that nothing logs is an error: " .. case[1], function(folder)
    local text = script((usual:gsub('"loss"', '"los", goal = "min"')), case[3])
      :gsub("seeds = 2,", "%0 " .. case[2])
    for again = 0, 1 do
      local code, said = trials.run(folder, text)
      t.eq(code, errors.FAILED)
      t.holds(said, ("x.lua:4: the trials of test-tuning log no 'los', but %sloss; did you mean "
        .. "'loss'?"):format(case[3]:find "acc" and "acc, " or ""))
      local done = trials.query(folder,
        "SELECT count(*) AS n FROM v_trials WHERE status = 'done'")[1].n
      t.eq(done, case[4 + again])
    end
  end)
end

test("a value whose trial does not log the metric loses", function(folder)
  local text = script((usual:gsub('"loss"', '"reached", goal = "min"')),
    "t:log { reached = c.lr > 0.2 and c.lr or nil }")
  t.eq(trials.run(folder, text), errors.DONE)
  t.eq(points(folder, "test"), { "0.9 0.3 1", "0.9 0.3 2", "0.99 0.3 1", "0.99 0.3 2" })
end)

test("export tells which trials tables count", function(folder)
  local within = usual .. ", within = 0.3"
  t.eq(trials.run(folder, script(within, nil,
    "1 + c.lr + (c.decay == 0.9 and c.seed == 2 and c.lr == 0.2 and 1 or 0)")), errors.DONE)
  local function chosen(words)
    local lines, list = t.toeplab(("export %s -C '%s/results' --json"):format(words, folder)), {}
    for line in lines:gmatch "[^\n]+" do
      local r = json.decode(line)
      list[#list + 1] = ("%g %g %s"):format(r["config.decay"], r["config.lr"],
        r.chosen and ("%d"):format(r.chosen) or "none")
    end
    table.sort(list)
    return list
  end
  t.eq(chosen "test seed=2", { "0.9 0.2 0", "0.9 0.3 1", "0.9 0.4 0", "0.99 0.2 1", "0.99 0.3 0",
    "0.99 0.4 0" })
  t.eq(chosen "test-tuning lr=0.2", { "0.9 0.2 none", "0.99 0.2 none" })
  t.eq(trials.run(folder, script(within), { "scale=smoke" }), errors.DONE)
  t.eq(chosen "test seed=2 lr=0.1", { "0.9 0.1 none", "0.99 0.1 none" })
  t.eq(chosen "test seed=2 decay=0.99 'lr>0.1'", { "0.99 0.2 1", "0.99 0.3 0", "0.99 0.4 0" })
end)

test("a row that diverges with every value is named", function(folder)
  local code, said = trials.run(folder, (script(usual):gsub("t:log { loss = ",
    "%0c.decay == 0.9 and 0 / 0 or ")))
  t.eq(code, errors.FAILED)
  t.holds(said, "x.lua:4: no lr of 0.2,0.3,0.4 gave a finite 'loss' at points like decay=0.9 "
    .. "lr=0.2: give lr=VALUE, declare other values, or remove this row")
end)

test("a value whose trial the guard stops loses, and is not tried again", function(folder)
  local text = script(usual):gsub("seeds = 2,", '%0 guard = { metric = "loss", nan = "stop" },')
    :gsub("t:log { loss = ", "%0c.lr == 0.3 and 0 / 0 or ")
  t.eq(trials.run(folder, text), errors.DONE)
  t.eq(points(folder, "test"), without_0_3)
  local function attempts()
    return trials.query(folder, "SELECT sum(attempt) AS n FROM v_trials")[1].n
  end
  local before = attempts()
  t.eq(trials.run(folder, text), errors.DONE)
  t.eq(attempts(), before)
end)

test("trials that choose are not pruned", function(folder)
  local text = script(usual):gsub("seeds = 2,",
    '%0 prune = { metric = "loss", rule = "asha", eta = 2, min_steps = 1 },')
  t.eq(trials.run(folder, text), errors.DONE)
  t.eq(#points(folder, "test-tuning"), 6)
end)

test("budget.total covers the small sweep and the experiment together", function(folder)
  local text = script(usual, "core.sys.sleep(c.seed == 101 and 0.15 or 1.25)"):gsub("seeds = 2,",
    '%0 budget = { total = "3s" },'):gsub("^", 'local core = require "toeplab.core"\n')
  t.eq(trials.run(folder, text), errors.BUDGET)
  -- The small sweep takes at least 0.9 s, so that at most 2.1 s are left, and not 3 for two trials.
  t.ok(#points(folder, "test") < 2, #points(folder, "test"))
end)

test("if a later sweep chose another value, only the later one counts", function(folder)
  -- after one step 0.2 is best, after two 0.4
  local text = script(usual .. ", fixed = { steps = 1 }"):gsub(
    "%(c.decay == 0.9 and 0.2 or 0.3%)", "((c.steps == 1 and 0.2 or 0.4) + 0 * c.decay)")
  t.eq(trials.run(folder, text, { "seeds=3" }), errors.DONE)
  t.eq(trials.run(folder, text, { "steps=2", "seeds=2" }), errors.DONE)
  t.eq(#points(folder, "test"), 10)
  local store <close> = records.open(folder .. "/results", "r")
  t.holds(sweeps.find(store, "experiment", "test")[1].plan, "(test-tuning steps=2)")
  local frame = frames.find(store, "experiment", "test", {})
  for _, trial in ipairs(frame:trials { "loss" }) do
    t.eq({ trial.point.at.lr, trial.seed <= 2 }, { 0.4, true })
  end
  t.eq(#frame:trials { "loss" }, 4)
  t.eq(frame:left_out(), "left out: 6 trials of earlier code or data, or of an earlier choice of "
    .. "lr (toeplab table 2 has them)")
  -- a command leaves the value to the small sweep, so that its trials belong to this frame
  t.eq(frame:command({ decay = 0.9, lr = 0.4 }, "seed=1"),
    ("toeplab run %s/x.lua steps=2 decay=0.9 seed=1 -C %s/results"):format(folder, folder))
end)

test("the table says how the key was chosen", function(folder)
  trials.run(folder, script(usual))
  local store <close> = records.open(folder .. "/results", "r")
  local plan = sweeps.find(store, "experiment", "test")[1].plan
  t.holds(plan, "lr of each row: of 0.2,0.3,0.4, those within 3 % of the best loss at seed 101 "
    .. "(test-tuning) were run, and that with the better mean loss over all seeds counts; at seed "
    .. "101 the lowest or highest of these was best for decay=0.9 lr=0.2\"")
end)

test("plan as CSV has one header for the small sweep and the experiment", function(folder)
  t.write(folder .. "/x.lua", script(usual))
  for options, want in pairs {
    ["--csv"] = { "name,value\n", "experiment,test%-tuning\n.*experiment,test\n" },
    ["--csv --list"] = { "id,status,step,seconds,trial,experiment\n", "" },
  } do
    local said = t.shell(("'%s' plan '%s/x.lua' %s -C '%s/results'"):format(core.sys.executable(),
      folder, options, folder))
    t.ok(said:find("^" .. want[1] .. ".*" .. want[2]), said)
    t.eq(select(2, said:gsub(want[1], "")), 1)
  end
end)

test("plan says what the seeds resolve, also if the report is a function", function(folder)
  local spread = script(usual):gsub("%^ 2 }",
    "^ 2 * 10 + 1 + (c.decay < 0.95 and 1 or -1) * c.seed / 200 }")
  for _, report in ipairs { "{ rows = 'decay', columns = { 'loss' } }", "function() end" } do
    trials.run(folder, (spread:gsub("report = .*", "report = " .. report .. " }")))
    local said = t.shell(("'%s' plan '%s/x.lua' -C '%s/results' 2>&1"):format(
      core.sys.executable(), folder, folder))
    -- differences of -0.01 and -0.02, around 1: a deviation of 0.00707, and a true difference of
    -- 11.6 deviations is needed with 1 degree of freedom
    t.holds(said, "resolves 8.2 % of loss with 2 paired seeds, 4 times in 5; differences at a seed "
      .. "spread by 0.71 % (1 pair of finished rows)")
  end
end)

test("rows with other values of the tuned key are compared, apart from runs that were given it",
  function(folder)
    local two = script(usual):gsub("grid = {", "grid = { op = { 'x', 'y' },")
      :gsub("loss = %(", "loss = (c.op == 'y' and -c.lr or 0) + (")
    t.eq(trials.run(folder, two, { "lr=0.7" }), errors.DONE)
    t.eq(trials.run(folder, two), errors.DONE)
    local store <close> = records.open(folder .. "/results", "r")
    local frame = frames.find(store, "experiment", "test", {})
    local result = compare.new(frame, "decay", { "0.9", "0.99" }, "loss")
    t.eq(#result.rows, 2)
    for i, row in ipairs(result.rows) do
      t.eq({ row.label, #row.a, #row.b, row.alone }, { "op=" .. ("xy"):sub(i, i), 2, 2, 0 })
    end
  end)

test("mistakes are named with their line", function(folder)
  for _, case in ipairs {
    { [[key = "lrr", values = { 1, 2 }, metric = "loss", seed = 9]],
      "x.lua:4: tune: 'lrr' is not a key of fixed; did you mean 'lr'" },
    { [[key = "lr", values = { 0.1 }, metric = "loss", seed = 9]], "at least two values of lr" },
    { [[key = "lr", values = { 0.1, 0.2 }, metric = "loss", seed = 2]],
      "seed 2 is used to choose the lr, so the trials cannot use it" },
    { [[key = "lr", values = { 0.1, 0.2 }, metric = "loss", seed = 9, without = { "smok" }]],
      "did you mean 'smoke'" },
    { [[key = "lr", values = { 0.1, 0.2 }, metric = "loss", seed = 9, without = { smoke = true }]],
      "tune: without must be a list of scales" },
    { [[key = "lr", values = { 0.1, 0.1 }, metric = "loss", seed = 9]],
      "x.lua:4: tune: values contains 0.1 twice" },
    { [[key = "lr", values = { 0.1, "x" }, metric = "loss", seed = 9]],
      "tune: values has a number and a string: all values of lr must have one type" },
    { usual .. ", fixed = { lr = 1 }", "fixed sets the tuned key lr" },
    { usual .. [[}, when = { { where = { decay = 0.9 }, fixed = { lr = 1 } } ]],
      "no rule of when may name it" },
    { usual .. [[}, when = { { where = { lr = 0.1 }, fixed = { steps = 1 } } ]],
      "no rule of when may name it" },
    { usual .. [[, fixed = { steps = 1 } },
        when = { { where = { steps = 2, decay = 0.9 }, fixed = { decay = 0.5 } } ]],
      "test-tuning lacks trials like decay=0.5" },
    { usual .. [=[}, except = { { where = function(c) return c.lr == 0.3 end, reason = "slow" } ]=],
      "rules of when and except must not depend on lr" },
    { [[key = "lr", value = { 0.1, 0.2 }, metric = "loss", seed = 9]], "did you mean 'values'" },
  } do
    local code, said = trials.run(folder, script(case[1]))
    t.eq(code, errors.USAGE)
    t.ok(said:find(case[2], 1, true), said)
  end
end)

t.done()
