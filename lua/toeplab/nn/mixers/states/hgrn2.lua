-- nn/mixers/states/hgrn2.lua: defines HGRN2, a gated linear recurrence whose keys are the forgotten
-- share of its decays.

local core = require "toeplab.core"
local carry = require "toeplab.nn.mixers.carry"
local class = require("toeplab.nn.class").class
local Linear = require("toeplab.nn.linear").Linear
local norms = require "toeplab.nn.norm"
local options = require "toeplab.base.options"
local steps = require "toeplab.nn.mixers.states.steps"

-- f = lower + (1 - lower) sigmoid(x Wf),  q = silu(x Wq),  v = x Wv, and per head
-- S_t = diag(f_t) S_(t-1) + (1 - f_t) v_t^T,  s_t = S_t^T q_t;  y = rmsnorm(s) Wo
-- (Qin et al. 2024, HGRN2: gated linear RNNs with state expansion, COLM, Sec. 3.2).
--   x, y [b,n,dim]   f, q, v [b,n,dim]
-- The paper learns the bound `lower` of the forget gates over the layers together, growing with
-- depth; here it is a number per layer, by default 0. A head has head_dim channels, or all if there
-- are fewer, and head_dim^2 numbers of state. The recurrence is core.linear_recurrence: n dim
-- head_dim steps, of which n dim head_dim/64 numbers are kept.
local HGRN2 = class("HGRN2", {
  dim = options.field { type = "int", min = 1 },
  causal = steps.causal "HGRN2",
  head_dim = options.field { default = 128, min = 1, help = "channels of a head" },
  lower = options.field { default = 0.0, min = 0, max = 0.999, help = "smallest forget gate" },
}, { "dim" })

function HGRN2:build(o)
  self.heads = steps.heads("HGRN2", o.dim, o.head_dim)
  for _, name in ipairs { "f", "q", "v" } do self[name] = Linear(o.dim, o.dim, { bias = false }) end
  self.norm = norms.norm("rmsnorm", o.dim)
  self.o = Linear(o.dim, o.dim, { bias = false })
end

function HGRN2:forward(x)
  local heads = self.heads
  local log_f, key = steps.forget(self.f(x), self.opt.lower)
  local y = carry.linear_recurrence(self.carry, steps.split(core.silu(self.q(x)), heads),
    steps.split(key, heads), steps.split(self.v(x), heads),
    steps.split(log_f, heads))
  return self.o(self.norm(steps.join(y)))
end

HGRN2.carries = true

function HGRN2:own_cost(n)
  return steps.cost(n, self.opt.dim ^ 2 / self.heads, 5) -- f S, k v, +, q S, +
end

return { HGRN2 = HGRN2 }
