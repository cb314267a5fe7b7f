-- nn/mixers/states/mamba.lua: defines Mamba, a state space whose step and vectors depend on the
-- input.

local core = require "toeplab.core"
local carry = require "toeplab.nn.mixers.carry"
local class = require("toeplab.nn.class").class
local Conv = require("toeplab.nn.mixers.conv").Conv
local initial = require "toeplab.nn.initial"
local Linear = require("toeplab.nn.linear").Linear
local options = require "toeplab.base.options"
local steps = require "toeplab.nn.mixers.states.steps"

-- [u, z] = x Wi,  u' = silu(conv(u)),  [r, B, C] = u' Wx,  delta = softplus(r Wd + bd),
-- y = (scan(u', delta, A, B, C, D) * silu(z)) Wo,  A = -exp(a_log)
-- (Gu and Dao 2023, Mamba: linear-time sequence modeling with selective state spaces, Alg. 2).
--   x, y [b,n,dim]   u, z [b,n,w], w = expand dim   r [b,n,dt_rank]   B, C [b,n,state]
--   a_log [w,state] = log(1..state)   skip (D) [w] = 1
-- The scan is core.selective_scan: n w state steps, and it keeps n w state/64 numbers for the
-- gradient.
local Mamba = class("Mamba", {
  dim = options.field { type = "int", min = 1 },
  causal = steps.causal "Mamba",
  state = options.field { default = 16, min = 1, help = "size of the state of a channel" },
  taps = options.field { default = 4, min = 1 },
  expand = options.field { default = 2, min = 1 },
  dt_rank = options.field { type = "int", min = 1, optional = true,
    help = "rank of the map to the steps (default: dim / 16, rounded up)" },
}, { "dim" })

local function initial_a(width, state)
  return core.no_grad(function()
    return core.zeros(width, state) + core.log(core.range(1, state)):reshape(1, state)
  end)
end

function Mamba:build(o)
  local width, rank = o.expand * o.dim, o.dt_rank or (o.dim + 15) // 16
  self.rank = rank
  self.input = Linear(o.dim, 2 * width, { bias = false })
  self.conv = Conv(width, { taps = o.taps })
  self.conv_bias = steps.conv_bias(width, o.taps)
  self.choice = Linear(width, rank + 2 * o.state, { bias = false })
  self.step = Linear(rank, width, { bias = false })
  self.step_bias = steps.bias(width)
  self.a_log = initial.parameter(initial_a(width, o.state))
  self.skip = initial.parameter(core.ones(width))
  self.o = Linear(width, o.dim, { bias = false })
end

function Mamba:forward(x)
  local o, rank = self.opt, self.rank
  local width, both = o.expand * o.dim, self.input(x)
  local u = steps.short_conv(self, both:narrow(3, 1, width))
  local chosen = self.choice(u)
  local delta = core.softplus(self.step(chosen:narrow(3, 1, rank)) + self.step_bias)
  local y = carry.selective_scan(self.carry, u, delta, -core.exp(self.a_log),
    chosen:narrow(3, rank + 1, o.state), chosen:narrow(3, rank + o.state + 1, o.state), self.skip)
  return self.o(core.gate("silu", both:narrow(3, width + 1, width), y))
end

Mamba.carries = true

function Mamba:own_cost(n)
  local o = self.opt
  return steps.cost(n, o.expand * o.dim * o.state, 6) -- delta A, decay S, B x, +, C S, +
end

return { Mamba = Mamba }
