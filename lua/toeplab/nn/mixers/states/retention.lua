-- nn/mixers/states/retention.lua: defines Retention, the token mixer of RetNet.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local carry = require "toeplab.nn.mixers.carry"
local class = require("toeplab.nn.class").class
local Linear = require("toeplab.nn.linear").Linear
local norms = require "toeplab.nn.norm"
local options = require "toeplab.base.options"
local position = require "toeplab.nn.position"
local steps = require "toeplab.nn.mixers.states.steps"

-- q = rotary(x Wq) / sqrt(w),  k = rotary(x Wk),  v = x Wv, and per head h = 0, 1, ...
-- S_t = (1 - 2^(-5-h)) S_(t-1) + k_t v_t^T,  s_t = S_t^T q_t;
-- y = (layernorm(s) * silu(x Wg)) Wo
-- (Sun et al. 2023, Retentive network: a successor to Transformer for large language models).
--   x, y, q, k [b,n,dim]   v, s [b,n,expand dim]   w = dim/heads
-- The norm is over the channels of a head, without weights.
local Retention = class("Retention", {
  dim = options.field { type = "int", min = 1 },
  causal = steps.causal "Retention",
  heads = options.field { default = 4, min = 1 },
  expand = options.field { default = 2, min = 1, help = "width of values over dim" },
}, { "dim" })

function Retention:build(o)
  if o.dim % (2 * o.heads) ~= 0 then
    error(("Retention: dim = %d must be a multiple of twice the heads, %d"):format(o.dim,
      2 * o.heads), 0)
  end
  local width = o.expand * o.dim
  self.q = Linear(o.dim, o.dim, { bias = false })
  self.k = Linear(o.dim, o.dim, { bias = false })
  self.v = Linear(o.dim, width, { bias = false })
  self.gate = Linear(o.dim, width, { bias = false })
  self.norm = norms.LayerNorm(width // o.heads, { affine = false })
  self.o = Linear(width, o.dim, { bias = false })
  self.rotate = position.rotary(o.dim // o.heads)
  local decays = {}
  for h = 1, o.heads do decays[h] = math.log(1 - 2.0 ^ (-4 - h)) end
  self.decays = cache.recent(function(n)
    return core.tensor(decays):reshape(1, 1, o.heads, 1) * core.ones(1, n, 1, 1)
  end)
end

function Retention:forward(x)
  local o, b, n = self.opt, x:dim(1), x:dim(2)
  local before = carry.advance(self.carry, n)
  local function turned(map)
    local t = steps.split(map(x), o.heads):permute { 1, 3, 2, 4 }
    return self.rotate(t, before):permute { 1, 3, 2, 4 }
  end
  local q = core.affine(turned(self.q), 1 / math.sqrt(o.dim / o.heads), 0)
  local g = self.decays(n) * core.ones(b, 1, 1, 1)
  local s = carry.linear_recurrence(self.carry, q, turned(self.k), steps.split(self.v(x), o.heads),
    g)
  return self.o(core.gate("silu", self.gate(x), steps.join(self.norm(s))))
end

Retention.carries, Retention.grows = true, true

function Retention:own_cost(n)
  return steps.cost(n, self.opt.expand * self.opt.dim ^ 2 / self.opt.heads, 5)
end

return { Retention = Retention }
