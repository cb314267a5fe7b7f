-- nn/mixers/attention/linear_attention.lua: defines LinearAttention, with the feature map 1 + elu.

local core = require "toeplab.core"
local carry = require "toeplab.nn.mixers.carry"
local class = require("toeplab.nn.class").class
local chunks = require "toeplab.nn.mixers.attention.chunks"
local heads = require "toeplab.nn.mixers.heads"

local LEAST = 1e-6 -- least sum of a row's weights

-- y = Wo A v,  A_ij = phi(q_i) . phi(k_j) with phi = 1 + elu, and each row is divided by its sum,
-- at least 1e-6, per head (Katharopoulos et al. 2020, Eq. 7-9; q and k are not scaled). If causal,
-- j <= i.
--   x, y [b,n,dim]   q, k, v = maps of x with bias
-- Its time grows as n dim (dim/heads), whether causal or not.
local LinearAttention = class("LinearAttention", heads.spec {}, { "dim" })

function LinearAttention:build(o)
  heads.maps(self, o)
  self.sum = chunks.summer(o.causal)
end

-- Returns self.sum, in a session its form that continues from the previous positions: q, k and v
-- are [b,h,n,..] in both.
local function summer(self)
  local carried = self.carry
  if not carried then return self.sum end
  return function(q, k, v)
    local shape = { q:dim(1), q:dim(2), k:dim(4), v:dim(4) }
    local state = carry.state_of(carried, "state", shape)
    carried.state = state + core.matmul(k, v, true)
    return self.sum(q, k, v) + core.matmul(q, state)
  end
end

function LinearAttention:forward(x)
  local count = self.opt.heads
  local q, k = core.elu1(heads.split(self.q(x), count)), core.elu1(heads.split(self.k(x), count))
  local v = heads.split(self.v(x), count)
  return self.o(heads.join(chunks.normalised(summer(self), q, k, v, LEAST)))
end

LinearAttention.carries = true

function LinearAttention:own_cost(n)
  local o, w = self.opt, self.opt.dim // self.opt.heads
  return chunks.cost(o.causal, n, o.heads, w, w + 1)
end

return { LinearAttention = LinearAttention }
