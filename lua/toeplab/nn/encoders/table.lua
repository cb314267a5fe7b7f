-- nn/encoders/table.lua: defines Table and FrequencyTable, the encoders without a network, whose
-- coefficients or values of a frequency response are free parameters.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local rows = require "toeplab.nn.encoders.rows"

-- The coefficient of lag k is a row of a table, and 0 from lag `length` (TNN, Table 9).
--   points [p]   coef [p,dim]
-- zero [1,dim], pos [length-1,dim] (lags 1..), neg [length-1,dim] (lags -(length-1)..-1)
-- ~ N(0, deviation^2). Causal models do not use neg, which then gets no gradient; they have it
-- because the published parameter counts include it.
local Table = class("Table", {
  dim = options.field { type = "int", min = 1 },
  length = options.field { default = 512, min = 2,
    help = "lags with a row; so have as many below 0, which a causal model never uses" },
  deviation = options.field { default = 1.0, min = 0,
    help = "standard deviation of initial values" },
}, { "dim", "length" }, "points [p] -> [p,dim]: a number for each lag")

Table.domains, Table.by_point = { lag = true }, true

function Table:build(o)
  for _, name in ipairs { "zero", "pos", "neg" } do
    local t = core.zeros(name == "zero" and 1 or o.length - 1, o.dim)
    self[name] = initial.parameter(initial.init.normal(t, 0, o.deviation))
  end
end

function Table:forward(points)
  local first, last = rows.span(points)
  local parts = { self.zero }
  if first < 0 then table.insert(parts, 1, self.neg) end
  if last > 0 then parts[#parts + 1] = self.pos end
  return rows.place(core.concat(parts, 1), first < 0 and 1 - self.opt.length or 0, points)
end

-- The coefficient at frequency omega is interpolated linearly between the rows of a table, which
-- are evenly spaced on [0,pi], ends included (SKI's LRA models have 256).
--   points [p]   coef [p,dim]   table [length,dim] ~ N(0, deviation^2)
-- With dc, frequency 0 has its own row, which starts at 1 and is not interpolated; the others are
-- at pi/length, .. pi. SKI's code contains this form, with 128 rows.
local FrequencyTable = class("FrequencyTable", {
  dim = options.field { type = "int", min = 1 },
  length = options.field { default = 256, min = 2,
    help = "rows, between which others are interpolated" },
  deviation = options.field { default = 1.0, min = 0,
    help = "standard deviation of initial values" },
  dc = options.field { default = false, help = "a further row for the frequency 0" },
}, { "dim", "length" }, "points [p] -> [p,dim]: interpolated between rows, by frequency")

FrequencyTable.domains = { frequency = true }

-- Finds the two rows around each frequency, and their weights.
local function place(o, points)
  local count, dc = o.length, o.dc
  return rows.between(points, function(omega)
    if not dc then return rows.cell(omega / math.pi * (count - 1), count) end
    if omega == 0 then return 0, 0, 0 end
    local a, b, share = rows.cell(omega / math.pi * count - 1, count)
    return a + 1, b + 1, share
  end)
end

function FrequencyTable:build(o)
  local t = initial.init.normal(core.zeros(o.length, o.dim), 0, o.deviation)
  self.table = initial.parameter(t)
  if o.dc then self.dc = initial.parameter(core.ones(1, o.dim)) end
  self.places = cache.reading(function(points) return place(o, points) end)
end

function FrequencyTable:forward(points)
  local t = self.dc and core.concat({ self.dc, self.table }, 1) or self.table
  return rows.interpolate(t, self.places(points))
end

return { Table = Table, FrequencyTable = FrequencyTable }
