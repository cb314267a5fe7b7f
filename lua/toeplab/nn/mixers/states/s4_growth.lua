-- nn/mixers/states/s4_growth.lua: adapts the parameter c of S4 (s4.lua) to the length of its
-- inputs.

local core = require "toeplab.core"
local complex = require "toeplab.nn.complex"
local shapes = require "toeplab.nn.shapes"

local growth = {}

-- Returns the matrix of one step, Ad = (I - dt A/2)^-1 (I + dt A/2), as a real one [d,2m,2m] on
-- (Re u, Im u), where u are the modes and conj u the others: with P also of both kinds, A u is
-- lambda u - 2 P Re(P^H u).
local function step(kernel)
  local d, m = kernel.opt.dim, kernel.opt.state // 2
  local unit = shapes.identity(m)
  local half = core.affine(core.exp(kernel.log_dt), 0.5, 0):reshape(d, 1, 1)
  local re = unit * (-core.exp(kernel.a)):reshape(d, 1, m)
  local im = unit * kernel.w:reshape(d, 1, m)
  local p = core.concat({ complex.parts(kernel.p:reshape(d, m, 2)) }, 2)
  local a = core.concat({ core.concat({ re, -im }, 3), core.concat({ im, re }, 3) }, 2)
  a = (a - core.affine(p, 2, 0):reshape(d, 2 * m, 1) * p:reshape(d, 1, 2 * m)) * half
  local list, both = {}, shapes.identity(2 * m)
  for c = 1, d do
    local one = a:narrow(1, c, 1):reshape(2 * m, 2 * m)
    list[c] = core.solve(both - one, both + one):reshape(1, 2 * m, 2 * m)
  end
  return #list > 1 and core.concat(list, 1) or list[1]
end

-- Returns matrix^exponent for exponent >= 1.   matrix [d,s,s]
local function power(matrix, exponent)
  local result
  while true do
    if exponent % 2 == 1 then result = result and core.matmul(result, matrix) or matrix end
    exponent = exponent // 2
    if exponent == 0 then return result end
    matrix = core.matmul(matrix, matrix)
  end
end

-- Multiplies c by I + sign Ad^L. C u summed with its conjugate is (2 Re C, -2 Im C) (Re u, Im u).
local function multiply(kernel, powered, sign)
  local m = kernel.opt.state // 2
  local re, im = complex.parts(kernel.c) -- [directions,d,m]
  local row = core.concat({ re, -im }, 3):transpose(1, 2)
  local moved = (row + core.affine(core.matmul(row, powered), sign, 0)):transpose(1, 2)
  kernel.c:copy(complex.join(moved:narrow(3, 1, m), -moved:narrow(3, m + 1, m)))
end

-- Extends c from length to at least n, and returns the new length: n if length is 0, when c is the
-- initial C, else length doubled as often as needed.
function growth.grow(kernel, length, n)
  if length == 0 then
    multiply(kernel, power(step(kernel), n), -1)
    return n
  end
  local powered = power(step(kernel), length)
  repeat
    multiply(kernel, powered, 1)
    length = 2 * length
    powered = core.matmul(powered, powered)
  until length >= n
  return length
end

return growth
