-- nn/encoders/rpe.lua: defines RPE, the relative position encoder: a small network that maps a lag,
-- or another point of a backend, to coefficients.

local core = require "toeplab.core"
local class_of = require "toeplab.nn.class"
local class = class_of.class
local act = require "toeplab.nn.act"
local container = require "toeplab.nn.container"
local Linear = require("toeplab.nn.linear").Linear
local norms = require "toeplab.nn.norm"
local options = require "toeplab.base.options"
local rows = require "toeplab.nn.encoders.rows"
local shapes = require "toeplab.nn.shapes"
local sorted_keys = require "toeplab.base.sorted_keys"

-- The input features [p, features] of the network for points [p] at length n, by name: the three
-- types of the published code, sines and cosines, and the cosine of a frequency.
local inputs = {}
local domains = { normalised = { lag = true }, exp = { lag = true }, cos = { frequency = true } }

-- The point itself: the lag, the warped lag or the frequency.
function inputs.integer(points)
  return points:reshape(-1, 1)
end

-- k / (n-1), and 0 for n = 1.
function inputs.normalised(points, n)
  return core.affine(points, 1 / math.max(n - 1, 1), 0):reshape(-1, 1)
end

-- exp(k / (n-1)) for causal operators only, because no form for negative lags is defined.
function inputs.exp(points, n)
  if rows.span(points) < 0 then
    error("RPE: input 'exp' is defined for lags 0 and more only: make the TNO causal", 0)
  end
  return core.exp(inputs.normalised(points, n))
end

local function frequencies(count)
  local f = {}
  for i = 1, count do f[i] = 10000 ^ (-(i - 1) / count) end
  return core.tensor(f):reshape(1, -1)
end

-- [sin(k f_0), .. sin(k f_m-1), cos(k f_0), ..] with f_i = 10000^(-i/m), which frequencies(m)
-- returns.
function inputs.sincos(points, _, f)
  local angle = points:reshape(-1, 1) * f
  return core.concat({ core.sin(angle), core.cos(angle) }, 2)
end

-- cos(omega) makes the response even and smooth at 0 and pi, where omega itself leaves a kink.
function inputs.cos(points)
  return core.cos(points):reshape(-1, 1)
end

-- Returns the features of points by input, a name or a function of (points, n), and checks a
-- function's. count: the number of features; nil to find it.
local function features(input, points, n, f, count)
  if type(input) == "string" then return inputs[input](points, n, f) end
  local x = input(points, n)
  local p = points:dim(1)
  if not (class_of.istensor(x) and x:ndim() == 2 and x:dim(1) == p
    and x:dim(2) == (count or x:dim(2))) then
    error(("RPE: function input returned %s for %d points, not [%d,%s]"):format(tostring(x), p,
      p, count or "features"), 0)
  end
  return x
end

-- y = Linear(act(norm(x))).
local NormActLinear = class("NormActLinear", {
  inputs = "int", outputs = "int",
  norm = norms.norm_option "simplermsnorm", act = act.act_option "relu", bias = true,
  init = options.field { type = "function|string", default = "torch" },
}, { "inputs", "outputs" })

function NormActLinear:build(o)
  self.norm = norms.norm(o.norm, o.inputs)
  self.linear = Linear(o.inputs, o.outputs, { init = o.init, bias = o.bias })
end

function NormActLinear:forward(x)
  return self.linear(act.act[self.opt.act](self.norm(x)))
end

-- The norms of core.mlp, which computes all layers in one operator, by our names.
local fused = { simplermsnorm = "simple", rmsnorm = "rms", layernorm = "layer", none = "none" }

-- A product computes its columns in groups of this size, and the remaining columns at its end in
-- another way, with other last bits.
local GROUP = 16

