-- test_workload.lua: the cost of a trial, found without running it, and the time of its steps.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local dry_run = require "toeplab.runs.dry_run"
local estimate = require "toeplab.runs.estimate"
local experiment = require "toeplab.trials.experiment"
local plan = require "toeplab.trials.plan"
local records = require "toeplab.store.records"
local sweeps = require "sweeps"
local workload = require "toeplab.runs.workload"
local zip = require "zip"

-- Calls fn(exp, trials, cost_of) for the experiment that the body of a table declares. more: names
-- of values that the script sees.
local function with(body, fn, more)
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", 'local tl = require "toeplab"\nreturn tl.experiment "x" {' .. body
      .. "}\n")
    local exp = experiment.load(folder .. "/x.lua", more)
    fn(exp, plan.trials(exp, {}), workload.new(exp))
  end)
end

local own = [[
  fixed = { length = 16, batch = 4, steps = 10, corpus = "text:" .. ("to be or not "):rep(9) },
  grid = { dim = { 8, 16 }, lr = { 1e-3, 3e-3 } }, seeds = 3,
  trial = function(t, c)
    called()
    local data = tl.corpus(c.corpus)
    local model = tl.models.tnn_lm { vocab = data.vocab:size(), layers = 1, dim = c.dim }
    local opt = tl.optim.adam(model, { lr = c.lr })
    for _ in t:steps(c.steps, model, opt, data) do error "a step" end
  end]]

