-- test_layer_gradients.lua -- the gradients of every layer against finite differences.

local t = require "harness"
local slopes = require "slopes"
local sorted_keys = require "toeplab.base.sorted_keys"
local tl = require "toeplab"
local core = require "toeplab.core"
local nn = tl.nn

local test, raises, ok = t.test, t.raises, t.ok

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

-- The gradients of some tensors of fn(), of which every element matters. The bias of attention's
-- keys is the same for all keys, and softmax ignores it.
local function check_gradients(fn, tensors, tol)
  slopes.check(function() return slopes.probe(fn()) end, tensors, tol, { "k.bias" })
end

-- The same of a module, in its input x too unless that is ids.
local function check_module(module, x, tol)
  local tensors = slopes.trained(module)
  if x:type() == "float32" then
    tensors[#tensors + 1] = { name = "x", tensor = x:require_grad() }
  end
  check_gradients(function() return module(x) end, tensors, tol)
end

test("a NaN gradient does not match a slope of 0", function()
  local w = random(3):require_grad()
  local found = tl.gradcheck(function() return tl.sqrt(w - w) end, { w })
  ok(found ~= found or found > 1, found)
end)

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
  for _, layout in ipairs(sorted_keys(nn.layouts)) do -- in one order: each draws from one stream
    local o = { layout = layout, norm = "layernorm" }
    local block = nn.Block(4, nn.GTU(4, { tno = tno }), nn.GLU(4), o)
    check_module(block, random(2, 5, 4), 4e-2)
  end
end)

test("finds a wrong gradient", function()
  local x = random(2, 3):require_grad()
  local function wrong() return core.silu(x) + core.no_grad(core.square, x) end
  raises(check_gradients, "by differences", wrong, { { name = "x", tensor = x } }, 2e-2)
  for factor, want in pairs { [5e-3] = "gradient 0, by differences", [0] = "told from 0" } do
    local function zero() return core.affine(x, 0, 0) + core.no_grad(core.affine, x, factor, 0) end
    raises(check_gradients, want, zero, { { name = "x", tensor = x } }, 2e-2)
  end
  local function all() return x * 1.0 end
  raises(check_gradients, "told from 0", all, { { name = "k.bias", tensor = x } }, 2e-2)
end)

test("gradcheck distinguishes right gradients from wrong ones", function()
  tl.seed(4)
  local x, layer = random(2, 7, 3), nn.TNO(3, { rpe = { hidden = 4, layers = 1, act = "silu" } })
  local worst, rows = tl.gradcheck(function() return layer(x) end, layer:parameters())
  ok(worst < 1e-2 and #rows == #layer:parameters() and rows[1].checked > 0)
  ok(not x:requires_grad() and tl.gradcheck(function() return layer(x) end, { x }) < 1e-2)
  ok(not x:requires_grad() and x:grad() == nil)
  local before, kept = x:totable(), x:clone():fill(1)
  x:require_grad():set_grad(kept)
  ok(tl.gradcheck(function() return x * x:clone() end, { x }) > 0.2) -- clone passes none on
  raises(tl.gradcheck, "not recorded", function() return x:clone() end, { x })
  local calls = 0
  raises(tl.gradcheck, "the third call", function()
    calls = calls + 1
    return calls < 3 and x * 2.0 or error "the third call"
  end, { x })
  t.eq(x:grad(), kept)
  t.eq(x:totable(), before)
  raises(tl.gradcheck, "list of tensors", function() end, {})
  raises(tl.gradcheck, "entry 2 is not a float32 tensor", function() end, { x, core.ids { 1 } })
  raises(tl.gradcheck, "entry 1 is not a float32 tensor", function() end, { io.stdout })
  raises(tl.gradcheck, "did you mean 'most'", function() end, { x }, { mots = 1 })
end)

t.done()
