-- test_layers.lua -- what layers compute, against their definitions.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

test("a learnable decay whose sigmoid is 0 still decays", function()
  local d = nn.Decay(2, "learnable")
  d.theta:copy(core.tensor { -200, 3 })
  local coef = d(core.ones(3, 2), core.tensor { 0, 1, 2 })
  eq(coef:get(1, 1), 1)
  eq(coef:get(2, 1), 0x1p-126)
  eq(coef:get(2, 2), 1 / (1 + math.exp(-3)), 1e-6)
  coef:sum():backward()
  ok(d.theta:grad():get(2) > 0)
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
    local rpe = nn.RPE(width, o)
    for _, linear in ipairs { rpe.input, rpe.output.linear } do
      local eye = {}
      for i = 1, width do
        eye[i] = {}
        for j = 1, linear.weight:dim(2) do eye[i][j] = i == j and 1 or 0 end
      end
      linear.weight:copy(core.tensor(eye))
      linear.bias:fill(0)
    end
    return core.no_grad(rpe.forward, rpe, core.tensor(points), n):totable()
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

test("RPE: features by a function of the script", function()
  local function powers(points, n)
    local k = core.affine(points, 1 / n, 0):reshape(-1, 1)
    return core.concat({ k, k * k, k ^ 3 }, 2)
  end
  local rpe = nn.RPE(2, { input = powers, hidden = 4, layers = 1 })
  eq(rpe.input.weight:shape(), { 4, 3 })
  local tno = nn.TNO(2, { rpe = { input = powers, hidden = 4 }, causal = false })
  eq(core.no_grad(tno, core.ones(1, 5, 2)):shape(), { 1, 5, 2 })
  local model = tl.models.tnn_lm { vocab = 4, layers = 1, dim = 8, rpe_dim = 4, rpe_input = powers }
  eq(core.no_grad(model, core.ids { { 0, 1, 2 } }):shape(), { 1, 3, 4 })
  raises(nn.RPE, "input returned tensor %[2%] float32 for 2 points, not %[2,features%]", 1,
    { input = function(points) return points end })
  local odd = nn.RPE(1, { input = function(points)
    return core.zeros(points:dim(1), points:dim(1)) end })
  raises(odd, "returned tensor %[3,3%] float32 for 3 points, not %[3,2%]", core.range(1, 3), 3)
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

test("RPE: the shortcut of residual hidden layers", function()
  local plain = nn.RPE(3, { hidden = 4, layers = 0 })
  local function deep(residual)
    local rpe = nn.RPE(3, { hidden = 4, layers = 2, residual = residual })
    local state = plain:state()
    for name, value in pairs(rpe:state()) do
      state[name] = state[name] or core.zeros(value:shape())
    end
    return rpe:load(state)(core.range(0, 2), 3)
  end
  eq(deep(true), plain(core.range(0, 2), 3))
  eq(deep(false):narrow(1, 2, 1), deep(false):narrow(1, 3, 1))
end)

test("RPE: one pass agrees with its modules one by one", function()
  tl.seed(10)
  local points, scale = core.range(-4, 30), random(35)
  for _, norm in ipairs { "simplermsnorm", "rmsnorm", "layernorm", "scalenorm", "none" } do
    for _, residual in ipairs { false, true } do
      local rpe = nn.RPE(7, { hidden = 20, layers = 2, norm = norm, act = "silu",
        output_norm = "layernorm", residual = residual })
      local y = core.no_grad(rpe.forward, rpe, points, 31, "lag", scale)
      local want = core.no_grad(function()
        local x = rpe.input(points:reshape(-1, 1))
        for _, layer in rpe.layers:each() do x = residual and layer(x) + x or layer(x) end
        return rpe.output(x) * scale:reshape(-1, 1)
      end)
      eq(y, want, 2e-6)
    end
  end
end)

test("RPE: records one operator, unless a norm needs its own", function()
  for norm, fewest in pairs { simplermsnorm = 1, batchnorm = 8 } do
    local rpe = nn.RPE(3, { hidden = 4, layers = 2, norm = norm })
    core.tape_clear()
    rpe(core.range(0, 5), 6)
    ok(norm == "batchnorm" and core.tape_length() >= fewest or core.tape_length() == fewest)
    core.tape_clear()
  end
end, "cpu")

test("TNO: a fixed, uniform decay multiplies within the encoder", function()
  tl.seed(11)
  local x = random(1, 9, 4)
  for _, causal in ipairs { true, false } do
    local tno = nn.TNO(4, { causal = causal, decay = 0.7, rpe = { hidden = 8, layers = 1 } })
    local lags = causal and core.range(0, 8) or core.range(-8, 8)
    ok(tno.decay:factors(lags), "one number for all channels")
    local y = tno(x)
    local want = core.no_grad(function() return tno.decay(tno.encoder(lags, 9), lags) end)
    eq(core.no_grad(tno.coefficients, tno, 9), want, 1e-6)
    tno.decay.gamma:copy(core.tensor { 0.7, 0.7, 0.7, 0.6 })
    eq(tno.decay:factors(lags), nil)
    ok((tno(x) - y):abs():amax():item() > 1e-4, "the last channel decays faster")
  end
  eq(nn.Decay(2, { kind = "learnable" }):factors(core.range(0, 3)), nil)
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

test("caches coefficients exactly as long as nothing can change", function()
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
  eq(calls, 2)
  nn.cached(function()
    core.no_grad(tno.forward, tno, x)
    tno(x:clone():require_grad())
    core.no_grad(tno.forward, tno, x)
  end)
  eq(calls, 4)
end)

test("the activation of coefficients comes after the decay", function()
  local tno = nn.TNO(1, {
    encoder = function(points) return core.full({ points:dim(1), 1 }, 3) end,
    decay = 0.5, act = "square",
  })
  eq(tno:coefficients(3), { { 9 }, { 2.25 }, { 0.5625 } }, 1e-6)
end)

-- Attention of one row by its definition: q, k, v are Lua tables [n][h w].
local function attention_by_hand(q, k, v, heads, slopes, causal)
  local n, w, y = #q, #q[1] // heads, {}
  for i = 1, n do
    y[i] = {}
    for h = 1, heads do
      local weights, total = {}, 0
      for j = 1, causal and i or n do
        local dot = -(slopes and slopes[h] or 0) * math.abs(i - j)
        for c = (h - 1) * w + 1, h * w do dot = dot + q[i][c] * k[j][c] / math.sqrt(w) end
        weights[j] = math.exp(dot)
        total = total + weights[j]
      end
      for c = (h - 1) * w + 1, h * w do
        y[i][c] = 0
        for j, a in ipairs(weights) do y[i][c] = y[i][c] + a / total * v[j][c] end
      end
    end
  end
  return y
end

test("attention agrees with its definition, by heads, with mask and alibi", function()
  tl.seed(12)
  for _, positions in ipairs { "none", "alibi" } do
    for _, causal in ipairs { true, false } do
      local a = nn.Attention(4, { heads = 2, causal = causal, positions = positions })
      local x = random(1, 5, 4)
      local function rows(y) return y:reshape(5, 4):totable() end
      local slopes = positions == "alibi" and nn.alibi_slopes(2) or nil
      local mixed = attention_by_hand(rows(a.q(x)), rows(a.k(x)), rows(a.v(x)), 2, slopes, causal)
      eq(a(x), a.o(core.tensor { mixed }), 1e-5)
    end
  end
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
  local inner = nn.Block(2, Double(), { layout = "B", inner_norm = "layernorm" })
  eq(inner(x):get(1, 1, 1), 3 + 3 / rms - 2, 1e-3)
end)

test("initialisers: ranges and deviations, and nothing drawn for a description", function()
  tl.seed(12)
  local w = nn.Linear(100, 200).weight
  ok(w:amax():item() <= 0.1 and (-w):amax():item() <= 0.1, "torch: bound 1/sqrt(100)")
  eq(core.square(w):mean():item(), 0.01 / 3, 2e-4)
  eq(core.square(nn.Linear(100, 200, { init = "normal" }).bias):mean():item(), 4e-4, 2e-4)
  eq(nn.Linear(10, 20, { init = "bert" }).bias:amax():item(), 0)
  eq(core.square(nn.Embedding(300, 64).weight):mean():item(), 1 / 64, 1e-3)
  eq(nn.Embedding(3, 4, { pad = 1 }).weight:narrow(1, 2, 1), { { 0, 0, 0, 0 } })
  eq(nn.without_init(nn.Linear, 5, 5).weight:amax():item(), 0)
  raises(nn.Embedding, "pad = 3 is not below vocab = 3", 3, 4, { pad = 3 })
end)

t.test("a layer does not close the tensors of others", function()
  local x = core.ones(1, 3, 4)
  for _, act in ipairs { "none", "silu" } do
    local seen
    local gtu, glu = nn.GTU(4, { act = act, expand = 1 }), nn.GLU(4, { act = act })
    gtu.v, gtu.tno = function(v) return v end, function(v) seen = v return v end
    gtu(x)
    t.eq(seen:shape(), { 1, 3, 4 })
    t.eq(x:shape(), { 1, 3, 4 })
    glu.l3 = function(gated) seen = gated return gated end
    t.eq(glu(x):shape(), { 1, 3, 4 })
    t.eq(seen:shape(), { 1, 3, 4 })
  end
end)

t.test("auto chooses nothing before a length is known", function()
  local tno, asked = core.tno, {}
  core.tno = function(backend, ...)
    asked[#asked + 1] = backend
    return tno(backend, ...)
  end
  local fine, layer = pcall(nn.TNO, 37, { backend = "auto", encoder = "table" })
  core.tno = tno
  t.ok(fine, layer)
  t.eq(asked, { "rac" })
end)

t.done()
