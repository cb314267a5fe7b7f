-- test_gpu_graphs.lua: trains by CUDA graphs, which must give bit for bit the losses of training
-- without. The GPU is tests/emulated.so, or the device in TOEPLAB_TEST_GPU.
local gpu = require("gpu").name
local core = require "toeplab.core"
core.use_device(gpu)
local named = require "toeplab.base.streams"
local tl = require "toeplab"
local t = require "harness"

local N, VOCAB = 8, 30

local ids = {}
for i = 1, 400 do ids[i] = (i * i + 3 * i) % 11 + (i % 3) * 4 end
ids = tl.ids(ids)

-- Returns b rows of length n for a step.
local function batch(step, b, n)
  local starts = {}
  for i = 1, b or 2 do starts[i] = (7 * step + 31 * i) % 300 end
  return tl.windows(ids, tl.ids(starts), (n or N) + 1)
end

local function model_of(given)
  tl.seed(7)
  local o = { vocab = VOCAB, layers = 1, dim = 8, rpe_dim = 4, rpe_layers = 1, dropout = 0.1 }
  for name, value in pairs(given or {}) do o[name] = value end
  return tl.models.tnn_lm(o)
end

-- Returns the exact losses of steps with and without graphs, where each(model, opt, step) takes a
-- step; then the number of graphs, and how often they ran.
local function both(make, steps, each)
  local lists, count, runs = {}, 0, 0
  for turn, on in ipairs { true, false } do
    local model = make()
    local opt = tl.optim.adam(model, { lr = 0.01, clip = 1.0 })
    if on then tl.train.graph(model, opt) end
    local list = {}
    for step = 1, steps do
      local loss, info = each(model, opt, step)
      list[step] = ("%a %a"):format(loss, info.grad_norm)
    end
    for _, p in ipairs(model:parameters()) do
      list[#list + 1] = ("%a"):format((p.tensor * p.tensor):sum():item())
    end
    lists[turn] = table.concat(list, "\n")
    if on then count, runs = opt.graphs:counts() end
  end
  t.eq(lists[1], lists[2])
  return count, runs
end

local function plain(model, opt, step) return tl.train.lm_step(model, opt, batch(step)) end

-- ---- Models -------------------------------------------------------------------------------------

local MODELS = {
  ["as it is"] = {},
  ["no dropout"] = { dropout = 0.0 },
  ["other dropouts"] = { layer_dropout = 0.2, tno_dropout = 0.1, gate_dropout = 0.3 },
  ["layout B, layernorm"] = { layout = "B", norm = "layernorm" },
  ["batch norm"] = { norm = "batchnorm" },
  ["learnable decay"] = { decay = "learnable" },
  ["alibi decay, heads"] = { decay = "alibi", heads = 2 },
  ["horizon"] = { decay = 0.5, horizon = 0.01 },
  ["max_lag, naive"] = { max_lag = 5, backend = "naive" },
  ["matrix"] = { backend = "matrix" },
  ["fft"] = { backend = "fft" },
  ["ski"] = { backend = "ski", decay = "none", encoder = "piecewise", causal = false },
  ["fd"] = { backend = "fd", decay = "none" },
  ["auto"] = { backend = "auto" },
  ["table"] = { encoder = "table", table_length = 20 },
  ["piecewise"] = { encoder = "piecewise", encoder_options = { nodes = 9 } },
  ["ssm"] = { encoder = "ssm", encoder_options = { state = 4 } },
  ["ssm of both sides"] = { encoder = "ssm", encoder_options = { state = 4 }, causal = false },
  ["conv"] = { encoder = "conv" },
  ["lra"] = { encoder = "lra" },
  ["input sincos"] = { rpe_input = "sincos" },
  ["input exp"] = { rpe_input = "exp" },
  ["input normalised"] = { rpe_input = "normalised" },
  ["gtu, sinusoidal"] = { structure = "gtu", positions = "sinusoidal", causal = false },
  ["attention, alibi"] = { structure = "mha+glu", positions = "alibi", heads = 2 },
  ["attention gated"] = { structure = "attention+glu" },
  ["untied"] = { tied = false, final_norm = "rmsnorm", act = "gelu" },
}

for name, more in pairs {
  linear_attention = {}, cosformer = {}, performer = { as_published = true },
  flash = { chunk = 4 }, flash_quad = {}, transformer_ls = { chunk = 2, window = 4 },
} do
  MODELS[name] = { mixer = name, mixer_options = more, heads = 2 }
end

for name, given in pairs {
  s4 = { state = 4 }, s4d = { state = 4 }, dss = { state = 3 }, gss = { state = 4, inner = 4 },
  mamba = { state = 3 }, ssd = { state = 3, head_dim = 4 }, hgrn2 = { head_dim = 4 },
  gla = {}, hgrn = {},
  retention = { heads = 2 }, delta_net = { heads = 2 }, gated_delta_net = { heads = 2 },
  gru = {}, lstm = {},
  longconv = { length = 20 }, sgconv = { length = 20, size = 4 }, stu = { length = 20,
    filters = 4 }, hyena = { length = 20, width = 4 }, tmm = { length = 20 }, cat = {},
  fft_rpe = { features = 4 },
} do
  MODELS["mixer " .. name] = { mixer = name, mixer_options = given }
end

for name, given in pairs { -- they choose by sorting, by random keys, and by a pattern
  reformer = { chunk = 2 }, informer = { features = 4, max_length = N },
  skyformer = { features = 4 }, bigbird = { block = 1, random_blocks = 1 },
} do
  MODELS["mixer " .. name] = { mixer = name, mixer_options = given, heads = 2, causal = false }
end

for name, given in pairs(MODELS) do
  t.test("a graph takes the steps that there are without: " .. name, function()
    t.eq({ both(function() return model_of(given) end, 4, plain) }, { 1, 2 })
  end)
end

t.test("in bf16 and TF32", function()
  for _, precision in ipairs { "bf16", "tf32" } do
    local function each(...) return core.precision(precision, plain, ...) end
    t.eq({ both(model_of, 4, each) }, { 1, 2 })
  end
end)

-- ---- What changes between steps -----------------------------------------------------------------

t.test("shapes that alternate, and more of them than graphs are kept", function()
  t.eq({ both(model_of, 8, function(model, opt, step)
    return tl.train.lm_step(model, opt, batch(step, 2, 9 + step % 2))
  end) }, { 2, 4 })
  t.eq({ both(model_of, 18, function(model, opt, step)
    return tl.train.lm_step(model, opt, batch(step, 1, 4 + step % 6))
  end) }, { 4, 4 })
end)

t.test("micro batches, equal and of several lengths", function()
  t.eq({ both(model_of, 4, function(model, opt, step)
    return tl.train.lm_step(model, opt, batch(step, 5), 2)
  end) }, { 1, 2 })
  local made = { positions = "sinusoidal", encoder = "ssm", encoder_options = { state = 4 },
    causal = false }
  t.eq({ both(function() return model_of(made) end, 4, function(model, opt, step)
    return tl.train.lm_step(model, opt, { batch(step, 1, 12), batch(step, 3, 7) })
  end) }, { 1, 2 })
end)

t.test("evaluation at many lengths, garbage and random numbers between steps", function()
  local own = { lost = {} }
  t.eq(both(function() return model_of { backend = "fft", positions = "sinusoidal" } end, 8,
    function(model, opt, step)
      for n = 3, 3 + step do
        own.lost = tl.train.loss(model, tl.train.split(batch(step, 1, n))):item()
      end
      core.tape_clear()
      model:eval()
      tl.eval.bits_per_token(model, ids:narrow(1, 1, 60), 20 + step)
      named.get("dropout"):unit()
      collectgarbage()
      return plain(model, opt, step)
    end), 1)
end)

t.test("a parameter that was on the processor is where the next graph looks", function()
  t.eq(both(model_of, 7, function(model, opt, step)
    if step == 4 or step == 6 then core.no_grad(core.svd, model.layers[1].token.u.weight) end
    return plain(model, opt, step)
  end), 1)
end)

t.test("a parameter that is trained no more", function()
  t.eq(both(model_of, 7, function(model, opt, step)
    if step == 4 then model.layers[1].token.u.weight:require_grad(false) end
    return plain(model, opt, step)
  end), 1)
end)

t.test("a parameter that is trained from here on, and not by this optimiser", function()
  local sizes = {}
  for turn, on in ipairs { true, false } do
    local model = model_of()
    model.embed.weight:require_grad(false)
    local opt = tl.optim.adam(model, { lr = 0.01 })
    if on then tl.train.graph(model, opt) end
    for step = 1, 7 do
      if step == 5 then model.embed.weight:require_grad() end
      plain(model, opt, step)
    end
    sizes[turn] = model.embed.weight:grad():abs():sum():item()
  end
  t.eq(sizes[1], sizes[2])
end)

t.test("the step of a graph reports an index out of range", function()
  local model = model_of()
  local opt = tl.train.graph(model, tl.optim.adam(model, {}))
  for step = 1, 4 do plain(model, opt, step) end
  local bad = batch(5):clone():fill(VOCAB)
  t.raises(tl.train.lm_step, "index 30 is out of range", model, opt, bad)
  t.ok(plain(model, opt, 5) > 0)
  t.eq(select(2, opt.graphs:counts()), 4)
end)

t.test("other streams: a seed in the middle of training", function()
  t.eq(both(model_of, 7, function(model, opt, step)
    if step == 4 then tl.seed(9) end
    return plain(model, opt, step)
  end), 1)
end)

t.test("what is loaded in the middle of training", function()
  local state
  t.eq(both(model_of, 8, function(model, opt, step)
    if step == 3 then
      state = {}
      for name, p in pairs(model:state()) do state[name] = p:clone() end
    elseif step == 6 then
      model:load(state)
    end
    return plain(model, opt, step)
  end), 1)
end)

t.test("gradients are there after a step, and gone when they are set to nil", function()
  local model = model_of()
  local opt = tl.train.graph(model, tl.optim.adam(model, {}))
  local weight = model.layers[1].token.u.weight
  for step = 1, 4 do
    plain(model, opt, step)
    t.ok(weight:grad():abs():sum():item() > 0)
  end
  local kept = weight:grad()
  opt:zero_grad()
  t.eq(weight:grad(), nil)
  t.ok(kept:numel() == weight:numel())
end)

t.test("a step forgets what was recorded before it", function()
  local model = model_of()
  local opt = tl.train.graph(model, tl.optim.adam(model, {}))
  for step = 1, 6 do
    tl.train.loss(model, tl.train.split(batch(step))):item()
    plain(model, opt, step)
    t.eq(core.tape_length(), 0)
  end
end)

-- What a script may do between two steps: name -> {options of the model, what it does at step 5}.
local CHANGES = {
  ["another dropout"] = { {}, function(model) model.drop.opt.p = 0.5 end },
  ["another eps"] = { {}, function(model) model.final_norm.opt.eps = 0.5 end },
  ["another part"] = { {}, function(model)
    model.layers[1].token.u = tl.nn.Linear(8, 24)
  end },
  ["another decay, uneven"] = { {}, function(model)
    model.layers[1].token.tno.decay.gamma:copy(core.range(1, 24) * (1 / 25))
  end },
  ["another decay, and so another horizon"] = { { decay = 0.5, horizon = 0.01 }, function(model)
    model.layers[1].token.tno.decay.gamma:fill(0.9)
  end },
  ["evaluation of a part"] = { {}, function(model)
    rawset(model, "train", function() model.drop:eval() end)
  end },
  ["a loss of its own"] = { {}, function(model)
    local was = model.loss
    model.loss = function(...) return was(...) * 2 end
  end },
  ["a part that is left out"] = { { positions = "sinusoidal", causal = false }, function(model)
    model.position = nil
  end },
  ["another moment of the recorded gradient"] = { {}, function(model)
    core.svd(model.embed.weight:grad())
  end },
  ["other gradients, closed"] = { {}, function(model) model.embed.weight:grad():close() end },
}

for name, case in pairs(CHANGES) do
  t.test("a change in the middle of training: " .. name, function()
    both(function() return model_of(case[1]) end, 7, function(model, opt, step)
      if step == 5 then case[2](model) end
      return plain(model, opt, step)
    end)
  end)
end

t.test("parameters that are frozen in turn", function()
  both(model_of, 9, function(model, opt, step)
    local u = model.layers[1].token
    u.u.weight:require_grad(step % 2 == 0)
    u.v.weight:require_grad(step % 2 == 1)
    return plain(model, opt, step)
  end)
end)

-- Requests graphs for another optimiser if opt has them.
local function graphed_as(opt, model, other)
  return opt.graphs and tl.train.graph(model, other) or other
end

t.test("two optimisers, of one model and of its parts", function()
  both(function() return model_of { layers = 2 } end, 9, function(model, opt, step)
    opt.second = opt.second or graphed_as(opt, model, tl.optim.sgd(model, { lr = 0.1 }))
    return plain(model, step % 2 == 0 and opt or opt.second, step)
  end)
  both(function() return model_of { layers = 2 } end, 9, function(model, opt, step)
    opt.one = opt.one or graphed_as(opt, model, tl.optim.adam(model.layers[1], {}))
    opt.two = opt.two or graphed_as(opt, model, tl.optim.adam(model.layers[2], {}))
    local loss, info = plain(model, step % 2 == 0 and opt.one or opt.two, step)
    if step == 6 then opt:step() end -- uses the gradients accumulated so far
    return loss, info
  end)
end)

t.test("gradients are not recorded: the error is the same", function()
  local model = model_of()
  local opt = tl.train.graph(model, tl.optim.adam(model, {}))
  for step = 1, 4 do plain(model, opt, step) end
  t.raises(function() core.no_grad(plain, model, opt, 5) end, "was not recorded")
end)

t.test("no stream comes to be by a graph", function()
  local model = model_of()
  local opt = tl.train.graph(model, tl.optim.adam(model, {}))
  for step = 1, 4 do plain(model, opt, step) end
  tl.seed(7)
  t.eq(named.list(), {})
  plain(model, opt, 5)
  t.eq(#named.list(), 1)
end)

t.test("a graph that never pays is captured no more", function()
  t.eq(both(model_of, 12, function(model, opt, step)
    core.no_grad(core.svd, model.embed.weight)
    return plain(model, opt, step)
  end), 0)
end)

t.test("a profile counts kernels", function()
  local model = model_of()
  local opt = tl.train.graph(model, tl.optim.adam(model, {}))
  for step = 1, 4 do plain(model, opt, step) end
  local kernels = {}
  for _, k in ipairs(tl.profile(plain, model, opt, 5).kernels) do kernels[k.name] = k.calls end
  t.eq(kernels.tno, 1)
end)

-- ---- What has no graph --------------------------------------------------------------------------

t.test("without a request, modules and functions of a script are asked at each step", function()
  local Mixer = tl.nn.class("Mixer", {}, {})
  local calls = 0
  function Mixer:forward(x)
    calls = calls + 1
    return x * (1 / calls)
  end
  local function mixed() return model_of { mixer = function() return Mixer() end } end
  local function encoded()
    return model_of { encoder = function(points)
      calls = calls + 1
      return core.zeros(points:dim(1), 24) + 1 / calls
    end }
  end
  for _, make in ipairs { mixed, encoded } do
    calls = 0
    local model = make()
    local opt = tl.optim.adam(model, {})
    local before = calls
    for step = 1, 4 do plain(model, opt, step) end
    t.eq({ calls - before, opt.graphs }, { 4 })
  end
end)

t.test("only the model that was named has graphs; it must be a module with an optimiser", function()
  local model = model_of()
  local opt = tl.train.graph(model, tl.optim.adam(model, {}))
  local thin = { train = function() end, loss = function(_, ...) return model:loss(...) end }
  for step = 1, 4 do plain(thin, opt, step) end
  t.eq(opt.graphs:counts(), 0)
  t.raises(tl.train.graph, "takes a module and its optimiser", thin, opt)
  t.raises(tl.train.graph, "takes a module and its optimiser", model, {})
end)

t.done()
