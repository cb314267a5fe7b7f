-- nn/mixers/states/delta_net.lua: defines DeltaNet, whose states are updated by a delta rule, and
-- GatedDeltaNet, whose states also decay.

local core = require "toeplab.core"
local carry = require "toeplab.nn.mixers.carry"
local class = require("toeplab.nn.class").class
local Conv = require("toeplab.nn.mixers.conv").Conv
local delta_rule = require "toeplab.nn.mixers.states.delta_rule"
local Linear = require("toeplab.nn.linear").Linear
local norms = require "toeplab.nn.norm"
local options = require "toeplab.base.options"
local overlay = require "toeplab.base.overlay"
local steps = require "toeplab.nn.mixers.states.steps"

local function spec(kind, more)
  return overlay({
    dim = options.field { type = "int", min = 1 },
    causal = steps.causal(kind),
    heads = options.field { default = 4, min = 1 },
    taps = options.field { default = 4, min = 1, help = "taps of the convolutions of q, k and v" },
    beta_max = options.field { default = 1.0, min = 0, max = 2,
      help = "largest beta; with 2 a state can change its sign, as parity needs" },
  }, more)
end

-- Makes the common part of both mixers; width: of the values of all heads.
local function prepare(self, o, width)
  if o.dim % o.heads ~= 0 then
    error(("%s: %d channels do not divide into %d heads"):format(self.kind, o.dim, o.heads), 0)
  end
  local widths = { q = o.dim, k = o.dim, v = width }
  for _, name in ipairs { "q", "k", "v" } do -- in this order, for equal seeds
    self[name] = Linear(o.dim, widths[name], { bias = false })
    self[name .. "_conv"] = Conv(widths[name], { taps = o.taps })
  end
  self.beta = Linear(o.dim, o.heads, { bias = false })
  self.norm = norms.norm("rmsnorm", width // o.heads)
  self.o = Linear(width, o.dim, { bias = false })
  self.of_size = delta_rule.cache()
end

-- Returns x [..,w] divided by its length.
local function unit(x)
  return x / core.sqrt(core.affine((x * x):sum(-1, true), 1, 1e-6))
end

-- Returns the normed states [b,n,width] that the mixer self reads; g: logarithms of decays or nil.
local function read(self, x, g)
  local o = self.opt
  local function mixed(name)
    return steps.split(core.silu(self[name .. "_conv"](self[name](x))), o.heads)
  end
  local q = core.affine(unit(mixed "q"), 1 / math.sqrt(o.dim / o.heads), 0)
  local beta = steps.split(core.affine(core.sigmoid(self.beta(x)), o.beta_max, 0), o.heads)
  local k, v, carried = unit(mixed "k"), mixed "v", self.carry
  local before = carried and carry.state_of(carried, "state",
    { x:dim(1), o.heads, k:dim(4), v:dim(4) })
  local y, state = delta_rule.apply(self.of_size, q, k, v, beta, g, before)
  if carried then carried.state = state end
  return steps.join(self.norm(y))
end

-- q = l2(silu(conv(x Wq))) / sqrt(w),  k = l2(silu(conv(x Wk))),  v = silu(conv(x Wv)),
-- beta = beta_max sigmoid(x Wb), and per head S_t = S_(t-1) + beta_t k_t (v_t - S_(t-1)^T k_t)^T,
-- s_t = S_t^T q_t;  y = rmsnorm(s) Wo, where the norm is over the channels of a head
-- (Yang et al. 2024, Parallelizing linear transformers with the delta rule over sequence length;
-- beta_max = 2: Grazzi et al. 2025, Unlocking state-tracking in linear RNNs).
--   x, y, q, k, v [b,n,dim]   beta [b,n,heads]   w = dim/heads; l2 divides by the length
local DeltaNet = class("DeltaNet", spec "DeltaNet", { "dim" })

function DeltaNet:build(o) prepare(self, o, o.dim) end

function DeltaNet:forward(x) return self.o(read(self, x)) end

function DeltaNet:own_cost(n)
  local w = self.opt.dim / self.opt.heads
  return delta_rule.cost(n, self.opt.heads, w, w)
end

-- The same with S_(t-1) times a_t = exp(-exp(a_log) softplus(x Wa + ba)), a number per head, values
-- of expand w channels, and a gate: y = (rmsnorm(s) * silu(x Wg)) Wo
-- (Yang, Kautz and Hatamizadeh 2025, Gated delta networks, Sec. 3).
--   v, s, x Wg [b,n,expand dim]   a [b,n,heads]   a_log [heads] = log U(1,16)
local GatedDeltaNet = class("GatedDeltaNet", spec("GatedDeltaNet", {
  expand = options.field { default = 2, min = 1, help = "width of values over keys" },
}), { "dim" })

function GatedDeltaNet:build(o)
  prepare(self, o, o.expand * o.dim)
  self.gate = Linear(o.dim, o.expand * o.dim, { bias = false })
  self.decay = Linear(o.dim, o.heads, { bias = false })
  self.step_bias = steps.bias(o.heads)
  self.a_log = steps.decay_log(o.heads)
end

function GatedDeltaNet:forward(x)
  local delta = core.softplus(self.decay(x) + self.step_bias)
  local g = steps.split(delta * -core.exp(self.a_log), self.opt.heads)
  return self.o(core.gate("silu", self.gate(x), read(self, x, g)))
end

function GatedDeltaNet:own_cost(n)
  local w = self.opt.dim / self.opt.heads
  return delta_rule.cost(n, self.opt.heads, w, self.opt.expand * w)
end

DeltaNet.carries, GatedDeltaNet.carries = true, true

return { DeltaNet = DeltaNet, GatedDeltaNet = GatedDeltaNet }
