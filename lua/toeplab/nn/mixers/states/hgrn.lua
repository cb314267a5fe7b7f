-- nn/mixers/states/hgrn.lua: defines HGRN, an elementwise gated recurrence of complex numbers.

local cache = require "toeplab.nn.cache"
local core = require "toeplab.core"
local carry = require "toeplab.nn.mixers.carry"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local Linear = require("toeplab.nn.linear").Linear
local norms = require "toeplab.nn.norm"
local options = require "toeplab.base.options"
local steps = require "toeplab.nn.mixers.states.steps"

-- f = lower + (1 - lower) sigmoid(x Wf + bf),  c = silu(x Wre + bre) + i silu(x Wim + bim),
-- h_t = f_t e^(i theta) h_(t-1) + (1 - f_t) c_t,
-- y = norm([Re h, Im h] * sigmoid(x Wg + bg)) Wo + bo
-- (Qin et al. 2023, HGRN: hierarchically gated recurrent neural network, NeurIPS, Sec. 3).
--   x, y [b,n,dim]   f, c, h, theta [..,dim], one number of state per channel   norm: LayerNorm
-- theta starts at 10000^(-2 i / dim). The paper learns the bound `lower` over the layers together,
-- growing with depth; here it is a number per layer, by default 0. Since theta does not depend on
-- the input, h_t e^(-i theta t) follows a recurrence with the real decays f, which
-- core.linear_recurrence computes.
local HGRN = class("HGRN", {
  dim = options.field { type = "int", min = 1 },
  causal = steps.causal "HGRN",
  lower = options.field { default = 0.0, min = 0, max = 0.999, help = "smallest forget gate" },
}, { "dim" })

function HGRN:build(o)
  for _, name in ipairs { "f", "re", "im" } do self[name] = Linear(o.dim, o.dim) end
  self.g = Linear(o.dim, 2 * o.dim)
  local theta = {}
  for i = 1, o.dim do theta[i] = 10000 ^ (-2 * (i - 1) / o.dim) end
  self.theta = initial.parameter(core.tensor(theta))
  self.steps = cache.recent(function(n) return core.range(1, n):reshape(n, 1) end)
  self.norm = norms.norm("layernorm", 2 * o.dim)
  self.o = Linear(2 * o.dim, o.dim)
end

-- Returns (a + i b) e^(i angle), given the angle's cosines and sines, as [.., real and imaginary].
local function turned(a, b, cos, sin)
  return core.concat({ a * cos - b * sin, a * sin + b * cos }, 3)
end

-- Turns the state of a session by the angles whose cosines and sines are given, [1,d].
local function turn_state(carried, d, cos, sin)
  local b = carried.state:dim(1)
  local s = carried.state:reshape(b, 1, 2 * d)
  carried.state = turned(s:narrow(3, 1, d), s:narrow(3, d + 1, d), cos, sin)
    :reshape(b, 2 * d, 1, 1)
end

function HGRN:forward(x)
  local d, b, n, z = self.opt.dim, x:dim(1), x:dim(2), self.f(x)
  local log_f, rest = steps.forget(z, self.opt.lower)
  local angle = self.steps(n) * self.theta
  local cos, sin = core.cos(angle), core.sin(angle)
  local input = turned(rest * core.silu(self.re(x)), rest * core.silu(self.im(x)), cos, -sin)
  local one = core.ones(b, n, 2 * d, 1)
  local h = steps.join(carry.linear_recurrence(self.carry, one, one, steps.split(input, 2 * d),
    steps.split(core.concat({ log_f, log_f }, 3), 2 * d)))
  if self.carry then turn_state(self.carry, d, cos:narrow(1, n, 1), sin:narrow(1, n, 1)) end
  h = turned(h:narrow(3, 1, d), h:narrow(3, d + 1, d), cos, sin)
  return self.o(self.norm(h * core.sigmoid(self.g(x))))
end

HGRN.carries = true

function HGRN:own_cost(n)
  return steps.cost(n, 2 * self.opt.dim, 5) -- f h, c, +, and the turns
end

return { HGRN = HGRN }
