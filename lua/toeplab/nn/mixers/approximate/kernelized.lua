-- nn/mixers/approximate/kernelized.lua: defines Kernelized, attention with a Gaussian kernel, which
-- Skyformer approximates.

local core = require "toeplab.core"
local algebra = require "toeplab.nn.mixers.approximate.algebra"
local cost = require "toeplab.nn.cost"
local frame = require "toeplab.nn.mixers.approximate.frame"
local Dropout = require("toeplab.nn.dropout").Dropout
local options = require "toeplab.base.options"

-- o_i = sum over tokens j of exp(-|q_i - k_j|^2 / 2) v_j,  q and k scaled by p^(-1/4) (Chen et al.
-- 2021, Sec. 4.1). The weights of a row are not normalised, so o grows with n. The q of padding is
-- 0. Costs n^2. dropout acts on the weights.
local Kernelized = frame.class("Kernelized", {
  dropout = options.field { default = 0.0, min = 0, max = 0.999 },
})

function Kernelized:prepare(o)
  if o.dropout > 0 then self.drop = Dropout(o.dropout) end
end

function Kernelized:mix(q, k, v, mask)
  local scale = self.width ^ -0.25
  q = frame.tokens(core.affine(q, scale, 0), mask)
  local weights = algebra.gaussian(q, core.affine(k, scale, 0))
  if self.drop then weights = self.drop(weights) end
  return core.matmul(weights, frame.tokens(v, mask))
end

function Kernelized:own_cost(n)
  local h, all = self.opt.heads, self.opt.heads * self.width
  return cost.attention(n, n, all, all, h)
end

return { Kernelized = Kernelized }
