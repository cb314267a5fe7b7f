-- test_attention.lua: attention in blocks against products and a softmax of all scores, with its
-- gradients, on every device; its options.
local core = require "toeplab.core"
local heads = require "toeplab.nn.mixers.heads"
local shapes = require "toeplab.nn.shapes"
local t = require "harness"
local test, raises = t.test, t.raises

local B, H, WINDOW, SCALE = 2, 3, 5, 0.6

local function random(stream, ...)
  return stream:normal(core.zeros(...), 0, 1):require_grad()
end

-- Returns the term that hides the keys that causal and window hide: [m,n].
local function hidden(m, n, o)
  local lag = core.range(n - m, n - 1):reshape(m, 1) - core.range(0, n - 1):reshape(1, n)
  local seen = o.causal and shapes.step(lag) or core.ones(m, n)
  if o.window then seen = seen * shapes.step(core.affine(core.abs(lag), -1, o.window - 1)) end
  return heads.hide(seen)
end

-- Returns bias [h,m+n-1] as a term of scores: [h,m,n].
local function by_pairs(bias, m, n)
  local ids = {}
  for i = 1, m do
    for j = 1, n do ids[#ids + 1] = j - i + m - 1 end
  end
  return bias:transpose(1, 2):gather(core.ids(ids)):reshape(m, n, -1):permute { 3, 1, 2 }
end

local function composed(q, k, v, o)
  local m, n = q:dim(-2), k:dim(-2)
  local scores = core.affine(core.matmul(q, k, false, true), o.scale, 0) + hidden(m, n, o)
  if o.mask then scores = scores + heads.hide(o.mask):reshape(B, 1, 1, n) end
  if o.bias then scores = scores + by_pairs(o.bias, m, n) end
  local p = core.softmax(scores)
  return core.matmul(o.stream and o.stream:dropout(p, o.dropout) or p, v)
end

-- Returns y and the gradients of sum(y^2) of every input.
local function all(f, inputs, o)
  for _, x in ipairs(inputs) do x:set_grad(nil) end
  local y = f(inputs[1], inputs[2], inputs[3], o)
  local list = { y:clone() }
  core.square(y):sum():backward()
  for i, x in ipairs(inputs) do list[1 + i] = x:grad():clone() end
  return list
end

local function close(inputs, o, name)
  local want
  if o.stream then
    local key, offset = o.stream:state()
    want = all(composed, inputs, o)
    o.stream:set_state(key, offset)
  else
    want = all(composed, inputs, o)
  end
  for i, x in ipairs(all(core.attention, inputs, o)) do
    local off = core.no_grad(function() return core.abs(x - want[i]):amax():item() end)
    local size = core.no_grad(function() return core.abs(want[i]):amax():item() end)
    t.ok(off <= 3e-5 * math.max(1, size), ("%s: result %d is off by %g of %g"):format(name, i, off,
      size))
  end
end

for _, size in ipairs { { 1, 1, 1, 1 }, { 2, 2, 3, 1 }, { 21, 21, 4, 5 }, { 9, 34, 8, 3 },
  { 131, 131, 2, 3 } } do
  local m, n, w, c = table.unpack(size)
  test(("%d queries of %d keys, with every option"):format(m, n), function()
    local s = core.stream(1, "attention")
    local rows = { {}, {} }
    for i = 1, n do rows[1][i], rows[2][i] = i % 3 == 2 and 0 or 1, 1 end
    local mask = core.tensor(rows)
    local every = m > 100 and core.device() ~= "cpu" and 9 or 1 -- an emulated GPU is slow
    for choice = 0, 31, every do
      local function has(bit) return choice & bit ~= 0 end
      local inputs = { random(s, B, H, m, w), random(s, B, H, n, w), random(s, B, H, n, c) }
      local o = { scale = SCALE, causal = has(1), window = has(2) and WINDOW or nil,
        mask = has(8) and not has(2) and mask or nil }
      if has(4) then o.bias = random(s, H, m + n - 1) end
      if has(16) then o.dropout, o.stream = 0.3, core.stream(2, "dropout") end
      inputs[4] = o.bias
      close(inputs, o, "options " .. choice)
    end
  end)
end

test("a query that sees no key gets 0, and sends nothing back", function()
  local s = core.stream(1, "attention")
  local inputs = { random(s, 1, 1, 3, 2), random(s, 1, 1, 3, 2), random(s, 1, 1, 3, 2) }
  local mask = core.tensor { { 0, 1, 1 } }
  local list = all(core.attention, inputs, { scale = 1, causal = true, mask = mask })
  for _, x in ipairs(list) do t.eq(x:totable()[1][1][1], { 0, 0 }) end
  t.ok(list[1]:get(1, 1, 2, 1) ~= 0)
end)

test("a window may be wider than any sequence", function()
  local x = core.tensor { { { 1, 2, 3 }, { -1, 0, 1 },
    { 2, -2, 0 }, { 0, 1, 1 }, { 3, 0, -1 } } }
  for _, causal in ipairs { true, false } do
    t.eq(core.attention(x, x, x, { scale = 1, causal = causal, window = math.maxinteger }),
      core.attention(x, x, x, { scale = 1, causal = causal }))
  end
end)

test("wrong options are named", function()
  local x = core.zeros(2, 4, 3)
  raises(core.attention, "bad argument #4", x, x, x)
  raises(core.attention, "option 'scale' is required", x, x, x, {})
  raises(core.attention, "causal is number", x, x, x, { scale = 1, causal = 0 })
  raises(core.attention, "one argument too many", x, x, x, { scale = 1 }, 7)
  raises(core.attention, "lengths", x, x, x, { scale = 1, lengths = x })
  raises(core.attention, "mask is not an open tensor %(number%)", x, x, x, { scale = 1, mask = 3 })
  raises(core.attention, "stream is string", x, x, x, { scale = 1, stream = "dropout" })
  raises(core.attention, "dropout needs a stream", x, x, x, { scale = 1, dropout = 0.5 })
  raises(core.attention, "dropout is 1, not in", x, x, x, { scale = 1, dropout = 1 })
  raises(core.attention, "the mask is %[2,3%]", x, x, x, { scale = 1, mask = core.zeros(2, 3) })
end)

t.done()
