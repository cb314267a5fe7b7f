-- test_estimate.lua: how long trials will take, from finished ones, as a range.
local t = require "harness"
local core = require "toeplab.core"
local estimate = require "toeplab.runs.estimate"
local json = require "toeplab.base.json"
local rates = require "toeplab.bench.rates"
local records = require "toeplab.store.records"
local sweep_progress = require "toeplab.live.sweep_progress"
local stores = require "stores"
local sweeps = require "sweeps"
local workload = require "toeplab.runs.workload"

-- Calls fn(model) for the estimates from trials {dim, steps, seed, seconds}.
local function with(list, fn)
  t.in_folder(function(folder)
    local trials = {}
    for i, row in ipairs(list) do
      trials[i] = { config = { dim = row[1], steps = row[2], op = "tno" }, seed = row[3],
        seconds = row[4] }
    end
    sweeps.write(folder, { experiment = "e", axes = { "dim" }, trials = trials })
    local store <close> = records.open(folder, "r")
    fn(estimate.new(store, "e"))
  end)
end

t.test("the range of equal configurations is the range of their trials, scaled by the steps",
  function()
    with({ { 8, 100, 1, 10.0 }, { 8, 100, 2, 14.0 }, { 8, 200, 1, 21.0 } }, function(model)
      local p = model:whole { dim = 8, steps = 100, op = "tno", seed = 9 }
      t.eq({ p.seconds, p.far }, { (10.0 + 14.0 + 10.5) / 3, 0 }, 1e-9)
      t.eq({ p.low, p.high, p.trials, #p.keys }, { 10.0, 14.0, 3, 0 })
      p = model:left({ dim = 8, steps = 400, op = "tno" }, 300)
      t.eq({ p.seconds, p.far, p.low, p.high }, { 11.5, 0, 10.0, 14.0 }, 1e-9)
      p = model:left({ dim = 8, steps = 400, op = "tno" }, 100, 30.0) -- own pace
      t.eq({ p.seconds, p.far, p.low, p.high }, { 90.0, 0, 90.0, 90.0 }, 1e-9)
    end)
  end)

t.test("the time after the last step does not depend on the number of steps", function()
  t.in_folder(function(folder)
    stores.fill(folder, { { name = "a", experiment = "e", config = { steps = 100 }, step = 100,
      seconds = 50.0 } })
    local store <close> = records.open(folder, "w")
    store:rows([[INSERT INTO artifacts (trial, kind, step, path, bytes, sha256, created)
      SELECT id, 'checkpoint', 100, 'x', 1, ?, finished - 40.0 FROM trials]], { ("0"):rep(64) })
    local model = estimate.new(store, "e")
    t.eq(model:whole { steps = 10 }.seconds, 41.0, 1e-9)
    t.eq(model:left({ steps = 100 }, 50).seconds, 45.0, 1e-9)
    t.eq(model:left({ steps = 100 }, 50, 10.0).seconds, 50.0, 1e-9) -- at its own pace
  end)
end)

t.test("a prediction from other configurations allows for the errors of such predictions",
  function()
    with({ { 8, 100, 1, 10.0 }, { 16, 100, 1, 20.0 }, { 32, 100, 1, 60.0 } }, function(model)
      local p = model:whole { dim = 64, steps = 100, op = "tno" }
      t.eq({ p.seconds, p.far, p.trials, p.keys }, { 30.0, 1, 3, { "dim" } })
      -- from the other two: 10 for 40, 20 for 35, 60 for 15
      t.eq({ p.low, p.high }, { 30.0 * 10 / 40, 30.0 * 60 / 15 }, 1e-9)
      p = model:whole { dim = 8, steps = 100, op = "ski", width = 2 }
      t.eq({ p.seconds, p.far, p.keys }, { 10.0, 2, { "op", "width" } })
      t.eq({ p.low <= 10.0 / 4, p.high }, { true, 10.0 * 4 }, 1e-9)
      t.eq(model:whole { dim = 8, steps = 100, op = "tno" }.high, 10.0)
    end)
    with({ { 8, 100, 1, 10.0 } }, function(model) -- one configuration: no error is known
      local p = model:whole { dim = 16, steps = 100, op = "tno" }
      t.eq({ p.low, p.high, p.far }, { 10.0, 10.0, 1 })
    end)
    with({}, function(model) t.eq(model:whole { dim = 8, steps = 1 }, nil) end)
  end)

local script = [[
local tl = require "toeplab"
return tl.experiment "e" { fixed = { steps = 100, op = "tno" }, grid = { dim = { 8, 16, 32 } },
  seeds = 2, trial = function() end }
]]

t.test("plan prints the range and the keys in which the finished trials differ", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", (script:gsub("dim", "lags")))
    sweeps.write(folder, { experiment = "e", axes = { "lags" }, trials = {
      { config = { lags = 8, steps = 100, op = "tno", precision = "float32", device = "cpu" },
        seed = 1, seconds = 3600.0 },
      { config = { lags = 16, steps = 100, op = "tno", precision = "float32", device = "cpu" },
        seed = 1, seconds = 7200.0 } } })
    local function plan(words)
      local text, code = t.shell(("'%s' plan '%s/x.lua' -C '%s' %s 2>&1"):format(
        core.sys.executable(), folder, folder, words))
      t.ok(code == 0, text)
      return text
    end
    local text = plan "lags=8"
    t.ok(text:find("time     about 2h00m with 1 worker (from the same "
      .. "configurations among 2 finished trials)", 1, true), text)
    text = plan "" -- 2 of 1h, 2 of 2h, 2 of 1.5h, which may be half or twice as long
    t.ok(text:find("time     7h30m to 12h00m with 1 worker (from 2 finished trials; the nearest "
      .. "differ in lags)", 1, true), text)
    -- The total is never shorter than the longest trial, and a worker without a trial helps none.
    t.holds(plan "-j9", "2h00m to 3h00m with 9 workers, only 6 trials can run at once (",
      "longest  lags=16 seed=1, about 2h00m")
    text = plan "--json"
    t.ok(text:find('"seconds":32400', 1, true) and text:find('"seconds_high":43200', 1, true)
      and text:find('"seconds_low":27000', 1, true), text)
  end)
end)

t.test("plan prints a lower bound, not a fraction, where trials have no known time", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", script)
    sweeps.write(folder, { experiment = "e", axes = { "dim" }, trials = {
      { config = { dim = 8, steps = 100, op = "tno", precision = "float32", device = "cpu" },
        seed = 1, seconds = 3600.0 } } })
    local function plan(words)
      local text, code = t.shell(("'%s' plan '%s/x.lua' -C '%s' %s 2>&1"):format(
        core.sys.executable(), folder, folder, words))
      t.ok(code == 0, text)
      return text
    end
    t.holds(plan "", "time     at least 2h00m with 1 worker (2 of 6 trials, from the same "
      .. "configurations among 1 finished trial); the others: the finished trials are of another "
      .. "size, and the cost is not known", "disk     unknown")
    t.holds(plan "dim=64", "time     unknown: the finished trials are of another size, and the "
      .. "cost is not known", "cost     not known of 2 trials: its function trains no model")
    local v = json.decode(plan "--json")
    t.eq({ v.seconds_low, v.seconds, v.seconds_high, v.core_hours, v.unknown, v.without_cost },
      { 7200.0, nil, nil, nil, 4, 6 })
  end)
end)

