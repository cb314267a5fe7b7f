-- test_svd.lua: the glue of singular values and linear systems; their numbers are tested in C.
local core = require "toeplab.core"
local t = require "harness"

t.test("a decomposition in its three parts", function()
  local a = core.tensor { { 0, 3, 0 }, { -2, 0, 0 } }
  local u, s, v = core.svd(a)
  t.eq(s, { 3, 2 }, 1e-6)
  t.eq(core.singular_values(a), { 3, 2 }, 1e-6)
  t.eq({ u:shape(), v:shape() }, { { 2, 2 }, { 2, 3 } })
  t.eq(core.matmul(u * s, v), a, 1e-6)
end)

t.test("a system is solved", function()
  local a, b = core.tensor { { 2, 0 }, { 1, 4 } }, core.tensor { { 4 }, { 6 } }
  t.eq(core.solve(a, b), { { 2 }, { 1 } })
end)

t.test("errors name the function and the argument", function()
  t.raises(core.svd, "svd: a is %[3%], not a matrix", core.zeros(3))
  t.raises(core.singular_values, "svd: a%[1,2%] is not finite", core.tensor { { 1, 0 / 0 } })
  t.raises(core.solve, "solve: a is %[2,2%] and singular", core.zeros(2, 2), core.zeros(2, 1))
  t.raises(core.solve, "solve: a is %[2,3%], b is %[2,1%]", core.zeros(2, 3), core.zeros(2, 1))
  t.raises(core.solve, "bad argument #2", core.zeros(2, 2))
end)

t.test("no gradient is cut in silence", function()
  local a, b = core.ones(2, 2):require_grad(), core.ones(2, 2)
  local both = a + b
  for _, x in ipairs { a, both } do
    t.raises(core.svd, "svd: a requires a gradient, which svd does not pass on", x)
    t.raises(core.singular_values, "svd: a requires a gradient", x)
    t.raises(core.solve, "solve: a requires a gradient", x, b)
    t.raises(core.solve, "solve: b requires a gradient", core.tensor { { 2, 0 }, { 0, 1 } }, x)
    t.eq(core.no_grad(core.singular_values, x):dim(1), 2)
  end
end)

t.done()
