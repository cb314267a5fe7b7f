-- test_scans.lua -- the selective scan, the gated linear recurrence, the recurrences of Toeplitz
-- operators and sums over poles on every device: their definitions in Lua, their gradients, and the
-- borders of chunks.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

-- Uniform in low..high.
local function between(low, high, ...)
  return tl.stream_of("test"):uniform(core.zeros(...), low, high)
end

local function close(got, want, name)
  local size = core.abs(want:reshape(-1)):amax():item()
  local off = core.abs((got - want):reshape(-1)):amax():item()
  ok(off <= 1e-5 * size, ("%s: off by %g of %g"):format(name, off, size))
end

local function check_gradients(fn, inputs, name)
  for i, input in ipairs(inputs) do inputs[i] = input:require_grad() end
  local worst = tl.gradcheck(function() return fn(table.unpack(inputs)) end, inputs, { most = 5 })
  ok(worst < 1e-2, ("%s: %g"):format(name, worst))
end

-- {b, n, d, s}: one and several blocks of a GPU's channels and states, chunks cut and whole.
local sizes = { { 2, 1, 3, 1 }, { 1, 63, 2, 3 }, { 2, 64, 40, 4 }, { 1, 65, 33, 9 },
  { 1, 130, 5, 17 } }

local function selective_inputs(b, n, d, s)
  return { random(b, n, d), between(0.05, 0.5, b, n, d), between(-2, -0.1, d, s), random(b, n, s),
    random(b, n, s), random(d) }
end

local function selective(x, delta, a, b, c, skip)
  local y = {}
  x, delta, a, b, c = x:totable(), delta:totable(), a:totable(), b:totable(), c:totable()
  skip = skip and skip:totable()
  for p = 1, #x do
    local h = {}
    y[p] = {}
    for i = 1, #x[p] do
      y[p][i] = {}
      for e = 1, #a do
        h[e] = h[e] or {}
        local step, sum = delta[p][i][e], skip and skip[e] * x[p][i][e] or 0
        for k = 1, #a[e] do
          h[e][k] = math.exp(step * a[e][k]) * (h[e][k] or 0) + step * x[p][i][e] * b[p][i][k]
          sum = sum + h[e][k] * c[p][i][k]
        end
        y[p][i][e] = sum
      end
    end
  end
  return core.tensor(y)
end

test("selective scan: its definition and gradients, with and without skip", function()
  for _, size in ipairs(sizes) do
    local name, inputs = table.concat(size, ","), selective_inputs(table.unpack(size))
    close(core.selective_scan(table.unpack(inputs)), selective(table.unpack(inputs)), name)
    check_gradients(core.selective_scan, inputs, name)
    core.tape_clear()
    close(core.selective_scan(table.unpack(inputs, 1, 5)), selective(table.unpack(inputs, 1, 5)),
      name)
    check_gradients(core.selective_scan, { table.unpack(inputs, 1, 5) }, name)
    core.tape_clear()
  end
end)

-- {b, n, h, k, v, g}
local heads = { { 2, 1, 2, 3, 2, 1 }, { 1, 63, 1, 9, 2, 9 }, { 2, 64, 3, 2, 17, 1 },
  { 1, 65, 2, 8, 9, 8 }, { 1, 130, 2, 17, 3, 1 }, { 2, 66, 1, 1, 1, 1 },
  { 1, 65, 1, 40, 35, 40 }, { 1, 130, 70, 1, 1, 1 } }

local function linear_inputs(b, n, h, k, v, g)
  return { random(b, n, h, k), random(b, n, h, k), random(b, n, h, v), between(-1, -0.05, b, n, h,
    g) }
end

local function linear(q, k, v, g)
  local y = {}
  q, k, v, g = q:totable(), k:totable(), v:totable(), g:totable()
  for p = 1, #q do
    local s = {}
    y[p] = {}
    for i = 1, #q[p] do
      y[p][i] = {}
      for h, query in ipairs(q[p][i]) do
        s[h], y[p][i][h] = s[h] or {}, {}
        for c = 1, #query do
          s[h][c] = s[h][c] or {}
          local fade = math.exp(g[p][i][h][c] or g[p][i][h][1])
          for m, value in ipairs(v[p][i][h]) do
            s[h][c][m] = fade * (s[h][c][m] or 0) + k[p][i][h][c] * value
            y[p][i][h][m] = (y[p][i][h][m] or 0) + query[c] * s[h][c][m]
          end
        end
      end
    end
  end
  return core.tensor(y)
end

test("linear recurrence: its definition and gradients, with either form of decay", function()
  for _, size in ipairs(heads) do
    local name, inputs = table.concat(size, ","), linear_inputs(table.unpack(size))
    close(core.linear_recurrence(table.unpack(inputs)), linear(table.unpack(inputs)), name)
    check_gradients(core.linear_recurrence, inputs, name)
    core.tape_clear()
  end
end)

