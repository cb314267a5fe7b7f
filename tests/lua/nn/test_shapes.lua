-- test_shapes.lua: the constant matrices, rows of zeros, and complex numbers that layers share.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local complex = require "toeplab.nn.complex"
local heads = require "toeplab.nn.mixers.heads"
local shapes = require "toeplab.nn.shapes"

local test, eq, ok = t.test, t.eq, t.ok

test("steps and impulses of integers, the lower triangle, the identity", function()
  local x = core.tensor { -3, -1, 0, 1, 2 }
  eq(shapes.step(x), { 0, 0, 1, 1, 1 })
  eq(shapes.impulse(x), { 0, 0, 1, 0, 0 })
  eq(shapes.lower(3), { { 1, 0, 0 }, { 1, 1, 0 }, { 1, 1, 1 } })
  eq(shapes.identity(3), { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } })
  eq({ shapes.lower(1):totable(), shapes.identity(1):totable() }, { { { 1 } }, { { 1 } } })
end)

test("rows of zeros before and after, on any axis, and their gradient", function()
  local x = core.tensor { { 1, 2 }, { 3, 4 } }
  eq(shapes.pad(x, 1, 1, 0), { { 0, 0 }, { 1, 2 }, { 3, 4 } })
  eq(shapes.pad(x, 2, 0, 2), { { 1, 2, 0, 0 }, { 3, 4, 0, 0 } })
  eq(shapes.pad(x, 2, 1, 1), { { 0, 1, 2, 0 }, { 0, 3, 4, 0 } })
  ok(shapes.pad(x, 1, 0, 0) == x and shapes.fill(x, 1, 2) == x)
  eq(shapes.fill(x, 2, 3), { { 1, 2, 0 }, { 3, 4, 0 } })
  ok(tl.gradcheck(function() return shapes.pad(x, 1, 2, 1) end, { x }) < 1e-3)
end)

test("complex numbers: parts and back, products, quotients", function()
  local z = core.tensor { { 1, 2 }, { -3, 0.5 } } -- 1 + 2i, -3 + 0.5i
  local re, im = complex.parts(z)
  eq({ re:totable(), im:totable() }, { { 1, -3 }, { 2, 0.5 } })
  eq(complex.join(re, im), z)
  local w_re, w_im = core.tensor { 2, -1 }, core.tensor { -1, 4 } -- 2 - i, -1 + 4i
  local p_re, p_im = complex.times(re, im, w_re, w_im)
  eq(complex.join(p_re, p_im), { { 4, 3 }, { 1, -12.5 } })
  eq(complex.join(complex.over(p_re, p_im, w_re, w_im)), z, 1e-6)
end)

test("a hidden key has no weight, whatever its score", function()
  local q, k = core.tensor { { { { 1.0 } } } }, core.tensor { { { { 300.0 }, { -2.0 } } } }
  local v, seen = core.tensor { { { { 5.0 }, { 7.0 } } } }, core.tensor { { 0, 1 } }
  eq(heads.attend(q, k, v, 1), { { { { 5 } } } })
  eq(heads.attend(q, k, v, 1, { mask = seen }), { { { { 7 } } } })
end)

t.done()
