-- test_memo.lua -- what modules remember: what they read of tensors, and what they compute for a
-- length.
local core = require "toeplab.core"
local kept = require "toeplab.nn.kept"
local memo = require "toeplab.nn.memo"
local t = require "harness"

t.test("a tensor is read once, and again after it was written", function()
  local reads = 0
  local sum = memo.of(function(x)
    reads = reads + 1
    return x:sum():item()
  end)
  local x, y = core.ones(3), core.ones(2)
  t.eq({ sum(x), sum(x), sum(y), sum(x) }, { 3, 3, 2, 3 })
  t.eq(reads, 2)
  x:fill(5)
  t.eq({ sum(x), sum(x), sum(y) }, { 15, 15, 2 })
  t.eq(reads, 3)
end)

t.test("nil and false are remembered too", function()
  local reads = 0
  local nothing = memo.of(function() reads = reads + 1 end)
  local x = core.ones(1)
  t.eq({ nothing(x), nothing(x) }, {})
  t.eq(reads, 1)
end)

t.test("who watches knows of whom was asked, and whether it was written since", function()
  local first = memo.of(function(x) return x:get(1) end)
  local x, y = core.ones(2), core.ones(2)
  first(y)
  local asked, fine, one, two = memo.watch(function(...) return first(x), ... end, 7)
  t.eq({ fine, one, two }, { true, 1, 7 })
  t.ok(asked[x] and not asked[y])
  y:fill(2)
  t.ok(memo.same(asked))
  x:fill(2)
  t.ok(not memo.same(asked))
  local _, good, why = memo.watch(error, "on purpose")
  t.eq({ good, why }, { false, "on purpose" })
end)

t.test("the last few lengths are kept", function()
  local all, made = {}, {}
  local function make(n)
    made[#made + 1] = n
    return { n }
  end
  for _, n in ipairs { 1, 2, 3, 4, 2, 1, 5, 2, 1 } do t.eq(kept(all, n, make, n)[1], n) end
  t.eq(made, { 1, 2, 3, 4, 5, 1 })
end)

t.done()
