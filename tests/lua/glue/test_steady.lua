-- test_steady.lua: a training step that has run before asks the system for nothing, and says where
-- its time goes.
local t = require "harness"
local tl = require "toeplab"

local function small_step()
  tl.seed(1)
  local model = tl.models.tnn_lm { vocab = 97, layers = 2, dim = 64, rpe_dim = 16, rpe_layers = 2,
    backend = "rac" }
  local opt = tl.train.graph(model, tl.optim.adam(model, { clip = 1.0, weight_decay = 0.1 }))
  local rows, s = {}, tl.stream_of "data"
  for i = 1, 4 do
    rows[i] = {}
    for j = 1, 129 do rows[i][j] = s:below(97) end
  end
  local ids = tl.ids(rows)
  return function() return (tl.train.lm_step(model, opt, ids)) end
end

local function random(...) return tl.stream_of("test"):normal(tl.zeros(...), 0, 1) end

local function largest(x) return tl.abs(x):reshape(-1):amax():item() end

-- Minor page faults of this process so far; nil where the system does not tell.
local function faults()
  local f <close> = io.open "/proc/self/stat"
  return f and tonumber(f:read("a"):match "%) %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+)")
end

-- A sanitiser has every block from the system.
local function reuses()
  local before = tl.memory().system
  for _ = 1, 10 do tl.zeros(1000):close() end
  return tl.memory().system - before < 10
end

t.test("a steady step asks the system for nothing", function()
  if not reuses() then t.skip "a sanitiser keeps no block" end
  local step = small_step()
  for _ = 1, 3 do step() end
  collectgarbage()
  local system, least = tl.memory().system, math.huge
  for _ = 1, 8 do
    local before = faults()
    step()
    if before then least = math.min(least, faults() - before) end
  end
  t.eq(tl.memory().system - system, 0)
  if faults() then t.ok(least < 10, "a step has " .. least .. " page faults") end
end)

t.test("a small step collects nothing, as long as the tensors are as large as they were", function()
  local held <close> = tl.zeros(4 << 20)
  local w, count = tl.ones(3):require_grad(), 0
  w:sum():backward()
  local function watch()
    setmetatable({}, { __gc = function() count = count + 1 watch() end })
  end
  watch()
  for _ = 1, 50 do w:sum():backward() end
  t.ok(count < 5, count .. " collections")
  local more = {}
  for i = 1, 8 do more[i] = tl.zeros(1 << 20) end
  more, count = nil, 0
  w:sum():backward()
  t.ok(count > 0 and tl.memory().live < 24 << 20, "what grew is collected")
  t.eq(held:numel(), 4 << 20)
end)

t.test("what a backend keeps takes the place of the coefficients", function()
  local tno, n = tl.nn.TNO(64, { rpe = { hidden = 4, layers = 1 } }), 2000
  local function left(...) -- bytes more, after a call in which nothing else is left
    local before, after = 0, nil
    collectgarbage()
    before = tl.memory().live
    tno(...)
    collectgarbage()
    after = tl.memory().live
    return after - before
  end
  local o, coef, y = tl.tno("rac", 70, 20, true), random(70, 20), random(2, 70, 20)
  local want, own = o:apply(coef, nil, y, true)
  t.eq(largest(o:apply(nil, nil, y, own) - want), 0)
  t.raises(o.apply, "expected, got nil", o, nil, nil, y)
  t.raises(o.apply, "expected, got nil", o, nil, nil, y, true)
  o = tl.tno("naive", 70, 20, true)
  t.raises(o.apply, "coef is missing and nothing is cached", o, nil, nil, y, own)
  tl.no_grad(tl.nn.cached, function()
    tno:plan(n)
    local x = random(1, n, 64)
    local bytes = left(x)
    t.ok(bytes > n * 64 * 4 and bytes < 1.6 * n * 64 * 4 * 2, "kept: " .. bytes)
    t.eq(left(x), 0)
  end)
end)

t.test("what trim gives back is not kept", function()
  if not reuses() then t.skip "a sanitiser keeps no block" end
  local x = tl.zeros(40 << 20)
  x:close()
  local before = tl.memory().cached
  t.ok(before >= 160 << 20, "kept: " .. before)
  tl.memory_trim()
  t.ok(before - tl.memory().cached >= 160 << 20, "kept: " .. tl.memory().cached)
end)

t.test("a profile names the kernels of a step", function()
  local step = small_step()
  local loss = step()
  t.ok(loss == loss)
  local p = tl.profile(step)
  local calls, sum = {}, 0.0
  for _, k in ipairs(p.kernels) do
    calls[k.name] = k.calls
    sum = sum + k.seconds
    t.ok(k.calls > 0 and k.seconds >= 0, k.name)
  end
  t.eq(calls.tno, 2)
  t.eq(calls.tno_grad, 2)
  t.eq(calls.cross_entropy, 1)
  t.eq(sum + p.other, p.seconds, 1e-9)
  t.ok(p.other >= 0 and p.system >= 0)
  t.ok(tostring(p):find "\ntno +2 " or tostring(p):find "^tno +2 ", tostring(p))
end)

t.test("a profile counts the bytes of inputs and outputs", function()
  local a, b = tl.ones(2, 3), tl.ones(3, 4)
  local k = tl.profile(function() return tl.matmul(a, b) end).kernels[1]
  t.eq({ k.name, k.bytes }, { "matmul", 4.0 * (6 + 12 + 8) })
end)

t.test("a profile ends also with an error, and can be had again", function()
  t.raises(tl.profile, "broken", function() error "broken" end)
  local p = tl.profile(function() return tl.zeros(3) + 1 end)
  t.ok(#p.kernels >= 1)
  t.eq(#tl.profile(function() end).kernels, 0)
end)

t.test("a profile in a profile is refused, and the outer one counts on", function()
  local p = tl.profile(function()
    local x = tl.zeros(3) + 1
    t.raises(tl.profile, "cannot be nested", function() end)
    return x * 2
  end)
  local calls = 0
  for _, k in ipairs(p.kernels) do calls = calls + k.calls end
  t.ok(calls >= 2, "calls: " .. calls)
  t.eq(#tl.profile(function() end).kernels, 0)
end)

t.done()
