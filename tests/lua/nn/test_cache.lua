-- test_cache.lua: what modules cache (numbers read from tensors, values for a length), and what a
-- call is given for its time: the backends chosen for auto, and random streams.
local core = require "toeplab.core"
local streams = require "toeplab.base.streams"
local cache = require "toeplab.nn.cache"
local chosen_backends = require "toeplab.nn.chosen_backends"
local t = require "harness"

t.test("reads a tensor once, and again after it was written", function()
  local reads = 0
  local sum = cache.reading(function(x)
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

t.test("nil is cached too", function()
  local reads = 0
  local nothing = cache.reading(function() reads = reads + 1 end)
  local x = core.ones(1)
  t.eq({ nothing(x), nothing(x) }, {})
  t.eq(reads, 1)
end)

t.test("the values of the last four lengths are cached", function()
  local made = {}
  local all = cache.recent(function(n)
    made[#made + 1] = n
    return { n }
  end)
  for _, n in ipairs { 1, 2, 3, 4, 2, 1, 5, 2, 1 } do t.eq(all(n)[1], n) end
  t.eq(made, { 1, 2, 3, 4, 5, 1 })
  t.eq(all.keys, { 3, 4, 5, 1 })
end)

t.test("backends chosen for auto hold within a call, which receives new ones", function()
  local told = {}
  local function record(text) told[#told + 1] = text end
  local inner, same = chosen_backends.with("40 3 causal matrix\n", record, function()
    local name = chosen_backends.of(40, 3, true)
    chosen_backends.of(9, 3, true)
    return name, chosen_backends.of(9, 3, true)
  end)
  t.eq(inner, "matrix")
  t.eq(told, { ("9 3 causal %s\n40 3 causal matrix\n"):format(same) })
  t.raises(chosen_backends.with, "on purpose", "9 3 causal fft\n", record, error, "on purpose")
  chosen_backends.with("9 3 causal naive\n", record, function()
    chosen_backends.with(nil, nil, function() t.ok(chosen_backends.of(9, 3, true) ~= "naive") end)
    t.eq(chosen_backends.of(9, 3, true), "naive")
  end)
  t.eq(#told, 1)
end)

t.test("a call has its own streams, and the caller's continue where they were", function()
  streams.seed(5)
  local want = { core.stream(5, "init"):unit(), streams.get("init"):unit() }
  local inner, seed = streams.with(9, function()
    return streams.get("init"):unit(), streams.seed_of()
  end)
  t.eq({ inner, seed, want[1] }, { core.stream(9, "init"):unit(), 9, want[2] })
  t.raises(streams.with, "on purpose", 9, error, "on purpose")
  t.raises(streams.with, "seed must be an integer", 1.5, error)
  local again = core.stream(5, "init")
  again:unit()
  t.eq({ streams.seed_of(), streams.get("init"):unit() }, { 5, again:unit() })
end)

t.done()
