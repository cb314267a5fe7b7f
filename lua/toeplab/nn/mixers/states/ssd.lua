-- nn/mixers/states/ssd.lua: defines SSD, the state space of Mamba-2, with one decay per head.

local core = require "toeplab.core"
local carry = require "toeplab.nn.mixers.carry"
local class = require("toeplab.nn.class").class
local Conv = require("toeplab.nn.mixers.conv").Conv
local initial = require "toeplab.nn.initial"
local Linear = require("toeplab.nn.linear").Linear
local norms = require "toeplab.nn.norm"
local options = require "toeplab.base.options"
local steps = require "toeplab.nn.mixers.states.steps"

-- [z, u, r] = x Wi,  [x', B, C] = silu(conv(u)),  delta = softplus(r + br), and per head
-- S_t = exp(-exp(a_log) delta_t) S_(t-1) + B_t (delta_t x'_t)^T,  s_t = S_t^T C_t + D x'_t;
-- y = rmsnorm(s * silu(z)) Wo
-- (Dao and Gu 2024, Transformers are SSMs: generalized models and efficient algorithms through
-- structured state space duality, Sec. 7.1).
--   x, y [b,n,dim]   z, x' [b,n,w], w = expand dim   B, C [b,n,state], the same for all heads
--   r [b,n,heads]   a_log [heads] = log U(1,16)   skip (D) [heads] = 1
-- A head has head_dim channels, or all if there are fewer. The recurrence is
-- core.linear_recurrence: n w state steps, and it keeps n w state/64 numbers for the gradient.
local SSD = class("SSD", {
  dim = options.field { type = "int", min = 1 },
  causal = steps.causal "SSD",
  head_dim = options.field { default = 64, min = 1, help = "channels of a head" },
  state = options.field { default = 128, min = 1,
    help = "size of the state of a channel of a head" },
  taps = options.field { default = 4, min = 1 },
  expand = options.field { default = 2, min = 1 },
}, { "dim" })

function SSD:build(o)
  local width = o.expand * o.dim
  local heads = steps.heads("SSD", width, o.head_dim)
  self.heads = heads
  self.input = Linear(o.dim, 2 * width + 2 * o.state + heads, { bias = false })
  self.conv = Conv(width + 2 * o.state, { taps = o.taps })
  self.conv_bias = steps.conv_bias(width + 2 * o.state, o.taps)
  self.step_bias = steps.bias(heads)
  self.a_log = steps.decay_log(heads)
  self.skip = initial.parameter(core.ones(heads))
  self.norm = norms.norm("rmsnorm", width)
  self.o = Linear(width, o.dim, { bias = false })
end

-- Repeats t [b,n,state] for each head.
local function for_heads(t, heads)
  return t:reshape(t:dim(1), t:dim(2), 1, t:dim(3)) * core.ones(1, 1, heads, 1)
end

function SSD:forward(x)
  local o, heads, all = self.opt, self.heads, self.input(x)
  local width, state = o.expand * o.dim, o.state
  local b, n = x:dim(1), x:dim(2)
  local mixed = steps.short_conv(self, all:narrow(3, width + 1, width + 2 * state))
  local u = steps.split(mixed:narrow(3, 1, width), heads)
  local delta = core.softplus(all:narrow(3, 2 * width + 2 * state + 1, heads) + self.step_bias)
  local g = (delta * -core.exp(self.a_log)):reshape(b, n, heads, 1)
  local y = carry.linear_recurrence(self.carry,
    for_heads(mixed:narrow(3, width + state + 1, state), heads),
    for_heads(mixed:narrow(3, width + 1, state), heads), u * delta:reshape(b, n, heads, 1), g)
  y = steps.join(y + u * self.skip:reshape(1, 1, heads, 1))
  return self.o(self.norm(core.gate("silu", all:narrow(3, 1, width), y)))
end

SSD.carries = true

function SSD:own_cost(n)
  local o = self.opt
  local flop, numbers = steps.cost(n, o.expand * o.dim * o.state, 5) -- decay S, B x, +, C S, +
  return flop, numbers + 2.0 * n * self.heads * o.state -- B and C, repeated for each head
end

return { SSD = SSD }
