-- nn/encoders/shortconv.lua: defines ShortConv, the encoder of a short convolution.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local rows = require "toeplab.nn.encoders.rows"

-- The coefficients of lags 0..m-1 if causal, else of lags -(m/2)..m-1-m/2, are the rows of taps, as
-- in nn.Conv; all others are 0.   points [p]   coef [p,dim]   taps [m,dim] ~ U(-1/sqrt m, 1/sqrt m)
local ShortConv = class("ShortConv", {
  { "dim", options.field { type = "int", min = 1 }, "numbers per point" },
  { "taps", options.field { default = 4, min = 1, max = 1 << 24 }, "lags with a coefficient" },
  { "causal", true, "lags of 0 and more only" },
}, { "dim" }, "points [p] -> [p,dim]: a number for each of a few lags")

ShortConv.domains, ShortConv.by_point = { lag = true }, true

function ShortConv:build(o)
  local bound = 1 / math.sqrt(o.taps)
  self.taps = initial.parameter(initial.init.uniform(core.zeros(o.taps, o.dim), -bound, bound))
end

function ShortConv:forward(points)
  return rows.place(self.taps, self.opt.causal and 0 or -(self.opt.taps // 2), points)
end

return { ShortConv = ShortConv }
