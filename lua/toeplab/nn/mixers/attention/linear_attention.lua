-- nn/mixers/attention/linear_attention.lua: defines LinearAttention, by default with the feature
-- map 1 + elu.

local core = require "toeplab.core"
local carry = require "toeplab.nn.mixers.carry"
local class = require("toeplab.nn.class").class
local chunks = require "toeplab.nn.mixers.attention.chunks"
local heads = require "toeplab.nn.mixers.heads"
local options = require "toeplab.base.options"
local sorted_keys = require "toeplab.base.sorted_keys"

local LEAST = 1e-6 -- least sum of a row's weights

-- Feature maps phi of [b,h,n,w]. Products of their results are at least 0.
local maps = {}
for _, name in ipairs { "elu1", "elu2", "exp", "relu", "sigmoid", "softplus" } do
  maps[name] = core[name]
end

function maps.softmax(x) return core.softmax(x) end

-- phi(q) . phi(k) = 1 + s + s^2/2 with s = q . k / sqrt(w), the beginning of the series of e^s
-- (Arora et al. 2024): 1, x / w^1/4, and the products of two channels of it, by sqrt 2.
function maps.taylor(x)
  local b, h, n, w = x:dim(1), x:dim(2), x:dim(3), x:dim(4)
  x = x * w ^ -0.25
  local squares = x:reshape(b, h, n, w, 1) * (x * 2 ^ -0.5):reshape(b, h, n, 1, w)
  return core.concat({ core.ones(b, h, n, 1), x, squares:reshape(b, h, n, w * w) }, 4)
end

-- y = Wo A v,  A_ij = phi(q_i) . phi(k_j) with phi = 1 + elu, and each row is divided by its sum,
-- at least 1e-6, per head (Katharopoulos et al. 2020, Eq. 7-9; q and k are not scaled). If causal,
-- j <= i. The option feature_map chooses another phi.
--   x, y [b,n,dim]   q, k, v = maps of x with bias
-- Its time grows as n dim (dim/heads), whether causal or not; for taylor as n dim (dim/heads)^2.
local LinearAttention = class("LinearAttention", heads.spec {
  feature_map = options.field { default = "elu1", choices = sorted_keys(maps),
    help = "phi of queries and keys: softmax over the channels of a head; taylor: 1 + s + s^2/2 "
      .. "in place of e^s" },
}, { "dim" })

function LinearAttention:build(o)
  heads.maps(self, o)
  self.map = maps[o.feature_map]
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
  local q, k = self.map(heads.split(self.q(x), count)), self.map(heads.split(self.k(x), count))
  local v = heads.split(self.v(x), count)
  return self.o(heads.join(chunks.normalised(summer(self), q, k, v, LEAST)))
end

LinearAttention.carries = true

function LinearAttention:own_cost(n)
  local o, w = self.opt, self.opt.dim // self.opt.heads
  return chunks.cost(o.causal, n, o.heads, o.feature_map == "taylor" and 1 + w + w * w or w, w + 1)
end

return { LinearAttention = LinearAttention }
