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

-- Compares the gradients of a module in its parameters and in x with finite differences.
local function check_module(module, x, tol)
  local tensors = slopes.trained(module)
  tensors[#tensors + 1] = { name = "x", tensor = x:require_grad() }
  slopes.check(function() return slopes.probe(module(x)) end, tensors, tol or 3e-2)
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

test("final_act of a GLU", function()
  tl.seed(3)
  for _, dropout in ipairs { 0, 0.5 } do
    local glu = nn.GLU(3, { hidden = 4, final_act = "tanh", dropout = dropout }):eval()
    local x = random(2, 5, 3)
    close(glu(x), core.tanh(glu.l3(core.silu(glu.l1(x)) * glu.l2(x))))
    check_module(glu, x)
  end
  raises(nn.GLU, "final_act", 3, { final_act = "thanh" })
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
  o.channel, o.structure = nil, "mha+glu"
  raises(tl.models.tnn_lm, "bias = false is not defined for the attention of structure 'mha%+glu'",
    o)
end)

t.done()
