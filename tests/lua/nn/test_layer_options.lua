-- test_layer_options.lua -- options of TNN's published code, against formulas written out here.

local t = require "harness"
local sizes = require "toeplab.models.sizes"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

local function close(got, want, tol)
  local e = core.abs(got - want):amax():item()
  ok(e <= (tol or 1e-5), "distance " .. e)
end

-- Compares the gradients of a module in its parameters, except the unused, and in x with finite
-- differences.
local function check_module(module, x, unused)
  local tensors = slopes.trained(module)
  tensors[#tensors + 1] = { name = "x", tensor = x:require_grad() }
  slopes.check(function() return slopes.probe(module(x)) end, tensors, 3e-2, { unused })
end

-- Returns the names of a module's parameters that match a pattern.
local function names(module, pattern)
  local list = {}
  for name in pairs(module:named()) do
    if name:find(pattern) then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

-- ---- The operator -------------------------------------------------------------------------------

local rpe = { hidden = 4, layers = 1, act = "tanh", norm = "none" }

-- Returns the matrices [d][n][n] of t(k, c), the coefficient of lag k in channel c.
local function matrices(t, d, n, causal)
  local all = {}
  for c = 1, d do
    all[c] = {}
    for i = 1, n do
      all[c][i] = {}
      for j = 1, n do all[c][i][j] = (causal and j > i) and 0 or t(i - j, c) end
    end
  end
  return all
end

-- Compares a TNO with matrices: dense, and applied to x.
local function check_operator(tno, t, d, n)
  local dense = core.tensor(t)
  close(tno:dense(n), dense)
  local x = random(2, n, d)
  local y = tno(x)
  for row = 1, 2 do
    local columns = x:narrow(1, row, 1):reshape(n, d):transpose(1, 2):reshape(d, n, 1)
    close(y:narrow(1, row, 1), core.matmul(dense, columns):reshape(d, n):transpose(1, 2)
      :reshape(1, n, d), 1e-4)
  end
end

test("act_first: the activation before the decay", function()
  tl.seed(4)
  for _, causal in ipairs { true, false } do
    for _, decay in ipairs { 0.8, "learnable", "none" } do
      local tno = nn.TNO(2, { causal = causal, decay = decay, act = "exp", act_first = true,
        rpe = rpe })
      local values = tno.encoder(core.range(-4, 4), 5)
      local gamma = tno.decay and tno.decay:value()
      check_operator(tno, matrices(function(k, c)
        return (gamma and gamma:get(c) or 1) ^ math.abs(k) * math.exp(values:get(k + 5, c))
      end, 2, 5, causal), 2, 5)
      check_module(tno, random(2, 4, 2))
    end
  end
end)

test("normalize: rows of T divided by their sums", function()
  tl.seed(5)
  for _, backend in ipairs { "rac", "naive" } do
    for _, causal in ipairs { true, false } do
      local o = { causal = causal, decay = 0.9, act = "exp", rpe = rpe, backend = backend }
      local plain = nn.TNO(2, o)
      o.normalize = true
      local tno, t = nn.TNO(2, o):load(plain:state()), plain:dense(5):totable()
      for c = 1, 2 do
        for i = 1, 5 do
          local sum = 0
          for j = 1, 5 do sum = sum + t[c][i][j] end
          for j = 1, 5 do t[c][i][j] = t[c][i][j] / sum end
        end
      end
      check_operator(tno, t, 2, 5)
      check_module(tno, random(2, 4, 2))
    end
  end
end)

test("nodes: an encoder linear between lags", function()
  tl.seed(6)
  for _, causal in ipairs { true, false } do
    local tno = nn.TNO(2, { causal = causal, decay = 0.9, nodes = 3, rpe = rpe })
    local first, last = causal and 0 or -5, 5
    local step = (last - first) / 2
    local values = tno.encoder(core.tensor { first, first + step, last }, 6)
    check_operator(tno, matrices(function(k, c)
      local place = (k - first) / step
      local low = math.min(place // 1, 1) | 0
      local share = place - low
      return 0.9 ^ math.abs(k) * ((1 - share) * values:get(low + 1, c)
        + share * values:get(low + 2, c))
    end, 2, 6, causal), 2, 6)
    check_module(tno, random(2, 6, 2))
    eq(tno:coefficients(2):dim(1), causal and 2 or 3) -- no more lags than nodes: all of them
    close(tno:coefficients(2), nn.TNO(2, { causal = causal, decay = 0.9, rpe = rpe })
      :load(tno:state()):coefficients(2))
  end
  raises(nn.TNO, "nodes requires encoder lra, mlp or piecewise, not table", 2, { nodes = 3,
    encoder = "table" })
  for name, value in pairs { nodes = 3, taps = 3, max_lag = 3 } do
    raises(nn.TNO, "backend 'fd' takes coefficients by frequency, but " .. name .. " is for lags",
      2, { [name] = value, backend = "fd", decay = "none" })
  end
  raises(nn.TNO, "nodes", 2, { nodes = 1 })
end)

test("taps: free numbers are added to the coefficients of the nearest lags", function()
  tl.seed(12)
  for _, causal in ipairs { true, false } do
    for _, max_lag in ipairs { 2, 9 } do
      local o = { causal = causal, decay = 0.9, rpe = rpe, act = "tanh", taps = 5,
        max_lag = max_lag }
      local tno, state = nn.TNO(2, o), {}
      for name, x in pairs(tno:state()) do state[name] = name ~= "taps" and x or nil end
      o.taps = nil
      local plain = nn.TNO(2, o):load(state):dense(6)
      check_operator(tno, matrices(function(k, c)
        local at = k + (causal and 1 or 3)
        local tap = math.abs(k) < max_lag and at >= 1 and at <= 5 and tno.taps:get(at, c) or 0
        return tap + (k < 0 and plain:get(c, 1, 1 - k) or plain:get(c, k + 1, 1))
      end, 2, 6, causal), 2, 6)
      check_module(tno, random(2, 4, 2))
    end
  end
end)

test("the causal SKI-TNN as released: r lags of a piecewise encoder, and taps", function()
  tl.seed(13)
  local r, n, lambda = 4, 9, 0.8
  local tno = nn.TNO(2, { encoder = "piecewise", decay = "none", nodes = r, taps = 3,
    encoder_options = { nodes = 2 * 3 + 1, lambda = lambda } })
  local function grid(x, c) -- 0 at x = 0, then the rows of pos up to x = 1
    local place = x * 3
    local low = math.min(place // 1, 2) | 0
    local function value(i) return i == 0 and 0 or tno.encoder.pos:get(i, c) end
    return value(low) + (place - low) * (value(low + 1) - value(low))
  end
  check_operator(tno, matrices(function(k, c)
    local place = k * (r - 1) / (n - 1)
    local low = math.min(place // 1, r - 2) | 0
    local function at(i) return grid(lambda ^ (i * (n - 1) / (r - 1)), c) end
    return at(low) + (place - low) * (at(low + 1) - at(low))
      + (k < 3 and tno.taps:get(k + 1, c) or 0)
  end, 2, n, true), 2, n)
  check_module(tno, random(1, n, 2), "encoder.neg") -- of later positions
end)

test("these options of a model, whole and position by position", function()
  local ids = tl.ids { { 3, 1, 6, 0, 1, 2 } }
  local function model(more)
    tl.seed(7)
    return tl.models.tnn_lm(tl.overlay({ vocab = 7, layers = 2, dim = 4, rpe_dim = 3,
      rpe_layers = 1 }, more)):eval()
  end
  for _, more in ipairs { { coef_act = "sigmoid", coef_act_first = true, nodes = 4 },
    { coef_act = "sigmoid", coef_taps = 3 } } do
    local one = model(more)
    eq(sizes.parameters(one.opt), one:count() + 0.0)
    for _, method in ipairs { "ring", "etsc" } do
      local session = tl.recurrent.new(one, { method = method, lags = 6 })
      close(session:hidden(ids), one:hidden(ids), 1e-4)
    end
  end
  eq(model({ normalize = true }).layers[1].token.tno.opt.normalize, true)
  raises(tl.models.tnn_classifier, "with nodes, results depend on the padded length", { vocab = 3,
    classes = 2, padding = "masked", norm = "layernorm", nodes = 3 })
  raises(tl.recurrent.new, "divides by sums that grow with the position %(normalize%)",
    model { normalize = true }, { lags = 6 })
end)

-- ---- Maps ---------------------------------------------------------------------------------------

test("bias = false: maps without biases in GTU, GLU, feed-forward network and RPE", function()
  tl.seed(1)
  local x = random(2, 5, 3)
  local glu = nn.GLU(3, { hidden = 4, bias = false })
  local function linear(y, w) return core.linear(y, w) end
  close(glu(x), linear(core.silu(linear(x, glu.l1.weight)) * linear(x, glu.l2.weight),
    glu.l3.weight))
  local ffn = nn.FeedForward(3, { hidden = 4, bias = false })
  close(ffn(x), linear(core.relu(linear(x, ffn.fc1.weight)), ffn.fc2.weight))
  local gtu = nn.GTU(3, { expand = 2.0, bias = false,
    tno = { rpe = { hidden = 4, layers = 1, act = "tanh", norm = "none" } } })
  local u, v = core.silu(linear(x, gtu.u.weight)), core.silu(linear(x, gtu.v.weight))
  close(gtu(x), linear(u * gtu.tno(v), gtu.o.weight))
  eq(names(gtu, "bias"), { "tno.encoder.input.bias", "tno.encoder.layers.1.linear.bias",
    "tno.encoder.output.linear.bias" })
  for _, module in ipairs { glu, ffn, gtu } do check_module(module, x) end
end)

test("an RPE without biases is that with biases of 0, fused or not, and in parts", function()
  tl.seed(2)
  for _, norm in ipairs { "simplermsnorm", "scalenorm" } do
    local o = { hidden = 5, layers = 2, norm = norm }
    local with = nn.RPE(40, o)
    for _, p in ipairs(with:parameters()) do
      if p.name:find "bias$" then p.tensor:fill(0) end
    end
    o.bias = false
    local without, state = nn.RPE(40, o), with:state()
    for name in pairs(state) do
      if name:find "bias$" then state[name] = nil end
    end
    without:load(state)
    local points, part = core.range(-3, 3), { first = 3, count = 5, of = 20 }
    close(without(points, 4), with(points, 4), 0)
    close(without(points, 4, nil, nil, part), with(points, 4, nil, nil, part), 0)
  end
end)

test("final_act and form of a GLU", function()
  tl.seed(3)
  for _, dropout in ipairs { 0, 0.5 } do
    local glu = nn.GLU(3, { hidden = 4, final_act = "tanh", dropout = dropout }):eval()
    local x = random(2, 5, 3)
    close(glu(x), core.tanh(glu.l3(core.silu(glu.l1(x)) * glu.l2(x))))
    check_module(glu, x)
    local shared = nn.GLU(3, { hidden = 4, form = "shared", dropout = dropout }):eval()
    local a = shared.l1(x)
    close(shared(x), shared.l3(core.silu(a) * a))
    eq(names(shared, "l2"), {})
    check_module(shared, x)
  end
  raises(nn.GLU, "form", 3, { form = "gtu" })
  raises(nn.GLU, "final_act", 3, { final_act = "thanh" })
end)

test("forms of the GTU: u = v, and a gate of v", function()
  tl.seed(8)
  local x = random(2, 5, 3)
  for _, name in ipairs { "silu", "none" } do
    local f = nn.act[name]
    local shared = nn.GTU(3, { form = "shared", act = name, tno = { rpe = rpe } })
    local v = f(shared.v(x))
    close(shared(x), shared.o(v * shared.tno(v)))
    local dtu = nn.GTU(3, { form = "dtu", act = name, tno = { rpe = rpe } })
    close(dtu(x), dtu.o(f(dtu.u(x)) * dtu.tno(f(dtu.q(x)) * f(dtu.v(x)))))
    check_module(shared, x)
    check_module(dtu, x)
  end
  raises(nn.GTU, "form", 3, { form = "dtv" })
end)

test("the token shift of a GTU", function()
  tl.seed(9)
  local x = random(2, 5, 3)
  local gtu = nn.GTU(3, { tno = { rpe = rpe } })
  for _, share in ipairs { 0.5, 1 } do
    local shifted = nn.GTU(3, { shift = share, tno = { rpe = rpe } }):load(gtu:state())
    local before = core.concat({ core.zeros(2, 1, 3), x:narrow(2, 1, 4) }, 2)
    close(shifted(x), gtu(core.affine(x, 1 - share, 0) + core.affine(before, share, 0)))
    close(shifted(x:narrow(2, 1, 1)), gtu(core.affine(x:narrow(2, 1, 1), 1 - share, 0)))
    check_module(shifted, x)
  end
  raises(nn.GTU, "shift", 3, { shift = 1.5 })
end)

test("drop_path leaves out the mixers of some sequences", function()
  tl.seed(11)
  local p, x = 0.25, random(4000, 1, 2)
  local function same(y) return y end
  local token = nn.Sequential(same)
  local block = nn.Block(2, token, nil, { norm = "none", drop_path = p })
  local y = block(x)
  local left_out = 0
  for i = 1, 4000 do
    local share = y:get(i, 1, 2) / x:get(i, 1, 2) - 1
    if math.abs(share) < 1e-5 then left_out = left_out + 1 else eq(share, 1 / (1 - p), 1e-4) end
  end
  eq(left_out / 4000, p, 0.03)
  close(block:eval()(x), x + x)
  local model = tl.models.tnn_lm { vocab = 3, layers = 3, dim = 2, drop_path = 0.2 }
  local rates = {}
  for i = 1, 3 do rates[i] = model.layers[i].opt.drop_path end
  eq(rates, { 0, 0.1, 0.2 }, 1e-12)
  eq(tl.models.tnn_lm({ vocab = 3, layers = 1, dim = 2, drop_path = 0.2 }).layers[1].opt.drop_path,
    0.2)
  raises(nn.Block, "drop_path", 2, token, nil, { drop_path = 1 })
  raises(nn.Block, "layout none has no shortcut", 2, token, nil, { drop_path = 0.1,
    layout = "none" })
end)

test("feature_first swaps the mixers of a block", function()
  tl.seed(12)
  local x, token, feature = random(2, 3, 4), nn.Linear(4, 4), nn.Linear(4, 4)
  for _, layout in ipairs { "A", "B", "C-fairseq", "C-tnn", "none" } do
    local swapped = nn.Block(4, token, feature, { layout = layout, feature_first = true })
    local first = nn.Block(4, feature, nil, { layout = layout == "B" and "A" or layout })
    close(swapped(x), nn.Block(4, token, nil, { layout = layout })(first(x)))
  end
  eq(tl.models.tnn_lm({ vocab = 3, dim = 2, feature_first = true }).layers[1].opt.feature_first,
    true)
end)

test("gatedrmsnorm", function()
  tl.seed(10)
  local norm, x = nn.norm("gatedrmsnorm", 4), random(3, 4)
  norm.weight:copy(random(4))
  norm.gate:copy(random(4))
  local y = norm(x)
  for i = 1, 3 do
    local square = 0
    for j = 1, 4 do square = square + x:get(i, j) ^ 2 end
    for j = 1, 4 do
      local v = x:get(i, j)
      eq(y:get(i, j), norm.weight:get(j) * v / (math.sqrt(square / 4) + 1e-8)
        / (1 + math.exp(-norm.gate:get(j) * v)), 1e-6)
    end
  end
  check_module(norm, x)
end)

test("the model options gtu_form, shift, grid_shared and mixer_norm", function()
  local ids = tl.ids { { 3, 1, 6, 0, 1, 2 } }
  local base = { vocab = 7, layers = 2, dim = 4, rpe_dim = 3, rpe_layers = 1 }
  for _, more in ipairs { { gtu_form = "shared", shift = 0.5 }, { glu_form = "shared" },
    { gtu_form = "dtu" }, { norm = "gatedrmsnorm", mixer_norm = "gatedrmsnorm" } } do
    local model = tl.models.tnn_lm(tl.overlay(base, more)):eval()
    eq(sizes.parameters(model.opt), model:count() + 0.0)
    local session = tl.recurrent.new(model, { lags = 6 })
    for i = 1, 6 do
      close(session:hidden(ids:narrow(2, i, 1)), model:hidden(ids):narrow(2, i, 1), 1e-4)
    end
  end
  local o = { classes = 2, patch = 2, grid = { 2, 3 }, layers = 1, dim = 4, grid_shared = true,
    grid_form = "chain" }
  local model = tl.models.tnn_image(o)
  eq(model.layers[1].token.tno.opt.shared, true)
  eq(sizes.blocks(model.opt), model.layers:count() + 0.0)
end)

test("the model options bias and final_act", function()
  local o = { vocab = 7, layers = 2, dim = 4, rpe_dim = 3, rpe_layers = 1, bias = false,
    final_act = "silu" }
  local model = tl.models.tnn_lm(o)
  eq(names(model, "bias"), { "final_norm.bias" })
  eq(model.layers[1].feature.opt.final_act, "silu")
  eq(sizes.parameters(model.opt), model:count() + 0.0)
  o.channel, o.final_act = "ffn", nil
  model = tl.models.tnn_lm(o)
  eq(names(model, "bias"), { "final_norm.bias" })
  eq(sizes.parameters(model.opt), model:count() + 0.0)
  o.final_act = "silu"
  raises(tl.models.tnn_lm, "final_act acts in the channel mixer glu, not in ffn", o)
  o.channel, o.mixer = nil, "kernelized"
  eq(tl.models.tnn_mlm(tl.overlay(o, { final_act = "none" })).layers[1].token.opt.bias, false)
  o.mixer, o.structure = nil, "mha+glu"
  raises(tl.models.tnn_lm, "bias = false is not defined for the mixer 's4d'", { vocab = 7,
    layers = 1, dim = 4, mixer = "s4d", bias = false })
  raises(tl.models.tnn_lm, "glu_form acts in the channel mixer glu, not in ffn", { vocab = 7,
    layers = 1, dim = 4, channel = "ffn", glu_form = "shared" })
  raises(tl.models.tnn_lm, "bias = false is not defined for the attention of structure 'mha%+glu'",
    o)
end)

t.done()
