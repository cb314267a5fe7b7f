-- test_nn.lua -- modules: registration, options, state, the tree, and every gradient against finite
-- differences.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

-- The number sum(w * fn()) as a tensor, w fixed, so that every element of the result matters.
local function probe(fn)
  local y = fn()
  local w = core.stream(99, "probe"):normal(core.zeros(y:shape()), 0, 1)
  return (y * w):sum()
end

-- Compares the gradients of some tensors with central differences of probe(fn); tol is relative to
-- the largest gradient of the tensor.
local function check_gradients(fn, tensors, tol)
  for _, p in ipairs(tensors) do p.tensor:set_grad(nil) end
  probe(fn):backward()
  local step, checked = 1e-2, 0
  for _, p in ipairs(tensors) do
    local grad = p.tensor:grad()
    ok(grad, p.name .. " has no gradient")
    local flat, size = grad:reshape(-1):totable(), p.tensor:numel()
    local largest = 1e-2
    for _, g in ipairs(flat) do largest = math.max(largest, math.abs(g)) end
    for i = 1, size, math.max(1, size // 7) do
      local one = p.tensor:view(i - 1, { 1 })
      local before = one:item()
      local function at(value)
        one:fill(value)
        return core.no_grad(probe, fn):item()
      end
      local numeric = (at(before + step) - at(before - step)) / (2 * step)
      one:fill(before)
      if math.abs(numeric - flat[i]) > tol * largest then
        error(("%s element %d: gradient %g, by differences %g"):format(
          p.name, i, flat[i], numeric), 2)
      end
      checked = checked + 1
    end
  end
  ok(checked > 0, "no element was compared")
end

-- All trained parameters of a module, and its input x if it wants a gradient.
local function check_module(module, x, tol)
  local tensors = {}
  for _, p in ipairs(module:parameters()) do
    if p.tensor:requires_grad() then tensors[#tensors + 1] = p end
  end
  if x:type() == "float32" then
    tensors[#tensors + 1] = { name = "x", tensor = x:require_grad() }
  end
  check_gradients(function() return module(x) end, tensors, tol or 2e-2)
end

-- ---- Modules ------------------------------------------------------------------------------------

test("a module registers what is assigned, in order, shared tensors once", function()
  local Pair = nn.class("Pair", { dim = "int" })
  function Pair:build(o)
    self.b = nn.Linear(o.dim, o.dim)
    self.a = nn.Linear(o.dim, o.dim, { bias = false })
    self.a.weight = self.b.weight
    self.scale = core.ones(o.dim)
    self.cache = { core.ones(3) }
    self:buffer("seen", core.zeros(1))
  end
  local pair = Pair { dim = 3 }
  local names = {}
  for i, p in ipairs(pair:parameters()) do names[i] = p.name end
  eq(names, { "b.weight", "b.bias", "scale" })
  local all, trained = pair:count()
  eq({ all, trained }, { 15, 12 })
  local keys = {}
  for name in pairs(pair:state()) do keys[#keys + 1] = name end
  table.sort(keys)
  eq(keys, { "b.bias", "b.weight", "scale", "seen" })
end)

test("a plain table of modules and a method's name are refused", function()
  local Bad = nn.class("Bad", {})
  function Bad:build() self.parts = { nn.Linear(1, 1) } end
  raises(Bad, "ModuleList")
  local Worse = nn.class("Worse", {})
  function Worse:build() self.count = core.ones(1) end
  raises(Worse, "a method of every module")
end)

test("options are strict, typed, and suggest", function()
  raises(nn.GTU, "GTU: unknown option 'exapnd'; did you mean 'expand'%?", { dim = 4, exapnd = 2 })
  raises(nn.GTU, "GTU: option 'dim' must be an integer, got 4.0", { dim = 4.0 })
  raises(nn.GTU, "GTU: option 'dim' is required: an integer")
  raises(nn.GTU, "GTU: option 'act' = 'sillu' is not one of .*silu", { dim = 4, act = "sillu" })
  raises(nn.Dropout, "Dropout: option 'p' = 1.5 must be between 0 and 0.999", 1.5)
  raises(nn.Linear, "Linear takes 2 values and a table of options, got 3", 1, 2, 3)
  raises(nn.Decay, "must be above 0 and at most 1", 4, 1.01)
  raises(function() return nn.Linear(1, 2).opt.input end, "Linear has no option named 'input'")
  raises(function() return nn.Liner end, "nn has no 'Liner'; did you mean 'Linear'")
  raises(function() return tl.modles end, "toeplab has no 'modles'; did you mean 'models'")
  raises(function() return nn.act.rellu end, "nn.act has no 'rellu'; did you mean 'relu'")
  eq(nn.GTU(4).opt.expand, 3.0)
end)

test("a shared configuration: each takes what it declares; what nobody read is told", function()
  local c = tl.options.shared("c", { inputs = 2, outputs = 3, lr = 1e-3, sped = 1 })
  eq(nn.Linear(c).weight:shape(), { 3, 2 })
  eq(tl.options.unread(c), { "lr", "sped" })
  raises(function() return c.learning end, "c has no 'learning'")
end)

test("options are read from text by their types", function()
  local spec = { { "n", 3 }, { "x", 1.0 }, { "on", true }, { "s", "a" }, { "l", { 1 } } }
  local o = tl.options.parse("cmd", spec, { "n=5", "x=2", "on=false", "s=3", "l={0.9, 0.98}" })
  eq({ o.n, o.x, o.on, o.s, o.l }, { 5, 2.0, false, "3", { 0.9, 0.98 } })
  raises(tl.options.parse, "option 'n' must be an integer, got '5.5'", "cmd", spec, { "n=5.5" })
  raises(tl.options.parse, "unknown option 'm'", "cmd", spec, { "m=1" })
  raises(tl.options.parse, "not of the form name=value", "cmd", spec, { "n" })
end)

test("state and load: all problems in one message, nothing copied", function()
  local a, b = nn.Linear(2, 3), nn.Linear(2, 3)
  b:load(a:state())
  eq(b.weight, a.weight)
  ok(b.weight ~= a.weight, "load must copy")
  local before = b.bias:totable()
  local bad = { weight = core.zeros(3, 3), bais = core.zeros(3) }
  local message = select(2, pcall(b.load, b, bad))
  local wanted = { "missing: bias", "mismatch: weight is .*3,2.* given .*3,3", "unknown: bais" }
  for _, want in ipairs(wanted) do
    ok(message:find(want), message)
  end
  eq(b.bias, before)
end)

test("an error inside says which module it arose in", function()
  local s = nn.Sequential { nn.Linear(2, 3), nn.Sequential { nn.Linear(4, 5) } }
  raises(s, "in Sequential%.2%.1", core.zeros(1, 2))
end)

test("print shows a tree with counts, equal neighbours once", function()
  local s = nn.Sequential { nn.Linear(4, 4), nn.Linear(4, 4), nn.GLU(4) }
  local text = tostring(s)
  ok(text:find "^Sequential +100\n", text)
  ok(text:find "\n  1%-2: Linear 4 %-> 4 +40\n", text)
  ok(text:find "\n  3: GLU dim=4 +60\n", text)
end)

test("Sequential takes functions; train and eval reach every part", function()
  local s = nn.Sequential { nn.Linear(2, 2), core.relu, nn.Sequential { nn.Dropout(0.5) } }
  eq(s(random(3, 2)):shape(), { 3, 2 })
  s:eval()
  local x = core.ones(64, 2)
  eq(s(x), core.relu(s[1](x)))
  s:train()
  ok(s[3][1].training, "train must reach the dropout")
  raises(nn.Sequential, "value #1 is a number", { 3 })
end)

-- ---- Layers -------------------------------------------------------------------------------------

test("gradients: linear, activation, norms, dropout-free GLU, convolution", function()
  tl.seed(1)
  check_module(nn.Linear(3, 4), random(2, 5, 3))
  check_module(nn.Linear(3, 4, { bias = false, init = "normal" }), random(2, 3))
  check_module(nn.Activation "tanh", random(2, 3))
  for _, name in ipairs { "layernorm", "rmsnorm", "simplermsnorm", "scalenorm", "batchnorm" } do
    check_module(nn.norm(name, 5), random(2, 3, 5), 3e-2)
  end
  check_module(nn.GLU(3, { hidden = 5 }), random(2, 4, 3))
  check_module(nn.GLU(3, { act = "none" }), random(2, 4, 3))
  check_module(nn.Conv(3, { taps = 3 }), random(2, 6, 3))
  check_module(nn.Conv(3, { taps = 3, causal = false }), random(2, 6, 3))
end)

test("gradients: embedding", function()
  tl.seed(2)
  local ids = core.ids { { 0, 3, 3 }, { 4, 0, 1 } }
  check_module(nn.Embedding(5, 4), ids)
end)

test("gradients: RPE with every input, norm and residual", function()
  tl.seed(3)
  for _, input in ipairs { "integer", "normalised", "exp", "sincos" } do
    local o = { hidden = 4, layers = 1, act = "silu", input = input, norm = "layernorm" }
    local rpe = nn.RPE(3, o)
    local points = core.range(0, 6)
    local tensors = rpe:parameters()
    check_gradients(function() return rpe(points, 7) end, tensors, 3e-2)
  end
  for _, norm in ipairs { "simplermsnorm", "rmsnorm", "none" } do
    local rpe = nn.RPE(2, { hidden = 4, layers = 2, act = "tanh", norm = norm, residual = true })
    local points = core.range(-3, 3)
    check_gradients(function() return rpe(points, 4) end, rpe:parameters(), 3e-2)
  end
end)

test("gradients: TNO with every encoder and decay", function()
  tl.seed(4)
  local rpe = { hidden = 4, layers = 1, act = "silu", norm = "layernorm" }
  for _, causal in ipairs { true, false } do
    for _, decay in ipairs { 0.9, "learnable", "alibi", "none" } do
      local tno = nn.TNO(4, { causal = causal, decay = decay, rpe = rpe, heads = 2 })
      check_module(tno, random(2, 6, 4), 3e-2)
    end
  end
  local tno = nn.TNO(3, { encoder = "table", table_length = 4, causal = false })
  check_module(tno, random(2, 6, 3), 3e-2)
  tno = nn.TNO(3, { rpe = rpe, act = "tanh", decay = { 1, 0.5, 0.9 } })
  check_module(tno, random(2, 5, 3), 3e-2)
end)

test("gradients: GTU, attention of both kinds, block in every layout", function()
  tl.seed(5)
  local tno = { rpe = { hidden = 4, layers = 1, act = "silu", norm = "layernorm" } }
  check_module(nn.GTU(4, { expand = 1.5, tno = tno }), random(2, 5, 4), 3e-2)
  check_module(nn.GTU(4, { norm = "layernorm", tno = tno }), random(2, 5, 4), 3e-2)
  for _, positions in ipairs { "none", "sinusoidal", "alibi" } do
    for _, causal in ipairs { true, false } do
      local o = { heads = 2, causal = causal, positions = positions }
      check_module(nn.Attention(4, o), random(2, 5, 4), 3e-2)
      check_module(nn.GatedAttention(4, o), random(2, 5, 4), 3e-2)
    end
  end
  for layout in pairs(nn.layouts) do
    local o = { layout = layout, norm = "layernorm" }
    local block = nn.Block(4, nn.GTU(4, { tno = tno }), nn.GLU(4), o)
    check_module(block, random(2, 5, 4), 4e-2)
  end
end)

test("a wrong gradient would be found", function()
  local x = random(2, 3):require_grad()
  local function wrong() return core.silu(x) + core.no_grad(core.square, x) end
  raises(check_gradients, "by differences", wrong, { { name = "x", tensor = x } }, 2e-2)
end)

test("dropout keeps the mean, and the stream repeats it", function()
  tl.seed(6)
  local d, x = nn.Dropout(0.25), core.ones(100, 100)
  local y = d(x)
  eq(y:mean():item(), 1, 0.02)
  tl.seed(6)
  eq(d(x), y)
  eq(d:eval()(x), x)
end)

test("batch norm learns running statistics and uses them in evaluation", function()
  local bn = nn.BatchNorm(2)
  local x = core.tensor { { 1, 2 }, { 3, 6 } }
  bn(x)
  eq(bn.running_mean, { 0.2, 0.4 }, 1e-6)
  eq(bn.running_var, { 0.9 + 0.2, 0.9 + 0.8 }, 1e-6)
  bn:eval()
  eq(bn(x):get(1, 1), (1 - 0.2) / math.sqrt(1.1 + 1e-5), 1e-5)
  eq(bn:count(), 4)
end)

-- ---- Encoders, decay, TNO -----------------------------------------------------------------------

test("RPE: the input encodings", function()
  local function features(input, points, n, width)
    local o = { hidden = width, layers = 0, input = input, norm = "none", act = "none" }
    local rpe = nn.RPE(1, o)
    local eye = {}
    for i = 1, width do
      eye[i] = {}
      for j = 1, rpe.input.weight:dim(2) do eye[i][j] = i == j and 1 or 0 end
    end
    rpe.input.weight:copy(core.tensor(eye))
    rpe.input.bias:fill(0)
    local seen
    rawset(rpe.output, "forward", function(_, x)
      seen = x
      return x
    end)
    core.no_grad(rpe.forward, rpe, core.tensor(points), n)
    return seen:totable()
  end
  eq(features("integer", { -2, 0, 5 }, 2, 1), { { -2 }, { 0 }, { 5 } })
  eq(features("normalised", { -4, 0, 2 }, 5, 1), { { -1 }, { 0 }, { 0.5 } }, 1e-7)
  eq(features("exp", { 0, 1, 2 }, 3, 1), { { 1 }, { math.exp(0.5) }, { math.exp(1) } }, 1e-6)
  local f = features("sincos", { 0, 3 }, 2, 20)
  for i = 0, 9 do
    local angle = 3 * 10000 ^ (-2 * i / 20)
    eq({ f[1][i + 1], f[1][i + 11] }, { 0, 1 })
    eq({ f[2][i + 1], f[2][i + 11] }, { math.sin(angle), math.cos(angle) }, 1e-6)
  end
  local rpe = nn.RPE(1, { input = "exp" })
  raises(rpe, "make the TNO causal", core.range(-1, 1), 2)
end)

test("RPE: parameters as counted in the published models", function()
  eq(nn.RPE(1536):count(), 124928)
  eq(nn.RPE(1536, { layers = 0 }):count(), 128 + 1536 * 65)
end)

test("RPE saturates: at large lags it moves towards a constant", function()
  tl.seed(8)
  local rpe = nn.RPE(64, { layers = 3 })
  local c = core.no_grad(rpe.forward, rpe, core.tensor { 0, 10, 100, 1e6 }, 4):totable()
  local function distance(row)
    local sum = 0
    for i = 1, 64 do sum = sum + (c[row][i] - c[4][i]) ^ 2 end
    return math.sqrt(sum)
  end
  ok(distance(3) < distance(2) and distance(2) < distance(1), "distances must fall")
  ok(distance(3) < 0.1 * distance(1), "lag 100 must be near the limit")
end)

test("table encoder: rows are lags, zeros beyond its length, both sides counted", function()
  local enc = nn.Table(2, { length = 3 })
  eq(enc:count(), 2 * (1 + 2 + 2))
  enc.zero:fill(10)
  enc.pos:copy(core.tensor { { 1, 1 }, { 2, 2 } })
  enc.neg:copy(core.tensor { { -2, -2 }, { -1, -1 } })
  local function first(points, n)
    return core.no_grad(enc.forward, enc, points, n):narrow(2, 1, 1):reshape(-1):totable()
  end
  eq(first(core.range(0, 1), 2), { 10, 1 })
  eq(first(core.range(0, 4), 5), { 10, 1, 2, 0, 0 })
  eq(first(core.range(-1, 1), 2), { -1, 10, 1 })
  eq(first(core.range(-3, 3), 4), { 0, -2, -1, 10, 1, 2, 0 })
  eq(first(core.range(0, 0), 1), { 10 })
end)

test("decay: fixed, per channel, alibi, and learnable in both forms", function()
  tl.seed(9)
  local coef, lags = core.ones(3, 2), core.tensor { -1, 0, 2 }
  eq(nn.Decay(2, 0.5)(coef, lags), { { 0.5, 0.5 }, { 1, 1 }, { 0.25, 0.25 } })
  eq(nn.Decay(2, { kind = { 0.5, 1 } })(coef, lags), { { 0.5, 1 }, { 1, 1 }, { 0.25, 1 } })
  eq(nn.Decay(2, 0.5):parameters()[1].tensor:requires_grad(), false)
  eq({ nn.Decay(6, "learnable"):count() }, { 6, 6 })
  eq({ nn.Decay(6, 0.9):count() }, { 6, 0 })
  eq(nn.Decay(1, "alibi"):value(), { math.exp(-2 ^ -8) }, 1e-7)
  eq(nn.Decay(4, { kind = "alibi", heads = 2 }):value(),
    { math.exp(-2 ^ -4), math.exp(-2 ^ -4), math.exp(-2 ^ -8), math.exp(-2 ^ -8) }, 1e-6)
  local table10 = nn.Decay(2000, "learnable")
  eq(table10:value():mean():item(), 0.93, 0.02)
  local floored = nn.Decay(2000, { kind = "learnable", mean = 0.0, floor = 0.9 })
  floored.theta:fill(0)
  eq(floored:value():amax():item(), 0.95, 1e-6)
  raises(nn.Decay, "3 numbers for 2 channels", 2, { kind = { 1, 1, 1 } })
end)

test("TNO is the matrix of its coefficients, for every backend", function()
  tl.seed(10)
  for _, backend in ipairs { "naive", "matrix", "fft" } do
    for _, causal in ipairs { true, false } do
      local o = { causal = causal, backend = backend, rpe = { hidden = 8, layers = 1 } }
      local tno = nn.TNO(3, o)
      local n, x = 7, random(2, 7, 3)
      local coef = core.no_grad(tno.coefficients, tno, n):totable()
      local y = core.no_grad(tno.forward, tno, x):totable()
      local xs, zero = x:totable(), causal and 1 or n
      for b = 1, 2 do
        for i = 1, n do
          for c = 1, 3 do
            local sum = 0
            for j = 1, causal and i or n do sum = sum + coef[zero + i - j][c] * xs[b][j][c] end
            eq(y[b][i][c], sum, 1e-4)
          end
        end
      end
      eq(tno:dense(n):get(2, 3, 2), coef[zero + 1][2], 1e-6)
    end
  end
end)

test("TNO works at every length, also 1, and with a function for an encoder", function()
  local tno = nn.TNO(2, {
    encoder = function(points)
      return core.concat({ points:reshape(-1, 1), core.ones(points:dim(1), 1) }, 2)
    end,
    decay = "none",
  })
  eq(tno:count(), 0)
  eq(tno(core.ones(1, 3, 2)), { { { 0, 1 }, { 1, 2 }, { 3, 3 } } }, 1e-5)
  for n = 1, 9 do eq(tno(core.ones(1, n, 2)):shape(), { 1, n, 2 }) end
  raises(nn.TNO, "no backend.*'fff'", { dim = 2, backend = "fff" })
  raises(nn.TNO, "do not divide into 2 heads", { dim = 3, heads = 2 })
end)

test("coefficients are kept while nothing can change, and not a moment longer", function()
  local calls = 0
  local tno = nn.TNO(1, {
    encoder = function(points)
      calls = calls + 1
      return core.ones(points:dim(1), 1)
    end,
  })
  local x = core.ones(1, 4, 1)
  core.no_grad(nn.cached, function()
    tno(x)
    tno(x)
    eq(calls, 1)
  end)
  tno(x)
  nn.cached(tno, x:clone():require_grad())
  eq(calls, 3)
end)

test("attention: the mask hides the future, alibi prefers the near", function()
  tl.seed(11)
  for _, kind in ipairs { nn.Attention, nn.GatedAttention } do
    for _, causal in ipairs { true, false } do
      local a = kind(4, { heads = 2, causal = causal, positions = "alibi" })
      local x = random(1, 5, 4)
      local y = a(x):narrow(2, 1, 4):totable()
      x:view(16, { 4 }):fill(3)
      local z = a(x):narrow(2, 1, 4):totable()
      eq(y[1][1][1] == z[1][1][1], causal)
    end
  end
  eq(nn.alibi_slopes(8), { 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256 })
  eq(nn.alibi_slopes(3), { 2 ^ -4, 2 ^ -8, 2 ^ -2 })
  raises(nn.Attention, "do not divide into 3 heads", 4, { heads = 3 })
end)

test("the layouts differ as they should", function()
  local Double = nn.class("Double", {})
  function Double:forward(x) return core.affine(x, 2, 0) end
  local x = core.tensor { { { 3, 4 } } }
  local rms = math.sqrt(12.5)
  local function out(layout)
    return nn.Block(2, Double(), { layout = layout }):eval()(x):get(1, 1, 1)
  end
  eq(out "A", 3 + 2 * 3 / rms, 1e-5)
  eq(out "B", 3 + 3 / rms + 2 * 3 / rms, 1e-5)
  eq(out "C-fairseq", 3 / rms, 1e-5)
  eq(out "C-tnn", 3 + 3 / rms, 1e-5)
  raises(out, "is not one of A, B, C%-fairseq, C%-tnn", "C")
end)

test("initialisers: ranges and deviations, and nothing drawn when only looking", function()
  tl.seed(12)
  local w = nn.Linear(100, 200).weight
  ok(w:amax():item() <= 0.1 and (-w):amax():item() <= 0.1, "torch: bound 1/sqrt(100)")
  eq(core.square(w):mean():item(), 0.01 / 3, 2e-4)
  eq(core.square(nn.Linear(100, 200, { init = "normal" }).bias):mean():item(), 4e-4, 2e-4)
  eq(nn.Linear(10, 20, { init = "bert" }).bias:amax():item(), 0)
  eq(core.square(nn.Embedding(300, 64).weight):mean():item(), 1 / 64, 1e-3)
  eq(nn.Embedding(3, 4, { pad = 1 }).weight:narrow(1, 2, 1), { { 0, 0, 0, 0 } })
  eq(nn.without_init(nn.Linear, 5, 5).weight:amax():item(), 0)
  raises(nn.Embedding, "pad = 3 is not one of 3 tokens", 3, 4, { pad = 3 })
end)

t.done()