t.test("plan names the scales of an experiment with their trials", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", (script:gsub("seeds = 2", "seeds = 2, scale = { big = { seeds = 5 }"
      .. ", tiny = { dim = { 8 }, seeds = 1 } }")))
    local text = t.shell(("'%s' plan '%s/x.lua' -C '%s' scale=tiny 2>&1"):format(
      core.sys.executable(), folder, folder))
    t.holds(text, "scales   big (15 trials), tiny (1)")
  end)
end)

t.test("plan knows the cost of models, and scales with it", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", [[local tl = require "toeplab"
      return tl.experiment "e" { fixed = { steps = 100, length = 64, batch = 4, layers = 1 },
        grid = { dim = { 8, 512 } }, trial = function(t, c)
          local opt = tl.optim.sgd(tl.models.tnn_lm(9, { layers = c.layers, dim = c.dim }), {})
        end }]])
    local config = { dim = 8, steps = 100, length = 64, batch = 4, layers = 1, device = "cpu",
      precision = "float32" }
    sweeps.write(folder, { experiment = "e", trials = { { config = config, seed = 1,
      seconds = 3600.0 } } })
    local function plan(words)
      local text, code = t.shell(("'%s' plan '%s/x.lua' -C '%s' %s 2>&1"):format(
        core.sys.executable(), folder, folder, words))
      t.ok(code == 0, text)
      return text
    end
    t.holds(plan "dim=64", "differ in dim; scaled with the cost of a step)", "cost     ",
      "; the largest: a step ", ", memory ", ", a checkpoint ")
    local function values(words)
      local v = json.decode(plan(words .. " --json"))
      return v.flop / v.step_flop, v.memory, v.checkpoint, v.seconds, v.without_cost
    end
    local steps, _, bytes, same, without = values "dim=8"
    t.eq({ steps, same, without }, { 100.0, 3600.0, 0 }, 1e-9)
    local _, _, more, longer = values "dim=64"
    t.ok(more > 1.1 * bytes and longer > 1.1 * 3600 and longer < 10 * 3600)
    -- A step of the wide model costs over ten times as much: the finished trial is not used.
    t.holds(plan "dim=512", "from FLOP, bytes and the rates of the device; steps only)")
    t.holds(plan "", "; 1 of 2 trials from FLOP, bytes")
    local _, _, most, shorter = values "dim=512"
    t.ok(most > 8 * bytes and shorter < 1800)
    -- A GPU on which nothing has been measured: the same words say so.
    t.holds(plan("device=cuda:77 -C " .. folder .. "/none"), "no rate of its GPU is stored here")
    local text = assert(core.sys.read_file(folder .. "/x.lua"))
    t.write(folder .. "/x.lua", (text:gsub("steps = 100", "updates = 100")))
    t.holds(plan("-C " .. folder .. "/none"), "no key 'steps' tells how long it trains")
  end)