-- Returns ranges {first, count} of whole groups that hold the columns of part, and the places of
-- these among all columns of the ranges: the first of each block.
local function groups_of(part, dim)
  local ranges, places, before, until_ = {}, {}, 0, 0
  for k = 0, dim // part.of - 1 do
    local first = k * part.of + part.first - 1
    local low = math.max(first // GROUP * GROUP, until_) -- a group is taken once
    local high = math.min(-(-(first + part.count) // GROUP) * GROUP, dim)
    places[k + 1] = before + first - low + 1
    if high > low then ranges[#ranges + 1] = { low + 1, high - low } end
    before, until_ = before + math.max(high - low, 0), math.max(until_, high)
  end
  return ranges, places
end

local function join(t, axis, ranges)
  local list = {}
  for i, range in ipairs(ranges) do list[i] = t:narrow(axis, range[1], range[2]) end
  return #list > 1 and core.concat(list, axis) or list[1]
end

-- Returns the bias of a linear map, which core.mlp requires.
local function bias_of(linear)
  return linear.bias or core.zeros(linear.opt.outputs)
end

-- Returns a NormActLinear as a layer of core.mlp; with ranges, for these of its outputs.
local function operands(self, ranges)
  local name, norm, linear = self.opt.norm, self.norm, self.linear
  local bias = bias_of(linear)
  return {
    weight = ranges and join(linear.weight, 1, ranges) or linear.weight,
    bias = ranges and join(bias, 1, ranges) or bias, norm = fused[name],
    eps = name ~= "none" and norm.opt.eps or 0, norm_weight = norm.weight, norm_bias = norm.bias,
  }
end

-- coef = RPE(points, n) (TNN, Sec. 3.2).   points [p]   coef [p,dim]
-- RPE(points, n, domain, scale) also multiplies row k by scale[k], scale [p], in the same operator;
-- RPE(points, n, domain, scale, part) computes some of the channels only (shapes.part).
--   x = Linear(input(points)); layers times x <- Linear(act(norm(x))), or x + that if residual;
--   coef = Linear(act(output_norm(x)))
-- SKI's Proposition 1, that RPE with act "relu" is piecewise linear in the point, holds for norm
-- "none" only.
local RPE = class("RPE", {
  { "dim", options.field { type = "int", min = 1 }, "numbers per point" },
  { "hidden", options.field { default = 64, min = 1 }, "width inside" },
  { "layers", options.field { default = 6, min = 0 },
    "hidden layers, besides the input and output maps" },
  { "act", act.act_option "relu", "activation" },
  { "norm", norms.norm_option "simplermsnorm", "norm before each activation" },
  { "output_norm", options.field { type = "string", optional = true,
    choices = norms.norm_option("none").choices }, "norm before the last activation (as norm)" },
  { "input", options.field { type = "function|string", default = "integer",
    choices = sorted_keys(inputs) },
    "features of a point for the network: a name or a function (points, n)" },
  { "frequencies", options.field { default = 10, min = 1 }, "number of frequencies of sincos" },
  { "bias", true, "the linear maps have biases" },
  { "residual", false, "add the input of each hidden layer to its output" },
  { "init", options.field { type = "function|string", default = "torch" },
    "initialiser of the linear maps" },
}, { "dim" }, "points [p] -> [p,dim]: a network of the position, with norms")

RPE.domains = { lag = true, warp = true, frequency = true }
RPE.scales = true -- forward takes the argument scale

function RPE:build(o)
  local rest = { norm = o.norm, act = o.act, init = o.init, bias = o.bias }
  self.fixed = { frequencies = o.input == "sincos" and frequencies(o.frequencies) or nil }
  -- counts the features with two points
  local count = core.no_grad(features, o.input, core.tensor { 0, 1 }, 2, self.fixed.frequencies)
    :dim(2)
  self.input = Linear(count, o.hidden, { init = o.init, bias = o.bias })
  self.layers = container.ModuleList()
  for _ = 1, o.layers do self.layers:append(NormActLinear(o.hidden, o.hidden, rest)) end
  self.output = NormActLinear(o.hidden, o.dim, {
    norm = o.output_norm or o.norm, act = o.act, init = o.init, bias = o.bias,
  })
  self.domains = domains[o.input] or RPE.domains
  self.by_point = o.input == "integer" or o.input == "sincos"
end

-- Applies the layers one by one, for norms that core.mlp lacks.
local function composed(self, x, scale, part)
  x = self.input(x)
  for _, layer in self.layers:each() do
    local y = layer(x)
    x = self.opt.residual and x + y or y
  end
  local y = shapes.part(self.output(x), 2, part)
  return scale and y * scale:reshape(-1, 1) or y
end

function RPE:forward(points, n, _, scale, part)
  local o = self.opt
  local x = features(o.input, points, n, self.fixed.frequencies, self.input.weight:dim(2))
  if not (fused[o.norm] and fused[o.output_norm or o.norm]) then
    return core.precision("float32", composed, self, x, scale, part)
  end
  local layers = { { weight = self.input.weight, bias = bias_of(self.input) } }
  for i, layer in self.layers:each() do layers[i + 1] = operands(layer) end
  local ranges, places
  if part then ranges, places = groups_of(part, o.dim) end
  layers[#layers + 1] = operands(self.output, ranges)
  local y = core.mlp(x, layers, o.act == "none" and "identity" or o.act, o.residual, scale)
  if not part then return y end
  for i, first in ipairs(places) do places[i] = { first, part.count } end
  return join(y, 2, places)
end

return { RPE = RPE }
