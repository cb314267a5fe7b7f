-- nn/table.lua -- Table, the encoder "w/o RPE": every coefficient is a free parameter.

local core = require "toeplab.core"
local class = require("toeplab.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.options"

-- coef of lag k is a row of a table, 0 from lag length on (TNN, Table 9).
--   points [p]   coef [p,dim]
-- zero [1,dim], pos [length-1,dim] (lags 1..), neg [length-1,dim] (lags -(length-1)..-1) ~ N(0,1);
-- neg is kept and counted in causal models too, as in the published ones.
local Table = class("Table", {
  dim = options.field { type = "int", min = 1 },
  length = options.field { default = 512, min = 2 },
  deviation = options.field { default = 1.0, min = 0 },
}, { "dim", "length" })

function Table:build(o)
  for _, name in ipairs { "zero", "pos", "neg" } do
    local t = core.zeros(name == "zero" and 1 or o.length - 1, o.dim)
    self[name] = initial.parameter(initial.init.normal(t, 0, o.deviation))
  end
end

function Table:forward(points, n)
  local side, dim = self.opt.length - 1, self.opt.dim
  local used = math.min(n - 1, side)
  local padding = n - 1 > side and core.zeros(n - 1 - side, dim) or nil
  local rows = {}
  if points:dim(1) ~= n then
    if padding then rows[#rows + 1] = padding end
    if used > 0 then rows[#rows + 1] = self.neg:narrow(1, side - used + 1, used) end
  end
  rows[#rows + 1] = self.zero
  if used > 0 then rows[#rows + 1] = self.pos:narrow(1, 1, used) end
  if padding then rows[#rows + 1] = padding end
  return core.concat(rows, 1)
end

return { Table = Table }