test("strong decays: nothing overflows, and the gradients of the decays are those by differences",
  function()
    local q, k, v = random(1, 80, 1, 2), random(1, 80, 1, 2), random(1, 80, 1, 2)
    local g = between(-30, -0.01, 1, 80, 1, 2)
    close(core.linear_recurrence(q, k, v, g), linear(q, k, v, g), "strong")
    check_gradients(core.linear_recurrence, { q, k, v, g }, "strong")
  end)

-- {r, d, m, f}: one state and one node, and several threads and blocks of a GPU.
local poles_sizes = { { 1, 1, 1, 1 }, { 4, 3, 1, 40 }, { 6, 2, 5, 255 }, { 2, 5, 3, 300 } }

-- v, poles, nodes: all poles are left of the imaginary axis.
local function cauchy_inputs(r, d, m, f)
  return { random(r, d, m, 2), between(-3, -0.1, d, m, 2) }, between(0, 5, f, 2)
end

local function cauchy(v, poles, nodes, pairs)
  local y = {}
  v, poles, nodes = v:totable(), poles:totable(), nodes:totable()
  for r = 1, #v do
    y[r] = {}
    for c = 1, #poles do
      y[r][c] = {}
      for f, g in ipairs(nodes) do
        local re, im = 0, 0
        for k, pole in ipairs(poles[c]) do
          for sign = 1, pairs and -1 or 1, -2 do -- the pole, and its conjugate
            local x, z = g[1] - pole[1], g[2] - sign * pole[2]
            local v_re, v_im, size = v[r][c][k][1], sign * v[r][c][k][2], x * x + z * z
            re, im = re + (v_re * x + v_im * z) / size, im + (v_im * x - v_re * z) / size
          end
        end
        y[r][c][f] = { re, im }
      end
    end
  end
  return core.tensor(y)
end

test("sums over poles: their definition and gradients, with and without conjugate pairs", function()
  for _, size in ipairs(poles_sizes) do
    for _, pairs in ipairs { false, true } do
      local inputs, nodes = cauchy_inputs(table.unpack(size))
      local name = table.concat(size, ",") .. (pairs and ", pairs" or "")
      close(core.cauchy(inputs[1], inputs[2], nodes, pairs),
        cauchy(inputs[1], inputs[2], nodes, pairs), name)
      check_gradients(function(v, poles) return core.cauchy(v, poles, nodes, pairs) end, inputs,
        name)
      core.tape_clear()
    end
  end
end)

test("sums over poles: beside a pole far from the origin no digits are lost", function()
  local nodes = core.tensor { { 0, 1300 }, { 0, 100 } }
  local poles = core.tensor { { { -2 ^ -20, 1300 }, { -2 ^ -20, 100 } } }
  local v = random(1, 1, 2, 2)
  close(core.cauchy(v, poles, nodes, true), cauchy(v, poles, nodes, true), "beside")
end)

test("no tokens and no channels", function()
  for _, size in ipairs { { 2, 0, 3, 2 }, { 0, 4, 3, 2 }, { 2, 4, 0, 2 }, { 2, 4, 3, 0 } } do
    local inputs = selective_inputs(table.unpack(size))
    for i, input in ipairs(inputs) do inputs[i] = input:require_grad() end
    core.selective_scan(table.unpack(inputs)):sum():backward()
    for _, input in ipairs(inputs) do
      local moved = input == inputs[1] or input == inputs[6] -- by skip, without a state
      eq(input:grad():shape(), input:shape())
      if not moved then eq(core.abs(input:grad()):sum():item(), 0) end
    end
  end
  for _, size in ipairs { { 2, 0, 1, 2, 2, 2 }, { 2, 3, 1, 0, 2, 1 }, { 2, 3, 1, 2, 0, 2 } } do
    local inputs = linear_inputs(table.unpack(size))
    for i, input in ipairs(inputs) do inputs[i] = input:require_grad() end
    local y = core.linear_recurrence(table.unpack(inputs))
    eq(core.abs(y):sum():item(), 0)
    y:sum():backward()
    for _, input in ipairs(inputs) do eq(core.abs(input:grad()):sum():item(), 0) end
  end
  for _, size in ipairs { { 0, 2, 3, 4 }, { 2, 0, 3, 4 }, { 2, 3, 0, 4 }, { 2, 3, 4, 0 } } do
    local inputs, nodes = cauchy_inputs(table.unpack(size))
    for i, input in ipairs(inputs) do inputs[i] = input:require_grad() end
    local y = core.cauchy(inputs[1], inputs[2], nodes, true)
    eq(y:shape(), { size[1], size[2], size[4], 2 })
    eq(core.abs(y):sum():item(), 0)
    y:sum():backward()
    for _, input in ipairs(inputs) do eq(core.abs(input:grad()):sum():item(), 0) end
  end
end)

