-- nn/mixers/shift.lua: defines Shift, the token shift of TNN's published code.

local core = require "toeplab.core"
local carry = require "toeplab.nn.mixers.carry"
local class = require("toeplab.nn.class").class
local options = require "toeplab.base.options"

-- y_i = (1 - share) x_i + share x_(i-1), where x is 0 before the first position.   x, y [b,n,dim]
-- The published types 1 and 2 have the shares 1 and 0.5.
local Shift = class("Shift", {
  dim = options.field { type = "int", min = 1 },
  share = options.field { default = 0.5, min = 0, max = 1,
    help = "weight of the position before" },
}, { "dim", "share" }, "x [b,n,dim] -> [b,n,dim]: mixes each position with the one before")

Shift.ignores_zeros = true
Shift.carries = true

function Shift:build(o)
  local taps = core.concat({ core.full({ 1, o.dim }, 1 - o.share),
    core.full({ 1, o.dim }, o.share) }, 1)
  self.fixed = { taps = taps }
end

function Shift:forward(x)
  return carry.convolution(self.carry, x, self.fixed.taps)
end

return { Shift = Shift }
