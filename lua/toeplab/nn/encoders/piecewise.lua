-- nn/encoders/piecewise.lua: defines Piecewise, the encoder of SKI, piecewise linear in the warped
-- lag.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local rows = require "toeplab.nn.encoders.rows"

local function odd(nodes)
  return nodes % 2 == 1, ("= %d must be odd, so that 0 is a node"):format(nodes)
end

local function inside(lambda)
  return lambda > 0 and lambda < 1, ("= %g must be above 0 and below 1"):format(lambda)
end

-- coef(x) for x in [-1,1] is linear between evenly spaced nodes. The value at each node is a row of
-- parameters, except at x = 0, where it is 0 (SKI, Sec. 3.2.2).   points [p]   coef [p,dim]
-- neg [r,dim] (from x = -1) and pos [r,dim] (up to x = 1) ~ N(0, deviation^2), nodes = 2r+1.
-- Points of the domain "warp" are x themselves. Lags k are warped here: x = sign(k) lambda^|k|, so
-- that coefficients of far lags tend to 0. The option zero places lag 0: "plus" at x = 1, "literal"
-- at x = 0, "mean" between x = -1 and x = 1.
local Piecewise = class("Piecewise", {
  { "dim", options.field { type = "int", min = 1 }, "numbers per point" },
  { "nodes", options.field { default = 129, min = 3, max = 1 << 24, check = odd },
    "nodes on [-1,1]; 2r+1 for the papers' r" },
  { "lambda", options.field { default = 0.99, check = inside }, "base of the warp of lags" },
  { "zero", options.field { default = "plus", choices = { "plus", "literal", "mean" } },
    "place of lag 0: x = 1, x = 0, or the mean of x = -1 and x = 1" },
  { "deviation", options.field { default = 1.0, min = 0 }, "standard deviation of initial values" },
}, { "dim" }, "points [p] -> [p,dim]: linear between nodes")

Piecewise.domains = { lag = true, warp = true }
Piecewise.by_point = true

local zeros = { plus = 1.0, literal = 0.0 }

-- Finds the two nodes around each point of a domain, and their weights.
local function place(o, points, domain)
  local half = o.nodes // 2
  local function at(x)
    if x < -1 or x > 1 then error(("Piecewise: the point %g is not in [-1,1]"):format(x), 0) end
    return rows.cell((x + 1) * half, o.nodes)
  end
  if domain == "warp" then return rows.between(points, at) end
  return rows.between(points, function(k)
    if k == 0 and o.zero == "mean" then return 0, 2 * half, 0.5 end
    return at(k == 0 and zeros[o.zero] or (k > 0 and 1 or -1) * o.lambda ^ math.abs(k))
  end)
end

function Piecewise:build(o)
  for _, name in ipairs { "neg", "pos" } do
    local t = core.zeros(o.nodes // 2, o.dim)
    self[name] = initial.parameter(initial.init.normal(t, 0, o.deviation))
  end
  self.places = {}
  for domain in pairs(Piecewise.domains) do
    self.places[domain] = cache.reading(function(points) return place(o, points, domain) end)
  end
end

-- Returns the coefficients [p,dim] at points [p]. domain is "lag" (the default) or "warp".
function Piecewise:forward(points, _, domain)
  local t = core.concat({ self.neg, core.zeros(1, self.opt.dim), self.pos }, 1)
  return rows.interpolate(t, self.places[domain or "lag"](points))
end

return { Piecewise = Piecewise }
