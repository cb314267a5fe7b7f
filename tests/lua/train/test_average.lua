-- test_average.lua: averages of the weights over the updates, beside the formulas of
-- torch.optim.swa_utils written with loops: in evaluations, in checkpoints, and resumed.
local t = require "harness"
local checkpoint = require "toeplab.models.files.checkpoint"
local core = require "toeplab.core"
local tl = require "toeplab"
local trials = require "trials"

local function model_of()
  tl.seed(3)
  return tl.nn.Sequential(tl.nn.Linear(3, 5), tl.nn.Linear(5, 2))
end

-- Makes the updates of a model by gradients of random inputs; calls each(step) after each.
local function train(model, opt, steps, each)
  local noise = core.stream(5, "average")
  for step = 1, steps do
    opt:zero_grad()
    local y = model(noise:normal(core.zeros(4, 3)))
    local loss = (y * y):mean()
    loss:backward()
    opt:step()
    each(step)
  end
end

local function weights(model)
  local list = {}
  for _, p in ipairs(model:parameters()) do
    table.move(p.tensor:reshape(-1):totable(), 1, p.tensor:numel(), #list + 1, list)
  end
  return list
end

local function bits(model)
  local list = {}
  for i, p in ipairs(model:parameters()) do list[i] = core.sha256(p.tensor) end
  return list
end

local function averaged(model)
  local list
  tl.eval.evaluating(model, function() list = weights(model) end)
  return list
end

-- By option: the average after update s, of its value before it, of p, and s.
local rules = {
  { "ema", 0.75, function(a, p, s) return s == 1 and p or 0.75 * a + (1 - 0.75) * p end },
  { "swa_start", 4, function(a, p, s) return s <= 4 and p or a + (p - a) / (s - 3) end },
}

for _, rule in ipairs(rules) do
  local option, value, next_of = table.unpack(rule)
  t.test(option .. " evaluates with the average of its formula, and trains on", function()
    for _, kind in ipairs { "sgd", "adam", "lamb", "muon" } do
      local plain, model = model_of(), model_of()
      local opt = tl.optim[kind](model, { lr = 0.1, [option] = value })
      local want = weights(model)
      t.eq(averaged(model), want)
      train(model, opt, 9, function(step)
        for i, p in ipairs(weights(model)) do want[i] = next_of(want[i], p, step) end
        local before = bits(model)
        t.eq(averaged(model), want, 1e-6)
        t.eq(bits(model), before)
      end)
      train(plain, tl.optim[kind](plain, { lr = 0.1 }), 9, function() end)
      t.eq(bits(plain), bits(model))
      t.ok(math.abs(weights(model)[1] - want[1]) > 1e-4, "the average must differ")
      opt:take_average()
      t.eq(weights(model), want, 1e-6)
      t.eq(averaged(model), weights(model)) -- there are none any more
    end
  end)
end

t.test("an error in an evaluation, and one inside another, leave the weights", function()
  local model = model_of()
  local opt, seen = tl.optim.sgd(model, { lr = 0.1, ema = 0.5 }), nil
  train(model, opt, 3, function() end)
  local before = bits(model)
  t.raises(tl.eval.evaluating, "broken", model, function()
    seen = bits(model)
    tl.eval.evaluating(model, function() t.eq(bits(model), seen) end)
    t.eq(bits(model), seen)
    error "broken"
  end)
  t.ok(seen[1] ~= before[1], "the average must differ")
  t.eq(bits(model), before)
end)

t.test("states have the averages, and wrong options are refused", function()
  local model, other = model_of(), model_of()
  local opt = tl.optim.adam(model, { lr = 0.1, ema = 0.5 })
  train(model, opt, 3, function() end)
  local again = tl.optim.adam(other, { lr = 0.1, ema = 0.5 })
  other:load(model:state())
  again:load(opt:state())
  t.eq(averaged(other), averaged(model))
  t.raises(function() tl.optim.adam(other, { lr = 0.1 }):load(opt:state()) end,
    "unknown 'average.1.bias'")
  t.raises(function() again:load(tl.optim.adam(other, { lr = 0.1 }):state()) end,
    "lacks 'average.1.bias'")
  t.raises(tl.optim.sgd, "'ema' = 0.5 cannot be combined with swa_start = 2: both average", model,
    { ema = 0.5, swa_start = 2 })
  t.raises(tl.optim.sgd, "'ema' = 1 must be below 1", model, { ema = 1 })
end)

-- ---- Trials -------------------------------------------------------------------------------------

local script = [[
local tl = require "toeplab"
return tl.experiment "averaged" {
  fixed = { steps = 12, ema = 0.8, swa_start = 0, lr = 0.03, load = false },
  checkpoint = { steps = 3 },
  trial = function(t, c)
    local data = tl.corpus("text:" .. ("a bc def ghij "):rep(20), { batch = 2, length = 8 })
    local model = tl.models.tnn_lm { vocab = data.vocab:size(), layers = 1, dim = 4, rpe_dim = 4,
      rpe_layers = 1, dropout = 0.2, backend = "naive" }
    local opt = tl.optim.adam(model, c)
    local function loss() return tl.eval.nats_per_token(model, data:stream "valid", 8) end
    for step in t:steps(c.steps, model, opt, data) do
      t:log { loss = tl.train.lm_step(model, opt, data:batch(step)), val_loss = loss() }
      if step % 4 == 0 then t:best(step == 8 and 1 or 2) end
    end
    if c.load then t:load_best() end
    model:eval()
    t:log { last = loss(), whole = tl.no_grad(model.loss, model,
      tl.train.split(data:batch(1))):item() }
  end,
  report = function() end,
}
]]

local function rows(folder)
  local lines = {}
  for i, m in ipairs(trials.query(folder, "SELECT * FROM v_metrics ORDER BY name, step")) do
    lines[i] = ("%s %d %a"):format(m.name, m.step, m.value)
  end
  return lines
end

local function metric(folder, name, step)
  return trials.query(folder, ("SELECT value FROM v_metrics WHERE name = '%s' AND step = %d")
    :format(name, step))[1].value
end

for _, words in ipairs { { "load=true" }, { "ema=0", "swa_start=5" } } do
  t.test("a trial stopped anywhere ends with the same bits: " .. words[1], function()
    local wanted
    t.in_folder(function(folder)
      t.eq((trials.run(folder, script, words)), 0)
      wanted = rows(folder)
      local at = words[1] == "load=true" and 8 or 12
      t.eq(metric(folder, "last", 12), metric(folder, "val_loss", at))
    end)
    t.in_folder(function(folder)
      t.eq({ trials.run_stopped(folder, script, { 2, 5, 8, 12 }, "step", words) }, { 0, 5 })
      t.eq(rows(folder), wanted)
    end)
  end)
end

t.test("the model of a checkpoint has the averages, the optimiser the weights", function()
  t.in_folder(function(folder)
    t.eq(trials.run(folder, script), 0)
    local row = trials.query(folder, "SELECT path FROM v_artifacts WHERE kind = 'best'")[1]
    local state = checkpoint.read(folder .. "/results/" .. row.path)
    local trained, name = state.optim.tensors["trained.embed.weight"], "embed.weight"
    t.ok(core.sha256(trained) ~= core.sha256(state.model[name]), "the average must differ")
    t.eq(state.optim.tensors["average.embed.weight"], nil)
    local model, vocab = tl.model(row.path:match "runs/(%x+)", { dir = folder .. "/results" })
    t.eq(core.sha256(model.embed.weight), core.sha256(state.model[name]))
    t.ok(vocab:size() > 1)
  end)
end)

t.done()