t.test("the model that a trial makes itself: one call of its function for each", function()
  local calls = 0
  with(own, function(_, trials, cost_of)
    t.eq(#trials, 12)
    for _, trial in ipairs(trials) do
      local cost, dim = cost_of(trial.config), trial.config.dim
      local model = tl.models.describe("tnn_lm", { vocab = 7, layers = 1, dim = dim })
      local all, trained = model:count()
      t.eq({ cost.flop, cost.tokens, cost.checkpoint },
        { tl.cost.step_flop(model, 16, 4), 64.0, 4 * all + 8 * trained })
      t.eq(cost.memory, tl.models.estimate(model, 16, 4).total_bytes)
      t.eq({ cost.modules, cost.numbers },
        { #model:modules(), tl.models.estimate(model, 16, 4).activation_bytes / 4 })
    end
    t.eq(calls, 2) -- the function makes the optimiser after it has made the model
  end, { called = function() calls = calls + 1 end })
end)

t.test("a checkpoint has the moments of the optimiser and the averages of the weights", function()
  for call, tensors in pairs { ["adam(model, {})"] = 2, ["sgd(model, {})"] = 0,
    ["sgd(model, { momentum = 0.9 })"] = 1, ["lamb(model, {})"] = 2, ["muon(model, {})"] = 2,
    ["adam(model, { ema = 0.9 })"] = 3, ["sgd(model, { swa_start = 4 })"] = 1 } do
    with(own:gsub("called%(%)", ""):gsub("adam%(.-%)", call), function(_, trials, cost_of)
      local c = trials[1].config
      local all, trained = tl.models.describe("tnn_lm", { vocab = 7, layers = 1,
        dim = c.dim }):count()
      t.eq({ call, cost_of(c).checkpoint }, { call, 4 * all + 4 * tensors * trained })
    end)
  end
end)

t.test("micro batches take less memory, and more calls of modules, for the same FLOP", function()
  with(own, function(_, trials, cost_of)
    local c = trials[1].config
    local whole, cut = cost_of(c), cost_of(tl.overlay(c, { micro_batches = 4 }))
    t.eq({ cut.flop, cut.modules, cut.numbers > 0.9 * whole.numbers },
      { whole.flop, 4 * whole.modules, true })
    t.ok(cut.memory < whole.memory)
  end, { called = function() end })
end)

t.test("what stands in for a corpus has a vocabulary like the corpus itself", function()
  with([[fixed = { length = 16, batch = 4, steps = 10 }, trial = function(t, c)
      local data = tl.corpus("no-such-text", { tokenizer = "gpt2" })
      local size = data.vocab:size()
      assert(data.vocab:token(size - 1) and not data.vocab:token(size))
      assert(not pcall(tl.tasks.glue, { task = "cola", vocab = size }))
      local ok, why = pcall(tl.tasks.glue, { task = "cola", vocab = data.vocab })
      assert(ok or tostring(why):find "is not here", why)
      tl.optim.adam(tl.models.tnn_lm(size, { layers = 1, dim = 8 }))
    end]], function(_, trials, cost_of) t.ok(cost_of(trials[1].config)) end)
end)

t.test("rates between 0 and 1 do not change the cost: they share one call", function()
  local calls = 0
  with([[fixed = { length = 16, batch = 4, steps = 10 }, grid = { decay = { 0.9, 0.99, "none" },
      dropout = { 0.1, 0.2 } }, seeds = 2,
    trial = function(t, c)
      called()
      tl.optim.sgd(tl.models.tnn_lm(9, { layers = 1, dim = 8, decay = c.decay,
        dropout = c.dropout }), {})
    end]], function(_, trials, cost_of)
    for _, trial in ipairs(trials) do t.ok(cost_of(trial.config)) end
    t.eq({ #trials, calls }, { 12, 2 })
  end, { called = function() calls = calls + 1 end })
end)

t.test("time in which the processor works for others does not count", function()
  with([[fixed = { length = 16, batch = 4, steps = 10, dim = 8 }, trial = function(t, c)
      waits()
      tl.optim.sgd(tl.models.tnn_lm(9, { layers = 1, dim = c.dim }), {})
    end]], function(_, trials, cost_of)
    local clock, ahead = core.sys.clock, 0.0
    core.sys.clock = function() ahead = ahead + 1000.0 return clock() + ahead end
    local ok, cost = pcall(cost_of, trials[1].config)
    core.sys.clock = clock
    t.ok(ok and cost, cost)
  end, { waits = function() end })
end)

t.test("a corpus that is not here: the vocabulary by its tokenizer", function()
  for tokenizer, size in pairs { byte = 256, gpt2 = 50264, bpe = 999 } do
    local body = [[fixed = tl.lm.fixed { corpus = "no-such-text", tokenizer = "%s",
      vocab_size = 999, layers = 1, dim = 8, glu_dim = 8, rpe_dim = 4, rpe_layers = 1 },
      trial = tl.lm.trial]]
    with(body:format(tokenizer), function(_, trials, cost_of)
      local model = tl.models.tnn_lm(size, tl.options.over({}, trials[1].config))
      local all, trained = model:count()
      t.eq(cost_of(trials[1].config).checkpoint, 4 * all + 8 * trained)
    end)
  end
end)

-- By name: the body of a trial, and why it has no cost.
local without = {
  { "no training", "t:log { x = 1 }", "trains no model" },
  { "a loop without a model", "for _ in t:steps(3) do end", "trains no model" },
  { "a value", "return { 1 }", "trains no model" },
  { "another method", "t:best_model()", "does more than training" },
  { "a measurement", "tl.cost.seconds(function() end)", "measures" },
  { "a program", "os.execute 'touch made'", "does more than training" },
  { "a file", "io.open('made', 'w')", "does more than training" },
  { "an output file", "io.output 'made'", "does more than training" },
  { "a removed file", "os.remove 'made'", "does more than training" },
  { "a file of tensors", "tl.save('made.npz', { x = tl.zeros(1) })", "does more than training" },
  { "a file of HDF5", "tl.save('made.h5', { x = tl.zeros(1) })", "does more than training" },
  { "a file of tl.sys", "tl.sys.write_file('made', '')", "does more than training" },
  { "... in a tail call", "return tl.sys.write_file('made', '')", "does more than training" },
  { "a folder", "tl.sys.mkdir 'made'", "does more than training" },
  { "a renamed file", "tl.sys.rename('x.lua', 'made')", "does more than training" },
  { "a signal", "tl.sys.kill(tl.sys.getpid(), 0)", "does more than training" },
  { "a process", "tl.sys.spawn({ 'touch', 'made' }, '/dev/null')", "does more than training" },
  { "the end of the process", "ends()", "does more than training" },
  { "an option of the optimiser", "tl.optim.sgd(tl.nn.Linear(1, 1), { lr = 'x' })",
    "option 'lr' must be a number" },
  { "an error", "error 'this one'", "this one" },
  { "no length", "local m = tl.nn.Linear(1, 1) t:steps(1, m)", "there is no key 'length'" },
  { "no batch", "local m = tl.models.tnn_lm(9, { layers = 1, dim = 4 }) t:steps(1, m)",
    "there is no key" },
}

for _, case in ipairs(without) do
  t.test("a function without a cost says why: " .. case[1], function()
    local corpus_open, adam, out, open = tl.corpus.open, tl.optim.adam, print, io.open
    local said = "print 'said' io.write 'said' io.stdout:write('said'):flush() "
    with("trial = function(t, c) " .. said .. case[2] .. " end", function(_, trials, cost_of)
      local cost, why = cost_of(trials[1].config)
      t.eq(cost, nil)
      t.holds(why, case[3])
    end, { ends = function() os.exit(3) end })
    t.eq({ corpus_open == tl.corpus.open, adam == tl.optim.adam, out == print, open == io.open },
      { true, true, true, true }) -- what stood in their place is gone
    t.eq(core.sys.exists "made", false)
  end)
end

t.test("a compressed archive is expanded and removed, and the cost is known", function()
  local body = [[fixed = { length = 2, batch = 1, steps = 1 }, trial = function(t)
    tl.tasks.images { file = archive }
    for _ in t:steps(1, tl.models.tnn_lm(9, { layers = 1, dim = 8 })) do error "a step" end
  end]]
  t.in_folder(function(folder)
    local x = zip.npy("|u1", { 20, 2, 2 }, ("abcd"):rep(20))
    local y = zip.npy("|u1", { 20 }, ("\0\1"):rep(10))
    zip.write(folder .. "/x.npz", { { "x", x, zip.blocks(x) }, { "y", y, zip.blocks(y) } })
    local made, tmpname = {}, os.tmpname
    local restore <close> = defer(function() os.tmpname = tmpname end)
    function os.tmpname()
      made[#made + 1] = tmpname()
      return made[#made]
    end
    with(body, function(_, trials, cost_of) t.ok(cost_of(trials[1].config)) end,
      { archive = folder .. "/x.npz" })
    t.ok(#made > 2, "two arrays, and the folder of the script")
    for _, path in ipairs(made) do t.eq(core.sys.exists(path), false) end
  end)
end)

for name, body in pairs {
  ["goes on after every error"] = "while true do pcall(function() while true do end end) end",
  ["hangs in a coroutine"] = "coroutine.wrap(function() while true do end end)()",
  ["hangs in an iterator"] = "for _ in coroutine.wrap(function() while true do end end) do end",
  ["resumes for ever"] = "while true do coroutine.resume(coroutine.create(function() while true "
    .. "do pcall(function() while true do end end) end end)) end",
} do
  t.test("code that " .. name .. " is ended when the time is over", function()
    with(("trial = function() %s end"):format(body), function(exp, trials)
      local create, wrap = coroutine.create, coroutine.wrap
      local found, why = dry_run.call(exp, trials[1].config, dry_run.openers(), os.clock() + 0.01)
      t.eq({ found == nil, coroutine.create == create, coroutine.wrap == wrap },
        { true, true, true })
      t.holds(why, "takes too long")
    end)
  end)
end

t.test("what a trial prints before its first step is not part of a plan", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", [[local tl = require "toeplab"
local print, write, execute, adam = print, io.write, os.execute, tl.optim.adam
local function shout() print "loud" write "loud" end
return tl.experiment "x" { fixed = { length = 2, batch = 1, steps = 1 }, trial = function(t)
  shout()
  print "loud" io.write "loud" io.stdout:write("loud"):flush() io.stderr:write "loud" t:say "loud"
  io.output():write "loud" warn "@on" warn "loud"
  adam(tl.models.tnn_lm(9, { layers = 1, dim = 8 }), {})
  execute "echo loud"
end }]])
    local out, code, said = t.toeplab(("plan '%s/x.lua' -C '%s'"):format(folder, folder))
    t.eq({ code, out:find "loud", said }, { 0, nil, "" })
    t.holds(out, "  cost     ", "FLOP")
  end)
end)

t.test("plan names the row whose model has a wrong option", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", [[local tl = require "toeplab"
return tl.experiment "x" { fixed = { length = 2, batch = 1, steps = 1, decay = 0.9 },
  seeds = 2, rows = { row = { { "a" }, { "b", decay = 0.5 }, { "c", decay = 1.5 } } },
  trial = function(t, c)
    local model = tl.models.tnn_lm(9, { layers = 1, dim = 8, decay = c.decay })
    for _ in t:steps(1, model) do error "a step" end
  end }]])
    local out, code = t.toeplab(("plan '%s/x.lua' -C '%s'"):format(folder, folder))
    t.eq(code, 0)
    t.holds(out, "not known of 2 trials, first of row=c seed=1: ", "decay", "1.5")
  end)
end)

