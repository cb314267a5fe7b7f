-- test_encoders.lua -- encoders against their definitions, their parameters and gradients, and
-- which of them a backend can ask.

local t = require "harness"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

local function ask(encoder, points, n, domain)
  return core.no_grad(encoder.forward, encoder, points, n or points:dim(1), domain)
end

-- Numbers of a [p,1] tensor.
local function column(coef) return coef:reshape(-1):totable() end

local function check_gradients(module, ...)
  local arguments = table.pack(...)
  slopes.check(function()
    return slopes.probe(module(table.unpack(arguments, 1, arguments.n)))
  end, module:parameters())
end

-- ---- Piecewise ----------------------------------------------------------------------------------

local function steps() -- nodes -1, -0.5, 0, 0.5, 1 with the values 1, 2, 0, 3, 4
  local e = nn.Piecewise(1, { nodes = 5, lambda = 0.5 })
  e.neg:copy(core.tensor { { 1 }, { 2 } })
  e.pos:copy(core.tensor { { 3 }, { 4 } })
  return e
end

test("piecewise: linear between its nodes, 0 at 0", function()
  local x = core.tensor { -1, -0.75, -0.5, -0.25, 0, 0.125, 0.5, 0.9, 1 }
  local want = { 1, 1.5, 2, 1, 0, 0.75, 3, 3.8, 4 }
  eq(column(ask(steps(), x, 9, "warp")), want, 1e-6)
  raises(ask, "1%.5 is not in %[%-1,1%]", steps(), core.tensor { 1.5 }, 1, "warp")
  raises(nn.Piecewise, "= 4 must be odd", 1, { nodes = 4 })
  raises(nn.Piecewise, "= 1 must be above 0 and below 1", 1, { lambda = 1 })
end)

test("piecewise: lags are warped by its own lambda, lag 0 by the option zero", function()
  local function at(zero)
    local e = steps()
    e.opt.zero = zero
    return column(ask(e, core.range(-2, 2), 3, "lag"))
  end
  eq(at "plus", { 1, 2, 4, 3, 1.5 }, 1e-6)
  eq(at "literal", { 1, 2, 0, 3, 1.5 }, 1e-6)
  eq(at "mean", { 1, 2, 2.5, 3, 1.5 }, 1e-6)
  local far = column(ask(steps(), core.range(20, 30), 31, "lag"))
  ok(far[1] < 1e-5 and far[11] < far[1], "far lags must tend to 0")
end)

test("piecewise: parameters and gradients", function()
  tl.seed(1)
  eq(nn.Piecewise(6):count(), 128 * 6)
  eq(nn.Piecewise(6, { nodes = 65 }):count(), 64 * 6)
  local e = nn.Piecewise(3, { nodes = 9, lambda = 0.8 })
  for _, zero in ipairs { "plus", "literal", "mean" } do
    e.opt.zero = zero
    check_gradients(e, core.range(-6, 6), 7, "lag")
  end
  check_gradients(e, core.tensor { -1, -0.3, 0, 0.1, 0.77, 1 }, 4, "warp")
end)

-- ---- The network --------------------------------------------------------------------------------

