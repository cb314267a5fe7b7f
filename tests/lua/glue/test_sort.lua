-- test_sort.lua: argsort and topk against a plain sort in Lua, batch_gather against gather, random
-- integers and places against the scalar draws of a stream; and their errors.
local core = require "toeplab.core"
local t = require "harness"
local eq, ok, raises, test = t.eq, t.ok, t.raises, t.test

local NAN, INF = 0 / 0, math.huge

-- Whether a sorts before b: by value, NaN after all numbers, then by position.
local function before(values)
  return function(i, j)
    local a, b = values[i], values[j]
    local nan_a, nan_b = a ~= a, b ~= b
    if nan_a ~= nan_b then return nan_b end
    if nan_a or a == b then return i < j end
    return a < b
  end
end

-- Returns the positions of a row, from 1, in ascending order.
local function sorted(values)
  local order = {}
  for i = 1, #values do order[i] = i end
  table.sort(order, before(values))
  return order
end

local function check_sort(name, rows, x)
  local orders, ranks = {}, {}
  for r, values in ipairs(rows) do
    orders[r], ranks[r] = {}, {}
    for i, at in ipairs(sorted(values)) do orders[r][i], ranks[r][at] = at - 1, i - 1 end
  end
  local order, rank = x:argsort()
  eq({ order:type(), rank:type() }, { "int32", "int32" })
  eq({ order:shape(), rank:shape() }, { x:shape(), x:shape() })
  local n = #rows[1]
  eq({ name, order:reshape(#rows, n):totable() }, { name, orders })
  eq({ name, rank:reshape(#rows, n):totable() }, { name, ranks })
end

local function check_top(name, rows, x, k)
  local n, all, all_slots = #rows[1], {}, {}
  for r, values in ipairs(rows) do
    local among, order = {}, {}
    for i = 1, n do order[i] = i end
    local less = before(values)
    table.sort(order, function(i, j) -- the largest first; among equal values the lower position
      local a, b = values[i], values[j]
      if a == b or (a ~= a and b ~= b) then return i < j end
      return less(j, i)
    end)
    for i = 1, k do among[order[i]] = true end
    all[r], all_slots[r] = {}, {}
    for i = 1, n do
      if among[i] then all[r][#all[r] + 1] = i - 1 end
      all_slots[r][i] = among[i] and #all[r] or 0
    end
  end
  local places, slots = x:topk(k)
  local shape = x:shape()
  eq({ slots:shape(), slots:type(), places:type() }, { shape, "int32", "int32" })
  shape[#shape] = k
  eq(places:shape(), shape)
  eq({ name, k, places:reshape(#rows, k):totable() }, { name, k, all })
  eq({ name, k, slots:reshape(#rows, n):totable() }, { name, k, all_slots })
end

-- ---- Rows ---------------------------------------------------------------------------------------

local stream = core.stream(3, "sort")

local function filled(rows, n, value)
  local list = {}
  for r = 1, rows do
    list[r] = {}
    for i = 1, n do list[r][i] = value(i, r) end
  end
  return list
end

local BIG = 2 ^ 31 - 1
local cases = { -- name, rows of numbers, whether they are int32 too
  { "random", filled(3, 100, function() return (stream:below(2001) - 1000) / 8 end) },
  { "ties", filled(2, 300, function() return stream:below(5) - 2 end), true },
  { "large integers", filled(2, 40, function() return stream:below(2 ^ 24) - 2 ^ 23 end), true },
  { "all equal", filled(2, 37, function() return -7 end), true },
  { "ascending", filled(1, 65, function(i) return i end), true },
  { "descending", filled(2, 257, function(i) return -i end), true },
  { "one element", filled(4, 1, function(_, r) return r end), true },
  { "two", { { 2, 1 }, { 1, 2 }, { 3, 3 } }, true },
  { "a power of two", filled(2, 256, function() return stream:below(1000) end), true },
  { "several blocks", filled(1, 5000, function() return stream:below(700) - 350 end), true },
  { "zeros of both signs", { { 0.0, -0.0, 1, -0.0, 0.0, -1 } } },
  { "infinities", { { INF, 1, -INF, INF, -1, -INF } } },
  { "NaN", { { 1, NAN, INF, -NAN, -INF, NAN, 2 }, { NAN, NAN, NAN, NAN, NAN, NAN, NAN } } },
  { "denormal numbers", { { 1e-44, -1e-44, 0, 1e-42, -1e-42, 1e-38 } } },
}

test("argsort: every row as a plain stable sort has it, and the inverse", function()
  for _, case in ipairs(cases) do
    check_sort(case[1], case[2], core.tensor(case[2]))
    if case[3] then check_sort(case[1] .. ", int32", case[2], core.ids(case[2])) end
  end
  local ends = { { BIG, -BIG - 1, 0, -1, 1, BIG, -BIG - 1 } }
  for i, v in ipairs(ends[1]) do ends[1][i] = math.tointeger(v) end
  check_sort("the ends of int32", ends, core.ids(ends))
end)

test("argsort: rows of several tiles per block of a GPU", function()
  local rows = filled(1, 66000, function() return stream:below(100000) end)
  check_sort("many tiles", rows, core.ids(rows))
end)

test("topk: the largest, of equal ones the lower positions, in order of position", function()
  for _, case in ipairs(cases) do
    local n = #case[2][1]
    for _, k in ipairs { 1, (n + 1) // 2, n > 2 and n - 1 or n, n } do
      check_top(case[1], case[2], core.tensor(case[2]), k)
      if case[3] then check_top(case[1] .. ", int32", case[2], core.ids(case[2]), k) end
    end
  end
end)

test("tensors of several ranks, and empty ones", function()
  local rows = filled(12, 7, function() return stream:below(9) end)
  local x = core.tensor(rows)
  check_sort("one axis", { rows[1] }, x:narrow(1, 1, 1):reshape(7))
  check_sort("four axes", rows, x:reshape(2, 3, 2, 7))
  check_top("one axis", { rows[1] }, x:narrow(1, 1, 1):reshape(7), 3)
  check_top("four axes", rows, x:reshape(2, 3, 2, 7), 3)
  for _, shape in ipairs { { 0, 3 }, { 3, 0 }, { 0 } } do
    local order, rank = core.zeros(shape):argsort()
    eq({ order:shape(), rank:shape() }, { shape, shape })
  end
  local places, slots = core.zeros(0, 3):topk(2)
  eq({ places:shape(), slots:shape() }, { { 0, 2 }, { 0, 3 } })
end)

test("no gradient flows through indices, and their input is not changed", function()
  local x = core.tensor { { 3, 1, 2 } }:require_grad()
  local order, rank = x:argsort()
  local places, slots = x:topk(2)
  for _, index in ipairs { order, rank, places, slots } do eq(index:requires_grad(), false) end
  eq(x, { { 3, 1, 2 } })
end)

test("what they refuse", function()
  local x = core.tensor { { 1, 2, 3, 4 } }
  raises(x.topk, "topk: k is 5, x is %[1,4%]", x, 5)
  raises(x.topk, "topk: k is 0", x, 0)
  raises(x.topk, "topk: k is %-1", x, -1)
  raises(x.topk, "bad argument", x, 1.5)
  raises(x.topk, "topk: k is 1, x is %[3,0%]", core.zeros(3, 0), 1)
  raises(x.topk, "topk: x is %[%], not rows", core.full({}, 1), 1)
  raises(x.argsort, "argsort: x is %[%], not rows", core.full({}, 1))
  raises(x.argsort, "bad argument #1", 3)
end)

-- ---- Rows of a batch of tables ------------------------------------------------------------------

test("batch_gather: the rows of each table, as gather has them one by one", function()
  local x = stream:normal(core.zeros(2, 3, 5, 4), 0, 1):require_grad()
  local index = stream:integers(5, 2, 3, 6)
  local y = x:batch_gather(index)
  eq(y:shape(), { 2, 3, 6, 4 })
  local dy = stream:normal(core.zeros(2, 3, 6, 4), 0, 1)
  y:backward(dy)
  for a = 1, 2 do
    for b = 1, 3 do
      local function part(z) return z:narrow(1, a, 1):narrow(2, b, 1) end
      local table_ = core.no_grad(part, x):reshape(5, 4):require_grad()
      local one = table_:gather(part(index):reshape(6))
      eq(core.no_grad(part, y):reshape(6, 4), one:totable())
      one:backward(part(dy):reshape(6, 4))
      eq(part(x:grad()):reshape(5, 4), table_:grad():totable())
    end
  end
end)

test("batch_gather: one axis, rows of several axes, many rows, none", function()
  eq(core.tensor { 1, 2, 3 }:batch_gather(core.ids { 2, 0, 2 }), { 3, 1, 3 })
  local x = core.range(0, 11):reshape(1, 3, 2, 2)
  eq(x:batch_gather(core.ids { { 2, 0 } }),
    { { { { 8, 9 }, { 10, 11 } }, { { 0, 1 }, { 2, 3 } } } })
  eq(core.zeros(2, 3, 4):batch_gather(core.ids { {}, {} }):shape(), { 2, 0, 4 })
  local long = core.ones(2, 3, 1):require_grad()
  local index = stream:integers(3, 2, 1000)
  long:batch_gather(index):sum():backward()
  local counts = { { { 0 }, { 0 }, { 0 } }, { { 0 }, { 0 }, { 0 } } }
  for r, row in ipairs(index:totable()) do
    for _, at in ipairs(row) do counts[r][at + 1][1] = counts[r][at + 1][1] + 1 end
  end
  eq(long:grad(), counts)
end)

test("sorting and unsorting by batch_gather", function()
  local x = stream:normal(core.zeros(3, 50), 0, 1)
  local order, rank = x:argsort()
  local up = x:batch_gather(order)
  ok((up:narrow(2, 1, 49) - up:narrow(2, 2, 49)):reshape(-1):amax():item() <= 0)
  eq(up:batch_gather(rank), x:totable())
  local again = order:argsort()
  eq(again, rank:totable())
end)

test("batch_gather refuses", function()
  local x = core.zeros(2, 3, 4)
  raises(x.batch_gather, "batch_gather: x is %[2,3,4%], the index %[3,1%]", x,
    core.ids { { 0 }, { 0 }, { 0 } })
  raises(x.batch_gather, "batch_gather: x is %[2,3,4%], the index %[%]", x,
    core.ids { 0 }:reshape {})
  raises(x.batch_gather, "batch_gather: x is %[2%], the index %[2,1%]", core.zeros(2),
    core.ids { { 0 }, { 0 } })
  raises(x.batch_gather, "x must be float32 and the index int32", x, x)
  raises(x.batch_gather, "x must be float32 and the index int32", core.ids { 0 }, core.ids { 0 })
  for _, bad in ipairs { 3, -1 } do -- a GPU reports it when something is read
    raises(function() return x:batch_gather(core.ids { { 0 }, { bad } }):totable() end,
      tostring(bad):gsub("%-", "%%-"))
  end
end)

-- ---- Random indices -----------------------------------------------------------------------------

test("integers are those of as many scalar draws, and advance the stream as far", function()
  for _, bound in ipairs { 1, 2, 10, 4096, BIG } do
    bound = math.tointeger(bound)
    local one, other = core.stream(4, "integers"), core.stream(4, "integers")
    local got, want = one:integers(bound, 7, 43):reshape(-1):totable(), {}
    for i = 1, 7 * 43 do want[i] = bound > 1 and other:below(bound) or 0 end
    eq(got, want)
    if bound > 1 then eq({ one:state() }, { other:state() }) end
  end
  eq(stream:integers(5, { 2, 3 }):shape(), { 2, 3 })
  eq(stream:integers(5, 0):shape(), { 0 })
  for _, bound in ipairs { 0, -1, math.tointeger(BIG) + 1 } do
    raises(stream.integers, "integers: the bound is %-?%d+, not in 1..2147483647", stream, bound, 2)
  end
end)

test("places are floor(length u), where u are scalar draws, the same for all rows", function()
  local one, other = core.stream(4, "places"), core.stream(4, "places")
  local lengths, units, want = { 0, 1, 2, 1000, 4096, -3, NAN, 2 ^ 33 }, {}, {}
  local got = one:places(core.tensor(lengths), 41)
  for i = 1, 41 do units[i] = other:unit() end
  for r, length in ipairs(lengths) do
    want[r] = {}
    for i, u in ipairs(units) do
      local at = length * u
      want[r][i] = at >= 0 and at < BIG and math.floor(at) or 0
    end
  end
  eq({ got:type(), got:totable() }, { "int32", want })
  eq({ one:state() }, { other:state() })
  eq(stream:places(core.zeros(2, 3), 4):shape(), { 2, 3, 4 })
  eq(stream:places(core.zeros(2), 0):shape(), { 2, 0 })
  raises(stream.places, "places: the lengths are int32, not float32", stream, core.ids { 1 }, 2)
  raises(stream.places, "places: %-1 places", stream, core.ones(2), -1)
end)

t.done()