t.test("the corpus tells the length and the batch where no key does", function()
  local keys, options = [[fixed = { dim = 8, %s }, trial = function(t, c)
    local data = tl.corpus("text:to be or not to be", { %s })
    local model = tl.models.tnn_lm { vocab = data.vocab:size(), layers = 1, dim = c.dim }
    for _ in t:steps(1, model, tl.optim.adam(model), data) do error "a step" end
  end]], "length = 16, batch = 4"
  local costs = {}
  for i, where in ipairs { { options, "" }, { "", options } } do
    with(keys:format(where[1], where[2]), function(_, trials, cost_of)
      costs[i] = t.ok(cost_of(trials[1].config))
    end)
  end
  t.eq(costs[1], costs[2])
  t.eq(costs[1].tokens, 64.0)
end)

local cost = { flop = 2e9, numbers = 1e6, modules = 100, tokens = 64.0, memory = 50.0,
  checkpoint = 30.0 }

t.test("the time of a step: usual rates, and those of the limits of a machine", function()
  t.eq(workload.seconds(cost, workload.rates("cpu")), 2 / 30 + 6.9e-3 + 5.4e-3, 1e-9)
  local limits = { gemm = { float32 = 1e11, bf16 = 4e11 }, triad = 9e9 }
  t.eq(workload.seconds(cost, workload.rates("cpu", "float32", limits)),
    2e9 / (0.45 * 1e11) + 90 * 1e6 / 9e9 + 5.4e-3, 1e-9)
  t.eq(workload.seconds(cost, workload.rates("cuda", "bf16", limits)),
    2e9 / (0.45 * 4e11) + 90 * 1e6 / 9e9 + 5.4e-3, 1e-9)
  t.eq(workload.seconds(cost, workload.rates("cuda", "bf16")), 2e9) -- in proportion to the FLOP
end)

