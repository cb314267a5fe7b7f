-- nn/mixers/conv.lua: defines Conv, a depthwise convolution over positions.

local core = require "toeplab.core"
local carry = require "toeplab.nn.mixers.carry"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"

-- y[b,i,c] = sum over k of taps[k,c] x[b,i-(k-origin),c], with origin 0 if causal, else m/2.
--   x, y [b,n,dim]   taps [m,dim] ~ U(-1/sqrt m, 1/sqrt m)
local Conv = class("Conv", {
  dim = options.field { type = "int", min = 1 },
  taps = options.field { default = 4, min = 1 },
  causal = true,
}, { "dim" }, "x [b,n,dim] -> [b,n,dim]: a depthwise convolution of a few taps")

Conv.ignores_zeros = true

function Conv:build(o)
  local bound = 1 / math.sqrt(o.taps)
  self.taps = initial.parameter(initial.init.uniform(core.zeros(o.taps, o.dim), -bound, bound))
end

function Conv:forward(x)
  if self.opt.causal then return carry.convolution(self.carry, x, self.taps) end
  return core.depthwise_conv(x, self.taps, self.opt.taps // 2)
end

Conv.carries = true

function Conv:own_cost(n)
  return 2.0 * n * self.opt.taps * self.opt.dim, 1.0 * n * self.opt.dim
end

return { Conv = Conv }