test("results repeat exactly, with and without a gradient", function()
  local a, b = selective_inputs(2, 150, 40, 5), linear_inputs(2, 150, 2, 9, 7, 9)
  local function both()
    return core.selective_scan(table.unpack(a)), core.linear_recurrence(table.unpack(b))
  end
  local y, z = both()
  for _, list in ipairs { a, b } do
    for i, input in ipairs(list) do list[i] = input:require_grad() end
  end
  local again, z_again = both()
  eq(t.bits { y, z }, t.bits { again, z_again })
  local seen = {}
  for run = 1, 2 do
    for _, list in ipairs { a, b } do
      for _, input in ipairs(list) do input:set_grad(nil) end
    end
    core.tape_clear()
    y, z = both();
    (y:sum() + z:sum()):backward()
    local grads = {}
    for i, input in ipairs(a) do grads[i] = input:grad():clone() end
    for i, input in ipairs(b) do grads[#a + i] = input:grad():clone() end
    seen[run] = t.bits(grads)
  end
  eq(seen[1], seen[2])
end)

-- ---- Toeplitz recurrences -----------------------------------------------------------------------

-- Returns y [b,n,d] of the kernel gamma^k t_k, in float64, as a table.
local function toeplitz(kernel, gamma, x)
  local list, t = {}, kernel:totable()
  for s, rows in ipairs(x:totable()) do
    list[s] = {}
    for i = 1, #rows do
      list[s][i] = {}
      for c = 1, #rows[i] do
        local sum = 0.0
        for k = 0, math.min(i, #t) - 1 do sum = sum + gamma ^ k * t[k + 1][c] * rows[i - k][c] end
        list[s][i][c] = sum
      end
    end
  end
  return list
end

-- {sequences, positions, channels, lags}: lanes that are full or not, rings that fill and that turn
for _, o in ipairs { { 1, 1, 1, 1 }, { 2, 9, 3, 4 }, { 1, 40, 16, 17 }, { 3, 30, 17, 64 },
  { 2, 70, 33, 20 } } do
  local b, n, d, lags = table.unpack(o)
  local kernel, x = random(lags, d), random(b, n, d)
  for _, form in ipairs { "ring", "exact" } do
    test(("a recurrence, %s, equals its sum: %d sequences, %d positions, %d channels, %d lags")
      :format(form, b, n, d, lags), function()
      local want = toeplitz(kernel, 0.95, x)
      local r <close> = core.recurrence(kernel, core.tensor { 0.95 }, form, b)
      eq(r:step(x), want, 1e-4) -- to be forgotten
      r:reset()
      local list, at = {}, 1
      for _, count in ipairs { n // 3, 1, n } do -- several positions, one, and the rest in place
        count = math.min(count, n - at + 1)
        if count > 0 then
          local part = x:narrow(2, at, count):clone()
          list[#list + 1] = at > n // 3 and r:step(part, part) or r:step(part)
          at = at + count
        end
      end
      eq(core.concat(list, 2), want, 1e-4)
      local fork <close> = r:fork()
      for i = 1, n do
        eq(fork:step(x:narrow(2, i, 1)), core.tensor(want):narrow(2, i, 1):totable(), 1e-4)
      end
    end)
  end
end

-- ---- Errors -----------------------------------------------------------------------------------

test("wrong shapes are named", function()
  local x, a, b = core.zeros(2, 3, 4), core.zeros(4, 5), core.zeros(2, 3, 5)
  raises(core.selective_scan, "delta is %[2,3,5%]", x, b, a, b, b)
  raises(core.selective_scan, "a is %[4,5%], c is %[2,3,4%]", x, x, a, b, x)
  raises(core.selective_scan, "bad argument #5", x, x, a, b)
  local q = core.zeros(1, 3, 2, 4)
  raises(core.linear_recurrence, "g is %[1,3,2,3%]", q, q, q, core.zeros(1, 3, 2, 3))
  raises(core.linear_recurrence, "q is %[2,3,4%]", x, x, x, x)
  local v, poles, nodes = core.zeros(1, 3, 2, 2), core.zeros(3, 2, 2), core.zeros(5, 2)
  raises(core.cauchy, "v is %[3,2,2%], not %[r,d,m,2%]", poles, poles, nodes)
  raises(core.cauchy, "poles is %[5,2%], not %[3,2,2%]", v, nodes, nodes)
  raises(core.cauchy, "nodes is %[3,2,2%], not %[f,2%]", v, poles, poles)
  raises(core.cauchy, "nodes %[5,2%] requires a gradient", v, poles, nodes:require_grad())
end)

t.done()