t.test("the sum: FLOP of the steps that are left, and the files of trials like finished ones",
  function()
    local sum = workload.sum()
    t.eq({ sum:text() == nil, sum:disk(nil, nil, 2) == nil, sum:disk(7, nil, 2, true),
      sum:disk(7, nil, 2) == nil }, { true, true, 14, true })
    local function add(more, ...) sum:add(tl.overlay({ config = { steps = 10 } }, more), ...) end
    add({}, cost)
    add({ step = 4 }, cost)
    t.eq({ sum.flop, sum.trials, sum.unknown, sum.step }, { 32e9, 2, 0, 2e9 })
    t.eq({ sum:disk(nil, nil, 2), sum:disk(100, 15, 2), sum:disk(100, nil, 2),
      sum:disk(100, nil, 2, true) }, { 120, 400, 120, 200 })
    t.eq(sum:text(), "32.0 GFLOP; the largest: a step 2.0 GFLOP, memory 50 B, a checkpoint 30 B")
    add({ label = "row=c" }, nil, "no model\nat all")
    t.eq(sum:text(), "at least 32.0 GFLOP (2 of 3 trials); the largest: a step 2.0 GFLOP, memory "
      .. "50 B, a checkpoint 30 B; not known of 1 trial, row=c: no model")
    t.eq({ sum:disk(nil, nil, 3) == nil, sum:disk(100, 15, 3) == nil, sum:disk(100, 15, 3, true) },
      { true, true, 600 })
  end)

