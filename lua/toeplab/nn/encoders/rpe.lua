-- nn/encoders/rpe.lua: RPE, the relative position encoder: a small network from a lag, or another
-- point that a backend names, to coefficients.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local act = require "toeplab.nn.act"
local container = require "toeplab.nn.container"
local Linear = require("toeplab.nn.linear").Linear
local norms = require "toeplab.nn.norm"
local options = require "toeplab.base.options"
local rows = require "toeplab.nn.encoders.rows"
local suggest = require "toeplab.base.suggest"

-- What the network is given for points [p] at length n: [p, features]. The three types of the
-- published code, sin/cos, and the cosine of a frequency.
local inputs = {}
local domains = { normalised = { lag = true }, exp = { lag = true }, cos = { frequency = true } }

-- The lag k itself; so for a warped lag or a frequency.
function inputs.integer(points)
  return points:reshape(-1, 1)
end

-- k / (n-1), and 0 for n = 1.
function inputs.normalised(points, n)
  return core.affine(points, 1 / math.max(n - 1, 1), 0):reshape(-1, 1)
end

-- exp(k / (n-1)); causal only, because no form for negative lags is defined.
function inputs.exp(points, n)
  if rows.span(points) < 0 then
    error("RPE: input 'exp' is defined for lags 0 and more only: make the TNO causal", 0)
  end
  return core.exp(inputs.normalised(points, n))
end

local function waves(frequencies)
  local f = {}
  for i = 1, frequencies do f[i] = 10000 ^ (-(i - 1) / frequencies) end
  return core.tensor(f):reshape(1, -1)
end

-- [sin(k f_0), .. sin(k f_m-1), cos(k f_0), ..],  f_i = 10000^(-2i/2m), m = frequencies: waves(m).
function inputs.sincos(points, _, f)
  local angle = points:reshape(-1, 1) * f
  return core.concat({ core.sin(angle), core.cos(angle) }, 2)
end

-- cos(omega): the response is then even and smooth at 0 and pi, where omega itself leaves a kink.
function inputs.cos(points)
  return core.cos(points):reshape(-1, 1)
end

-- y = Linear(act(norm(x))).
local NormActLinear = class("NormActLinear", {
  inputs = "int", outputs = "int",
  norm = norms.norm_option "simplermsnorm", act = act.act_option "relu",
  init = options.field { type = "function|string", default = "torch" },
}, { "inputs", "outputs" })

function NormActLinear:build(o)
  self.norm = norms.norm(o.norm, o.inputs)
  self.linear = Linear(o.inputs, o.outputs, { init = o.init })
end

function NormActLinear:forward(x)
  return self.linear(act.act[self.opt.act](self.norm(x)))
end

-- Norms that core.mlp has.
local fused = { simplermsnorm = "simple", rmsnorm = "rms", layernorm = "layer", none = "none" }

-- As a layer of core.mlp.
local function operands(self)
  local name, norm = self.opt.norm, self.norm
  return {
    weight = self.linear.weight, bias = self.linear.bias, norm = fused[name],
    eps = name ~= "none" and norm.opt.eps or 0, norm_weight = norm.weight, norm_bias = norm.bias,
  }
end

-- coef = RPE(points, n) (TNN, Sec. 3.2).   points [p]   coef [p,dim]
-- RPE(points, n, domain, scale) multiplies row k by scale [p], which costs nothing.
--   x = Linear(input(points)); layers times x <- Linear(act(norm(x))), or x + that if residual;
--   coef = Linear(act(output_norm(x)))
-- SKI's Proposition 1, that it is piecewise linear in the point with act relu, needs norm "none".
local RPE = class("RPE", {
  { "dim", options.field { type = "int", min = 1 }, "numbers per point" },
  { "hidden", options.field { default = 64, min = 1 }, "width inside" },
  { "layers", options.field { default = 6, min = 0 },
    "hidden layers, besides the input and output maps" },
  { "act", act.act_option "relu", "activation" },
  { "norm", norms.norm_option "simplermsnorm", "norm before each activation" },
  { "output_norm", options.field { type = "string", optional = true,
    choices = norms.norm_option("none").choices }, "that before the last one (norm)" },
  { "input", options.field { default = "integer", choices = suggest.keys(inputs) },
    "what a point becomes" },
  { "frequencies", options.field { default = 10, min = 1 }, "of input sincos" },
  { "residual", false, "add the input of each hidden layer to its output" },
  { "init", options.field { type = "function|string", default = "torch" }, "of the linear maps" },
}, { "dim" })

RPE.domains = { lag = true, warp = true, frequency = true }
RPE.scales = true -- takes scale

function RPE:build(o)
  local rest = { norm = o.norm, act = o.act, init = o.init }
  self.input = Linear(o.input == "sincos" and 2 * o.frequencies or 1, o.hidden, { init = o.init })
  self.layers = container.ModuleList()
  for _ = 1, o.layers do self.layers:append(NormActLinear(o.hidden, o.hidden, rest)) end
  self.output = NormActLinear(o.hidden, o.dim, {
    norm = o.output_norm or o.norm, act = o.act, init = o.init,
  })
  self.fixed = { waves = o.input == "sincos" and waves(o.frequencies) or nil }
  self.domains = domains[o.input] or RPE.domains
end

-- One operator after another, for norms that core.mlp lacks; in float32, as that is.
local function composed(self, x, scale)
  x = self.input(x)
  for _, layer in self.layers:each() do
    local y = layer(x)
    x = self.opt.residual and x + y or y
  end
  local y = self.output(x)
  return scale and y * scale:reshape(-1, 1) or y
end

function RPE:forward(points, n, _, scale)
  local o = self.opt
  local x = inputs[o.input](points, n, self.fixed.waves)
  if not (fused[o.norm] and fused[o.output_norm or o.norm]) then
    return core.precision("float32", composed, self, x, scale)
  end
  local layers = { { weight = self.input.weight, bias = self.input.bias } }
  for i, layer in self.layers:each() do layers[i + 1] = operands(layer) end
  layers[#layers + 1] = operands(self.output)
  return core.mlp(x, layers, o.act == "none" and "identity" or o.act, o.residual, scale)
end

return { RPE = RPE }