end)

t.test("the rates of a GPU are the last ones that bench stored", function()
  t.in_folder(function(folder)
    local limits = { gemm = { float32 = 1e13, bf16 = 2e14 }, triad = 1e12 }
    sweeps.write(folder, { experiment = "bench-tno",
      trials = { { config = { n = 1 }, seed = 1 } } })
    local store <close> = records.open(folder, "w")
    t.eq(rates.of(store, 1)("cuda:77", "bf16"), nil)
    store:rows("UPDATE trials SET provenance = ?", { json.encode { device = "a GPU",
      limits = limits } })
    t.eq(rates.of(store, 1)("cuda:77", "bf16"), workload.rates("cuda", "bf16", limits))
  end)
end)

t.test("plan counts trials whose data is not on this machine", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", [[local tl = require "toeplab"
      return tl.experiment "e" { fixed = tl.lm.fixed { corpus = "wikitext-103-raw",
        tokenizer = "bpe", batch = 16, micro = 16 },
        trial = tl.lm.trial }]])
    local command = ("TOEPLAB_DATA='%s' '%s' plan '%s/x.lua' -C '%s' device=cuda:77 "):format(
      folder, core.sys.executable(), folder, folder)
    t.holds(t.shell(command), "data     corpus wikitext-103-raw is not here: unknown which "
      .. "trials are done", "cost     17.", "a checkpoint 5.7 MB")
    t.holds(t.shell(command .. "--list"), "new")
  end)
end)

t.test("status and run print the same estimate for known and unknown trials",
  function()
    t.in_folder(function(folder)
      local host, me, now = core.sys.hostname(), core.sys.getpid(), core.sys.now()
      stores.fill(folder, { { name = "a", experiment = "x", config = { steps = 10 }, step = 5,
        seconds = 40.0, status = "running", host = host, pid = me, metrics = { loss = { 5, 4, 3, 2,
        1 } } }, { name = "b", experiment = "x", config = { steps = 10, dim = 2 }, host = host,
        pid = me, status = "running" } })
      local store <close> = records.open(folder, "w")
      local sweep = sweep_progress.sweep(store, "x", "status")
      local clock = core.sys.clock()
      local workers = { { trial = { config = { steps = 10 } }, began = clock - 40, step = 5,
        seconds = 0.0 }, { trial = { config = { steps = 10, dim = 2 } }, began = clock - 50,
        seconds = 0.0 } }
      t.eq(select(4, sweep_progress.of(store, sweep)), nil)
      t.eq(estimate.of_run(store, "x", 2)({}, workers), nil)
      -- One of the same configuration has taken 200 seconds, and b has had 50 of them.
      store:rows("UPDATE trials SET started = ? WHERE id = ?", { now - 50, stores.id "b" })
      store:rows([[INSERT INTO trials (id, experiment, config, status, seconds, started)
        SELECT 'c', experiment, config, 'done', 200.0, 1.0 FROM trials WHERE id = ?]],
        { stores.id "b" })
      t.eq(select(4, sweep_progress.of(store, sweep)), 150.0, 2.0)
      t.eq(estimate.of_run(store, "x", 2)({}, workers), 150.0, 2.0)
    end)
  end)

t.test("a resumed trial is predicted by the pace of all its attempts", function()
  t.in_folder(function(folder)
    local losses = {}
    for step = 1, 8 do losses[step] = 1 / step end
    -- When this attempt began does not matter.
    stores.fill(folder, { { name = "a", experiment = "x", config = { steps = 10 }, step = 4,
      seconds = 40.0, status = "running", host = core.sys.hostname(), pid = core.sys.getpid(),
      metrics = { loss = losses } } })
    local store <close> = records.open(folder, "r")
    local sweep = sweep_progress.sweep(store, "x", "status")
    t.eq(select(4, sweep_progress.of(store, sweep)), 20.0)
  end)
end)

t.done()