-- Seconds that trials of this experiment took on one thread of a Xeon, each by `toeplab run` with
-- the given keys: the results of benches/plan.lua.
local small = [[
  fixed = tl.lm.fixed { corpus = "text:" .. ("to be or not to be "):rep(99), tokenizer = "bpe",
    vocab_size = 270, layers = 2, dim = 32, glu_dim = 32, rpe_dim = 16, rpe_layers = 2,
    table_length = 64, length = 64, batch = 4, micro = 4, steps = 300, warmup = 30,
    lengths = { 64 }, scored = 2048 },
  trial = tl.lm.trial]]
local BASE = 1.59
local took = {
  { "dim x 4", { dim = 128 }, 6.30 },
  { "length x 4", { length = 256 }, 6.00 },
  { "batch x 4", { batch = 16, micro = 16 }, 4.51 },
  { "vocab x 8", { vocab_size = 2160 }, 3.08 },
  { "steps x 4", { steps = 1200 }, 5.78 },
}

t.test("one finished trial predicts the time of another size within a factor of 2", function()
  with(small, function(exp, trials, cost_of)
    t.in_folder(function(folder)
      local c = trials[1].config
      sweeps.write(folder, { experiment = "x", trials = { { config = c, seed = 1,
        seconds = BASE } } })
      local store <close> = records.open(folder, "r")
      local model = estimate.new(store, exp.name, { cost = cost_of })
      for _, case in ipairs(took) do
        local p = model:whole(tl.overlay(c, case[2]))
        local ratio = p.seconds / case[3]
        t.ok(ratio > 0.5 and ratio < 2, ("%s: %.3g s for %g"):format(case[1], p.seconds, case[3]))
        t.ok(p.low <= case[3] and case[3] <= p.high or case[2].steps, case[1])
        t.eq(p.scaled, not case[2].steps)
      end
      -- in proportion to the steps only, as where the model is not known, it would be wrong
      t.eq(estimate.new(store, exp.name):whole(tl.overlay(c, { dim = 128 })).seconds, BASE)
    end)
  end)
end)

t.test("the time after the last step scales with the cost of a token, not of a step",
  function()
    local function cost_of(c)
      return tl.overlay(cost, { flop = 30e9 * c.batch * c.dim, numbers = 0.0, modules = 0,
        tokens = 1.0 * c.batch })
    end
    t.in_folder(function(folder)
      local list = sweeps.write(folder, { experiment = "x", trials = { { seconds = 50.0, seed = 1,
        config = { steps = 100, dim = 1, batch = 1, device = "cpu" } } } })
      local store <close> = records.open(folder, "w")
      store:rows("UPDATE trials SET finished = 1000.0, step = 100")
      store:rows([[INSERT INTO artifacts (trial, kind, step, path, bytes, sha256, created)
        VALUES (?, 'checkpoint', 100, 'x', 1, ?, 960.0)]], { list[1].id, ("0"):rep(64) })
      local model = estimate.new(store, "x", { cost = cost_of })
      local function seconds(dim, batch, steps, device)
        return model:whole({ steps = steps, dim = dim, batch = batch, device = device }).seconds
      end
      -- 10 s of steps and 40 s of evaluation
      t.eq({ seconds(1, 1, 100, "cpu"), seconds(3, 1, 100, "cpu"), seconds(1, 5, 100, "cpu"),
        seconds(2, 5, 200, "cpu"), seconds(2, 5, 200, "cuda") }, { 50.0, 150.0, 90.0, 280.0, 60.0 },
        1e-9)
    end)
  end)

t.test("without finished trials: the rates of the machine, and a range of a factor of 2", function()
  local function rates(device)
    return device == "cpu" and { flop = 1e-9, number = 0, module = 0 } or nil
  end
  local model = estimate.new(nil, "x", { cost = function() return cost end, rates = rates })
  local p = model:whole { steps = 10, device = "cpu" }
  t.eq({ p.seconds, p.low, p.high, p.trials }, { 20.4, 10.2, 40.8, 0 }) -- it takes 0.4 s to start
  t.eq(model:whole { steps = 10, device = "cuda" }, nil) -- whose rates are not known
  t.eq(model:whole { device = "cpu" }, nil)              -- without steps
  t.eq(model:left({ steps = 10, device = "cpu" }, 5).seconds, 10.2)
end)

t.done()
