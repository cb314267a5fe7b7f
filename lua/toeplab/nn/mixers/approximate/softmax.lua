-- nn/mixers/approximate/softmax.lua: defines Softmax, the exact attention that the other mixers of
-- this folder approximate, with a padding mask.

local cost = require "toeplab.nn.cost"
local frame = require "toeplab.nn.mixers.approximate.frame"
local Dropout = require("toeplab.nn.dropout").Dropout
local options = require "toeplab.base.options"

-- o = softmax(q k^T / sqrt p) v, where padding has weight 0 (Vaswani et al. 2017). Costs n^2.
-- dropout acts on the weights.
local Softmax = frame.class("Softmax", {
  dropout = options.field { default = 0.0, min = 0, max = 0.999 },
})

function Softmax:prepare(o)
  if o.dropout > 0 then self.drop = Dropout(o.dropout) end
end

function Softmax:mix(q, k, v, mask)
  return frame.attend(q, k, v, self.width ^ -0.5, frame.hide(mask), self.drop)
end

function Softmax:own_cost(n)
  local h, all = self.opt.heads, self.opt.heads * self.width
  return cost.attention(n, n, all, all, h)
end

return { Softmax = Softmax }
