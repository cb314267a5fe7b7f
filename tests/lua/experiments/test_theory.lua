-- test_theory.lua: the experiments in experiments/theory at their smallest scale: what each finds,
-- and that it leaves its table and its picture.
local t = require "harness"
local core = require "toeplab.core"
local cost = require "toeplab.train.cost"
local records = require "toeplab.store.records"
local mean_table = require "toeplab.report.mean_table"
local runner = require "toeplab.runs.runner"

local theory = t.root .. "experiments/theory/"

-- Runs the experiment in folder, silently; returns its trials {config=, metrics=, series(metric)}.
local function run(folder, name, ...)
  local show, said = print, {}
  local out = { write = function(_, ...) said[#said + 1] = table.concat { ... } end,
    flush = function() end }
  rawset(_G, "print", function() end)
  local ok, code = pcall(runner.run, theory .. name .. ".lua", { "scale=smoke", ... },
    { dir = folder, out = out, command = { "toeplab", "run", name } })
  rawset(_G, "print", show)
  if not ok then error(code, 0) end
  t.eq(code, 0)
  t.ok(not table.concat(said):find "failed", table.concat(said))
  local store <close> = records.open(folder, "r")
  local trials = {}
  for _, row in ipairs(store:rows("SELECT id, config, seed FROM v_trials ORDER BY created, id")) do
    local trial = { id = row.id, seed = row.seed, config = store:decode(row.config), logs = {} }
    trial.metrics = store:results(row.id)
    for metric in pairs(trial.metrics) do
      local at, values = store:series(row.id, metric)
      trial.logs[metric] = { at = at, values = values }
    end
    trials[#trials + 1] = trial
  end
  return trials
end

-- run in a folder of its own; fn(trials, folder). The files are those of the names.
local function of(name, files, fn)
  t.in_folder(function(folder)
    local trials = run(folder, name)
    for _, file in ipairs(files) do
      local text = t.read(folder .. "/" .. file)
      t.ok(text and #text > 100, "no " .. file)
      t.ok(not text:find(folder, 1, true), file .. " names a folder of this machine")
    end
    fn(trials, folder)
  end)
end

local function choose(trials, wanted)
  local list = {}
  for _, trial in ipairs(trials) do
    local fits = true
    for key, value in pairs(wanted) do fits = fits and trial.config[key] == value end
    if fits then list[#list + 1] = trial end
  end
  t.ok(#list > 0, "no such trial")
  return list
end

-- The mean of a metric over trials, at an index or its newest.
local function mean(trials, metric, index)
  local values = {}
  for _, trial in ipairs(trials) do
    local log = trial.logs[metric]
    for i, at in ipairs(log.at) do
      if at == index or index == nil and i == #log.at then values[#values + 1] = log.values[i] end
    end
  end
  return (mean_table.mean(values))
end

local function within(got, want, part, what)
  if math.abs(got - want) <= part * want then return end
  error(("%s is %.4g, more than %g %% from %.4g"):format(what, got, 100 * part, want), 2)
end

t.test("the encoder saturates with the lag, by 1/k", function()
  local files = { "tables/saturation-smoke.md", "tables/saturation-gain-smoke.md",
    "figures/saturation-smoke.svg" }
  of("saturation", files, function(trials)
    local three, six = choose(trials, { rpe_layers = 3 }), choose(trials, { rpe_layers = 6 })
    local found = { [0] = 0.76, [1] = 0.54, [5] = 0.17, [10] = 0.09, [20] = 0.045, [100] = 0.009 }
    for lag, want in pairs(found) do
      within(mean(three, "distance", lag), want, 0.3, "the distance at lag " .. lag)
      t.ok(mean(six, "distance", lag) < mean(three, "distance", lag), "6 layers saturate later")
    end
    within(mean(three, "distance", 500) * 500, mean(three, "distance", 50) * 50, 0.05, "k distance")
    local gain = mean(three, "gain_50")
    t.ok(gain > 15 and gain < 85, "the median gain is " .. gain)
  end)
end)

t.test("the encoder is piecewise linear without a norm, and with one it is not", function()
  of("proposition1", { "tables/proposition1-smoke.md", "figures/proposition1-smoke.svg" },
    function(trials)
      for _, trial in ipairs(trials) do
        local m = trial.metrics
        t.ok(m.positions > 50, m.positions)
        if trial.config.norm == "none" then
          t.ok(m.curvature < 20 * m.rounding, m.curvature)
        else
          t.ok(m.curvature > 500 * m.rounding, m.curvature)
        end
      end
    end)
end)

t.test("impulse responses fall as j^-2 by the slopes at the ends; those of cos omega do not",
  function()
    of("smoothness", { "tables/smoothness-smoke.md", "tables/smoothness-bounds-smoke.md",
      "figures/smoothness-smoke.svg" },
      function(trials)
        for _, norm in ipairs { "simplermsnorm", "none" } do
          for _, act in ipairs { "silu", "gelu" } do
            local raw = choose(trials, { norm = norm, act = act, input = "integer" })
            local cos = choose(trials, { norm = norm, act = act, input = "cos" })
            for _, parity in ipairs { "even", "odd" } do
              within(mean(raw, "floor_" .. parity), mean(raw, "predicted_" .. parity), 0.2, act)
              t.ok(mean(cos, "floor_" .. parity) < mean(raw, "floor_" .. parity) / 100)
            end
            t.ok(mean(cos, "significant_lags") < mean(raw, "significant_lags") / 5)
          end
          for _, trial in ipairs(choose(trials, { norm = norm })) do
            local m = trial.metrics
            within(m.parseval, 1, 1e-3, "the sum of squares")
            t.ok(m.over_bound_1 <= 1, "above the bound by H'")
            t.ok(m.over_bound_2_with_kinks <= 1.01, "above the bound by H'' and the kinks")
            local cos = trial.config.input == "cos"
            t.ok(not cos or m.over_bound_2 <= 1.01, "above the bound by H''")
          end
          local silu = choose(trials, { norm = norm, act = "silu", input = "integer" })
          t.ok(mean(silu, "over_bound_2") > 1, "the kinks do not break the bound by H''")
          local relu = choose(trials, { norm = norm, act = "relu", input = "cos" })
          t.ok(mean(relu, "floor_even") > 1e4 * mean(relu, "predicted_even")) -- by its own kinks
        end
      end)
  end)

t.test("the error of interpolation keeps the bound of Theorem 1", function()
  of("theorem1", { "tables/theorem1-smoke.md", "figures/theorem1-smoke.svg" }, function(trials)
    local count = 0
    for _, trial in ipairs(trials) do
      local log, before = trial.logs, math.huge
      for i in ipairs(log.measured.at) do
        count = count + 1
        local measured = log.measured.values[i]
        t.ok(measured <= log.bound.values[i], "above the bound")
        t.ok(measured < before, "more inducing points are worse")
        t.ok(log.of_T.values[i] >= log.best.values[i] * (1 - 1e-4), "better than the best")
        t.ok(log.nystrom.values[i] <= log.bound.values[i])
        t.ok(log.plugin.values[i] < 1e-5, "the plugin's matrix is another")
        if log.condition.values[i] < 1e3 then
          within(log.nystrom_svd.values[i], log.nystrom.values[i], 1e-2, "Nystrom's error by A^+")
        end
        before = measured
      end
    end
    t.eq(count, 27)
  end)
end)

t.test("causal SKI is measured in both forms, beside fft", function()
  of("causal-ski", { "tables/causal-ski-smoke.md", "figures/causal-ski-smoke.svg" },
    function(trials)
      t.eq(#trials, 5)
      for _, trial in ipairs(trials) do
        t.eq(trial.logs.seconds.at, { 256, 512, 1024 })
        local memory = trial.logs.bytes
        local exponent = cost.exponent(memory.at, memory.values)
        t.ok(exponent > 0.05 and exponent < 1.1, exponent)
      end
    end)
end)

t.test("time and memory are measured by length; who is too slow stops, and says so", function()
  of("complexity", { "tables/complexity-smoke.md", "figures/complexity-smoke.svg" },
    function(trials)
      local function exponent(mixer, metric)
        local log = choose(trials, { mixer = mixer })[1].logs[metric]
        return cost.exponent(log.at, log.values, 512)
      end
      t.eq(#trials, 12)
      t.ok(exponent("naive", "seconds") and exponent("fft", "seconds"))
      within(exponent("fft", "bytes"), 1, 0.1, "the exponent of fft's memory")
      within(exponent("fd", "bytes"), 1, 0.1, "the exponent of fd's memory")
      for _, name in ipairs { "attention", "linear_attention", "conv", "s4" } do
        t.ok(exponent(name, "seconds") and exponent(name, "bytes") < 1.5, name)
      end
      local logged = choose(trials, { mixer = "fft" })[1].logs.memory_exponent -- tnn/table1
      within(logged.values[1], 1, 0.1, "the exponent that is logged")
    end)
  t.in_folder(function(folder)
    local trials = run(folder, "complexity", "limit=1e-9", "mixer=fft")
    t.eq(trials[1].logs.seconds.at, { 256 })
  end)
end)

t.test("responses at random and trained, of a model of its own and of another trial", function()
  local files = { "tables/responses-smoke.md", "figures/responses-smoke.svg",
    "figures/responses-log-smoke.svg" }
  of("responses", files, function(trials, folder)
    for _, trial in ipairs(trials) do
      local e = trial.metrics.exponent
      t.ok(e > -2.3 and e < -1.5, ("%s falls as j^%g"):format(trial.config.response, e))
    end
    for _, trial in ipairs(trials) do
      t.ok(trial.metrics.settled <= 40, trial.metrics.settled)
      t.ok(trial.metrics.floor > 1e-3, trial.metrics.floor)
    end
    local trained = choose(trials, { response = "trained" })[1]
    local again = run(folder, "responses", "response=trained", "run=" .. trained.id:sub(1, 12))
    local loaded = choose(again, { run = trained.id:sub(1, 12) })[1]
    t.eq(loaded.metrics.loss, nil)
    t.eq(loaded.logs["response 1"], trained.logs["response 1"])
    t.eq(loaded.metrics.floor, trained.metrics.floor)
  end)
end)

t.test("values with which there is nothing to measure end before any trial", function()
  for words, want in pairs {
    ["theorem1 kernel=x"] = "known are decay, smooth and warp",
    ["theorem1 ranks=64"] = "ranks: 64 is not in 2..63",
    ["theorem1 lambda=0"] = "lambda must be in",
    ["theorem1 smooth=0"] = "smooth must be above 0",
    ["smoothness size=64"] = "below half of size = 64",
    ["smoothness first=128 last=31"] = "first = 128 to last = 31 must be some",
    ["responses response=relu"] = "known are gelu, silu and trained",
    ["responses length=1"] = "length must be at least 16",
    ["responses run=@last"] = "run takes an id",
    ["proposition1 points=2"] = "points must be at least 3",
    ["proposition1 reach=0"] = "and reach above 0",
  } do
    t.in_folder(function(folder)
      local list = {}
      for word in words:gmatch "%S+" do list[#list + 1] = word end
      t.raises(run, want, folder, table.unpack(list))
    end)
  end
end)

t.test("every experiment of the folder is tested here, and in the table of questions", function()
  local text = t.read(arg[0])
  local readme = t.read(theory .. "../README.md")
  for _, file in ipairs(core.sys.list(theory)) do
    t.ok(text:find('of("' .. file:gsub("%.lua$", "") .. '"', 1, true), file)
    t.ok(readme:find("experiments/theory/" .. file, 1, true), file .. " is not in the README")
  end
end)

t.done()