test("lra: two layers without norm, then LayerNorm", function()
  tl.seed(2)
  local e = nn.TNO(3, { encoder = "lra", rpe = { hidden = 5 }, causal = false }).encoder
  e.output.norm.weight:copy(random(5))
  e.output.norm.bias:copy(random(5))
  local function map(x, linear) return core.linear(x, linear.weight, linear.bias) end
  local points = core.range(-4, 4)
  local x = map(points:reshape(-1, 1), e.input)
  for i = 1, 2 do x = map(core.relu(x), e.layers[i].linear) end
  x = core.layer_norm(x, e.output.norm.weight, e.output.norm.bias, 1e-5)
  eq(ask(e, points, 5), map(core.relu(x), e.output.linear), 1e-6)
  eq(#e.layers, 2)
  check_gradients(nn.RPE(3, { hidden = 4, layers = 1, norm = "none", act = "tanh",
    output_norm = "layernorm" }), core.tensor { -0.5, 0.2, 1 }, 2)
end)

test("the published sizes of the LRA model of IMDB", function()
  local stack = require "toeplab.models.stack"
  local o = tl.options.check("blocks", stack.fields({}, {
    layers = 4, dim = 128, expand = 1.0, glu_dim = 256, norm = "batchnorm", encoder = "lra",
    rpe_dim = 32, causal = false, decay = 0.9, max_lag = 1024,
  }))
  local blocks = stack.layers("test", o)
  eq(blocks:count() + 2 * 128 + 129 * 2, 622850) -- 623 k with the last norm and the output map
  eq(require("toeplab.models.sizes").blocks(o), (blocks:count()))
end)

test("RPE: the cosine of frequencies, and the point itself elsewhere", function()
  tl.seed(3)
  local a = nn.RPE(2, { hidden = 4, layers = 1, input = "cos", act = "silu" })
  local b = nn.RPE(2, { hidden = 4, layers = 1, act = "silu" }):load(a:state())
  local omega = core.affine(core.range(0, 8), math.pi / 8, 0)
  eq(ask(a, omega, 8, "frequency"), ask(b, core.cos(omega), 8, "warp"), 1e-6)
  check_gradients(a, omega, 8)
end)

test("without a norm the network is piecewise linear in the lag, with one it is not", function()
  tl.seed(4)
  -- The largest second difference that is not at a kink: the median of them is 0 or not.
  local function bend(norm)
    local e = nn.RPE(1, { hidden = 16, layers = 1, norm = norm })
    local c = column(ask(e, core.affine(core.range(0, 400), 0.01, -2), 401))
    local second = {}
    for i = 2, 400 do second[i - 1] = math.abs(c[i + 1] - 2 * c[i] + c[i - 1]) end
    table.sort(second)
    return second[200]
  end
  ok(bend "none" < 2e-6, "none: " .. bend "none")
  ok(bend "layernorm" > 1e-5, "layernorm: " .. bend "layernorm")
end)

-- ---- Tables -------------------------------------------------------------------------------------

test("frequency table: rows at even steps of [0,pi], linear between", function()
  tl.seed(5)
  local e = nn.FrequencyTable(2, { length = 5 })
  local function at(...)
    return ask(e, core.affine(core.tensor { ... }, math.pi, 0), 9, "frequency")
  end
  eq(at(0, 0.25, 0.5, 0.75, 1), e.table, 1e-6)
  local want = core.affine(e.table:narrow(1, 1, 1), 0.7, 0)
    + core.affine(e.table:narrow(1, 2, 1), 0.3, 0)
  eq(at(0.075), want, 1e-6)
  eq(nn.FrequencyTable(2):count(), 512)
  check_gradients(e, core.tensor { 0, 0.3, 1.1, 3.1, math.pi }, 4)
end)

test("frequency table: a separate row for frequency 0", function()
  tl.seed(6)
  local e = nn.FrequencyTable(1, { length = 4, dc = true })
  eq({ e:count(), e.dc:item() }, { 5, 1 })
  local got = column(ask(e, core.affine(core.range(0, 8), math.pi / 8, 0), 8))
  local rows = column(e.table)
  eq(got[1], 1)
  eq({ got[2], got[3], got[5], got[7], got[9] }, { rows[1], rows[1], rows[2], rows[3], rows[4] },
    1e-6)
  eq(got[4], (rows[1] + rows[2]) / 2, 1e-6)
  check_gradients(e, core.tensor { 0, 0.3, 1.1, 3.1, math.pi }, 4)
end)

-- ---- State space models -------------------------------------------------------------------------

-- k_l of channel c by complex arithmetic, step by step.
local function kernel(k, c, l)
  local sum, dt = 0, math.exp(k.log_dt:get(c))
  for m = 1, k.a:dim(2) do
    local re, im = -math.exp(k.a:get(c, m)), k.w:get(c, m)
    local size, angle = math.exp(re * dt), im * dt
    local e_re, e_im = size * math.cos(angle) - 1, size * math.sin(angle)
    local norm = re * re + im * im
    local g_re, g_im = (e_re * re + e_im * im) / norm, (e_im * re - e_re * im) / norm
    local w_re = k.c_re:get(c, m) * g_re - k.c_im:get(c, m) * g_im
    local w_im = k.c_re:get(c, m) * g_im + k.c_im:get(c, m) * g_re
    sum = sum + 2 * math.exp(re * dt * l) * (w_re * math.cos(angle * l)
      - w_im * math.sin(angle * l))
  end
  return sum
end

test("ssm: the kernel is its sum of exponentials, at every length", function()
  tl.seed(7)
  local e = nn.SSM(2, { state = 6, dt_min = 0.05, dt_max = 0.5 })
  for _, n in ipairs { 1, 2, 3, 10, 37 } do
    local coef = ask(e, core.range(0, n - 1), n)
    for c = 1, 2 do
      eq(coef:get(1, c), kernel(e.past, c, 0) + e.skip:get(1, c), 1e-5)
      for l = 1, n - 1 do eq(coef:get(l + 1, c), kernel(e.past, c, l), 1e-5) end
    end
  end
end)

test("ssm: negative lags have their own kernel", function()
  tl.seed(8)
  local e = nn.SSM(2, { state = 4, causal = false, skip = false, dt_min = 0.1 })
  local coef = ask(e, core.range(-4, 4), 5)
  for l = 0, 4 do eq(coef:get(5 + l, 2), kernel(e.past, 2, l), 1e-5) end
  for l = 1, 4 do eq(coef:get(5 - l, 2), kernel(e.future, 2, l - 1), 1e-5) end
  eq(ask(e, core.range(0, 0), 1):shape(), { 1, 2 })
  raises(ask, "a causal kernel has no negative lags", nn.SSM(2), core.range(-1, 1), 2)
  raises(nn.SSM, "= 3 must be even", 2, { state = 3 })
  raises(nn.SSM, "'dt_max' = inf must be between", 2, { dt_max = math.huge })
  raises(nn.SSM, "dt_min = 0.1 is above dt_max = 0.01", 2, { dt_min = 0.1, dt_max = 0.01 })
end)

test("ssm: parameters, starting values and gradients", function()
  tl.seed(9)
  eq(nn.SSM(3):count(), 3 * (1 + 4 * 32 + 1))
  eq(nn.SSM(3, { causal = false, skip = false, state = 8 }):count(), 2 * 3 * (1 + 4 * 4))
  local e = nn.SSM(400, { state = 4 })
  eq(core.exp(e.past.a):amax():item(), 0.5, 1e-6)
  eq(e.past.w:narrow(1, 7, 1), { { 0, math.pi } }, 1e-6)
  ok(core.exp(e.past.log_dt):amax():item() <= 0.1 and e.past.log_dt:amax():item() > math.log(0.09))
  check_gradients(nn.SSM(2, { state = 4, dt_min = 0.1, dt_max = 0.3 }), core.range(0, 6), 7)
  check_gradients(nn.SSM(2, { state = 4, dt_min = 0.1, dt_max = 0.3, causal = false }),
    core.range(-3, 3), 4)
end)

-- ---- Short convolutions -------------------------------------------------------------------------

test("conv: a TNO with it is the depthwise convolution, causal and centred", function()
  tl.seed(10)
  for _, causal in ipairs { true, false } do
    for _, taps in ipairs { 1, 3, 4 } do
      for _, n in ipairs { 1, 2, 7 } do
        local tno = nn.TNO(2, { encoder = "conv", encoder_options = { taps = taps },
          causal = causal, decay = "none", backend = "naive" })
        local conv = nn.Conv(2, { taps = taps, causal = causal }):load(tno.encoder:state())
        local x = random(2, n, 2)
        eq(tno(x), conv(x), 1e-5)
      end
    end
  end
  eq(nn.ShortConv(5):count(), 20)
  check_gradients(nn.ShortConv(2, { causal = false }), core.range(-4, 4), 5)
end)

-- ---- Which backend asks what --------------------------------------------------------------------

test("refuses invalid pairs of encoder and backend, with valid ones", function()
  local encoders = require "toeplab.nn.encoders"
  local function fails(want, encoder, domain, more)
    local o = { encoder = encoder, backend = "some", rpe = {}, encoder_options = {},
      table_length = 8, causal = true }
    for name, value in pairs(more or {}) do o[name] = value end
    local fine, e = pcall(encoders.make, o, 4, domain)
    eq({ fine, type(e) == "table" and e.status }, { false, "EBACKEND" })
    ok(e.message:find(want), e.message)
  end
  fails("encoder piecewise takes lags or warped lags, but backend 'some' works by frequency: use "
    .. "encoder lra, mlp, table or a function", "piecewise", "frequency")
  fails("encoder ssm takes lags,.*works by warp: use encoder lra, mlp, piecewise or a function",
    "ssm", "warp")
  fails("encoder conv takes lags", "conv", "frequency")
  fails("encoder table takes lags", "table", "warp")
  fails("encoder Table takes lags", nn.Table(4), "frequency")
  fails("encoder FrequencyTable takes frequencies.*works by lag: use encoder conv, lra, mlp, "
    .. "piecewise, ssm, table or", nn.FrequencyTable(4), "lag")
  for _, input in ipairs { "normalised", "exp" } do
    fails("mlp with input '" .. input .. "' takes lags.*use input 'integer' %(omega itself%)",
      "mlp", "frequency", { rpe = { input = input } })
    fails("use input 'integer' %(the point itself%)", "lra", "warp", { rpe = { input = input } })
  end
  fails("mlp with input 'cos' takes frequencies, .* works by lag: use input 'integer'", "mlp",
    "lag", { rpe = { input = "cos" } })
end)

test("valid pairs work, and options reach their parts", function()
  for _, causal in ipairs { true, false } do
    for _, e in ipairs { "mlp", "lra", "table" } do
      local tno = nn.TNO(2, { encoder = e, backend = "fd", decay = "none", causal = causal })
      eq(tno(random(1, 5, 2)):shape(), { 1, 5, 2 })
      eq(tno.encoder.opt.dim, causal and 2 or 4)
    end
  end
  raises(nn.TNO, "but max_lag is for lags", 2, { backend = "fd", decay = "none", max_lag = 4 })
  raises(nn.TNO, "'encoder_options' cannot be combined with encoder mlp", 2,
    { encoder_options = { taps = 1 } })
  raises(nn.TNO, "'rpe' cannot be combined with encoder ssm", 2,
    { encoder = "ssm", rpe = { hidden = 1 } })
  raises(nn.TNO, "cannot be combined with an encoder given as a class, module or function", 2,
    { encoder = function() end, rpe = { hidden = 1 } })
  raises(nn.TNO, "ShortConv: unknown option 'tap'; did you mean 'taps'", 2,
    { encoder = "conv", encoder_options = { tap = 1 } })
  raises(nn.TNO, "is not one of conv, lra, mlp, piecewise, ssm, table", 2, { encoder = "cnn" })
end)

test("a kind of module as the encoder: a separate one in each layer", function()
  local Rows = nn.class("Rows", { dim = "int", parts = 2 }, { "dim" })
  Rows.domains = { lag = true }
  function Rows:build(o) self.w = nn.parameter(tl.ones(o.parts, o.dim)) end
  function Rows:forward(points)
    return tl.matmul(tl.ones(points:dim(1), self.opt.parts), self.w)
  end
  local given = { vocab = 5, dim = 4, layers = 2, expand = 2.0, encoder = Rows }
  given.encoder_options = { parts = 3 }
  local model = tl.models.tnn_lm(given)
  local names = {}
  for _, p in ipairs(model:parameters()) do
    if p.name:find "encoder" then names[#names + 1] = p.name .. p.tensor:numel() end
  end
  eq(names, { "layers.1.token.tno.encoder.w24", "layers.2.token.tno.encoder.w24" })
  eq(model(core.ids { { 1, 2, 3 } }):shape(), { 1, 3, 5 })
  raises(tl.models.tnn_lm, "Rows takes lags, but backend 'fd' works by frequency", { vocab = 5,
    dim = 4, layers = 1, encoder = Rows, backend = "fd", decay = "none" })
  for _, add in ipairs { 1, 2 } do
    raises(nn.GTU, ("'%d%%+elu' is not one of .*; did you mean 'elu%d'"):format(add, add), 8,
      { act = add .. "+elu" })
  end
  raises(nn.TNO, "unknown option 'prats'; did you mean 'parts'", 4,
    { encoder = Rows, encoder_options = { prats = 1 } })
  raises(nn.TNO, "'rpe' cannot be combined with an encoder given as a class, module or function", 4,
    { encoder = Rows, rpe = { layers = 1 } })
end)

test("a user's encoder receives points, length and domain", function()
  local seen = {}
  local function encoder(points, n, domain)
    seen = { points:totable(), n, domain }
    return core.ones(points:dim(1), 1)
  end
  local tno = nn.TNO(1, { encoder = encoder, causal = false })
  tno(core.ones(1, 2, 1))
  eq(seen, { { -1, 0, 1 }, 2, "lag" })
  tno = nn.TNO(1, { encoder = encoder, backend = "fd", decay = "none" })
  tno(core.ones(1, 2, 1))
  eq({ #seen[1], seen[2], seen[3] }, { 3, 2, "frequency" })
end)

t.done()
