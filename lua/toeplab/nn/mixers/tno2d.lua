-- nn/mixers/tno2d.lua: defines TNO2d, Toeplitz operators along both axes of a grid.

local class = require("toeplab.nn.class").class
local core = require "toeplab.core"
local options = require "toeplab.base.options"
local TNO = require("toeplab.nn.mixers.tno").TNO

local function isgrid(grid)
  local fine = #grid == 2
  for i = 1, 2 do fine = fine and math.type(grid[i]) == "integer" and grid[i] >= 1 end
  return fine, "must be two integers {height, width}, of at least 1"
end

-- The positions of x are a grid of height x width, row by row. T_H and T_W are TNOs along the two
-- axes, each with its own encoder:
--   form "sum"      y = T_H x + T_W x     (TNN's images; the LRA models of its Table 4)
--   form "product"  y = 2 T_H T_W x       (the released LRA models compute T_H(T_W x) + T_W(T_H x),
--                                         which is the same, as the two commute)
--   form "chain"    y = T_H T_W x         (unreleased LRA models, in both orders)
-- With shared, one TNO with one encoder acts along both axes.
--   x, y [b, height width, dim]
local TNO2d = class("TNO2d", {
  { "dim", options.field { type = "int", min = 1 }, "channels" },
  { "form", options.field { default = "sum", choices = { "sum", "product", "chain" } },
    "how the operators of the two axes are combined" },
  { "shared", false, "one operator for both axes" },
  { "tno", {}, "options of both TNOs" },
  { "grid", options.field { type = "table", optional = true, check = isgrid },
    "{height, width}, unless passed to forward" },
}, { "dim" },
  "x [b,n,dim] -> [b,n,dim]: Toeplitz operators along both axes of a grid of n positions")

function TNO2d:build(o)
  if o.shared then
    self.along = TNO(o.dim, o.tno)
  else
    self.along_height = TNO(o.dim, o.tno)
    self.along_width = TNO(o.dim, o.tno)
  end
end

-- Returns the TNOs along height and width.
local function operators(self)
  return self.along or self.along_height, self.along or self.along_width
end

-- Applies tno along the columns: [b, h w, d] -> [b w, h, d], and back.
local function columns(tno, x, height, width)
  local b, d = x:dim(1), x:dim(3)
  local y = x:reshape(b, height, width, d):transpose(2, 3):reshape(b * width, height, d)
  return tno(y):reshape(b, width, height, d):transpose(2, 3):reshape(b, height * width, d)
end

-- Applies tno along the rows: [b, h w, d] -> [b h, w, d], and back.
local function lines(tno, x, height, width)
  local b, d = x:dim(1), x:dim(3)
  return tno(x:reshape(b * height, width, d)):reshape(b, height * width, d)
end

function TNO2d:forward(x, height, width)
  local grid = self.opt.grid
  if not height and grid then height, width = grid[1], grid[2] end
  if not (height and width) then
    error("TNO2d: give height and width, or make it with grid = {height, width}", 0)
  end
  local fine, why = isgrid { height, width }
  if not fine then error("TNO2d: the grid " .. why, 0) end
  if x:ndim() ~= 3 or x:dim(2) ~= height * width then
    error(("TNO2d: x is %s, not [b,%d,%d]: a grid of %d x %d"):format(tostring(x),
      height * width, self.opt.dim, height, width), 0)
  end
  local form, along_height, along_width = self.opt.form, operators(self)
  local along = lines(along_width, x, height, width)
  if form == "sum" then return columns(along_height, x, height, width) + along end
  local both = columns(along_height, along, height, width)
  return form == "product" and core.affine(both, 2, 0) or both
end

-- Each is applied to all lines of the grid.
TNO2d.apart = { along = true, along_height = true, along_width = true }

-- Returns {height, width} for n positions.
local function sides(self, n)
  return self.opt.grid or { math.sqrt(n) // 1, math.sqrt(n) // 1 }
end

-- As TNO:coefficients_cost, of both operators.
function TNO2d:coefficients_cost(n)
  local grid, along_height, along_width = sides(self, n), operators(self)
  local flop, numbers = along_height:coefficients_cost(grid[1])
  local more, more_numbers = along_width:coefficients_cost(grid[2])
  return flop + more, numbers + more_numbers
end

function TNO2d:own_cost(n)
  local grid = sides(self, n)
  local flop, numbers = self:coefficients_cost(n)
  for axis, tno in ipairs { operators(self) } do
    local each, results = tno:lines_cost(grid[axis])
    flop, numbers = flop + grid[3 - axis] * each, numbers + grid[3 - axis] * results
  end
  return flop, numbers
end

function TNO2d:brief()
  local grid = self.opt.grid
  return self.opt.form .. (grid and (" on %d x %d"):format(grid[1], grid[2]) or "")
end

return { TNO2d = TNO2d }
