-- nn/mixers/states/gla.lua: defines GLA, gated linear attention.

local core = require "toeplab.core"
local carry = require "toeplab.nn.mixers.carry"
local class = require("toeplab.nn.class").class
local Linear = require("toeplab.nn.linear").Linear
local norms = require "toeplab.nn.norm"
local options = require "toeplab.base.options"
local steps = require "toeplab.nn.mixers.states.steps"

-- q = x Wq / sqrt(w),  k = x Wk,  v = x Wv,  a = sigmoid(x W1 W2 + b)^(1/16), and per head
-- S_t = diag(a_t) S_(t-1) + k_t v_t^T,  s_t = S_t^T q_t;  y = (layernorm(s) * silu(x Wr)) Wo
-- (Yang et al. 2024, Gated linear attention transformers with hardware-efficient training,
-- Sec. 4.4).
--   x, y, v [b,n,dim]   q, k, a [b,n,dim/2], w = dim/2/heads   W1 [rank,dim]
-- The norm is over the channels of a head, without weights. Each head's state has dim^2/(2 heads^2)
-- numbers. The recurrence is core.linear_recurrence: n dim^2/(2 heads) steps, of which n dim^2/(128
-- heads) numbers are kept.
local GLA = class("GLA", {
  dim = options.field { type = "int", min = 1 },
  causal = steps.causal "GLA",
  heads = options.field { default = 4, min = 1 },
  rank = options.field { default = 16, min = 1, help = "rank of the map to the gates" },
}, { "dim" })

local TAU = 16 -- the root of the gate, by which decays start near 1

function GLA:build(o)
  if o.dim % (2 * o.heads) ~= 0 then
    error(("GLA: dim = %d must be a multiple of twice the heads, %d"):format(o.dim, 2 * o.heads), 0)
  end
  self.q = Linear(o.dim, o.dim // 2, { bias = false })
  self.k = Linear(o.dim, o.dim // 2, { bias = false })
  self.v = Linear(o.dim, o.dim, { bias = false })
  self.narrow_gate = Linear(o.dim, o.rank, { bias = false })
  self.gate = Linear(o.rank, o.dim // 2)
  self.r = Linear(o.dim, o.dim)
  self.norm = norms.LayerNorm(o.dim // o.heads, { affine = false })
  self.o = Linear(o.dim, o.dim, { bias = false })
end

function GLA:forward(x)
  local heads = self.opt.heads
  local q = core.affine(self.q(x), 1 / math.sqrt(self.opt.dim / 2 / heads), 0)
  local g = core.affine(core.softplus(-self.gate(self.narrow_gate(x))), -1 / TAU, 0)
  local s = carry.linear_recurrence(self.carry, steps.split(q, heads),
    steps.split(self.k(x), heads), steps.split(self.v(x), heads), steps.split(g, heads))
  return self.o(core.gate("silu", self.r(x), steps.join(self.norm(s))))
end

GLA.carries = true

function GLA:own_cost(n)
  return steps.cost(n, self.opt.dim ^ 2 / (2 * self.opt.heads), 5) -- a S, k v, +, q S, +
end

return { GLA = GLA }
