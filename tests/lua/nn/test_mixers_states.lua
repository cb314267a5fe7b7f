-- test_mixers_states.lua -- state space layers: that the fast forms are the recurrences that they
-- stand for, that causal ones see no future, and their gradients and errors.

local t = require "harness"
local kernels = require "kernels"
local tl = require "toeplab"
local core = require "toeplab.core"
local mixers = require "toeplab.nn.mixers"

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local random, largest, compare = kernels.random, kernels.largest, kernels.compare
local convolve = kernels.convolve

-- The mixers, with small options.
local all = {
  { "s4", { state = 4 } },
  { "s4", { state = 4, as_published = true } },
  { "s4", { state = 6, causal = false } },
  { "s4d", { state = 4 } },
  { "s4d", { state = 6, copies = 1, causal = false } },
  { "dss", { state = 3 } },
  { "dss", { state = 3, causal = false } },
  { "gss", { state = 3, inner = 5, expand = 2 } },
  { "gss", { state = 3, inner = 5, expand = 2, causal = false } },
}

kernels.tests(all)

-- ---- Complex numbers in Lua ---------------------------------------------------------------------

local function mul(a, b) return { a[1] * b[1] - a[2] * b[2], a[1] * b[2] + a[2] * b[1] } end
local function add(a, b) return { a[1] + b[1], a[2] + b[2] } end
local function scaled(a, s) return { a[1] * s, a[2] * s } end
local function over(a, b)
  return scaled(mul(a, { b[1], -b[2] }), 1 / (b[1] ^ 2 + b[2] ^ 2))
end
local function exp(a)
  return { math.exp(a[1]) * math.cos(a[2]), math.exp(a[1]) * math.sin(a[2]) }
end


test("exponentials are exact at high frequencies and long lags, and have their gradient", function()
  local modes = require "toeplab.nn.mixers.states.modes"
  local lags = core.tensor { 0, 1, 77, 1024, 4095, 64 * 511, -4095 }
  for _, w in ipairs { 0.7, 31.4159, -49.321 } do
    local im = core.tensor { w }
    local rate = im:item()
    local e_re, e_im = modes.exp(core.zeros(1), im, lags)
    local m_re, m_im = modes.expm1(core.full({ 1 }, -1e-3), im, core.tensor { 1e-2, 1 })
    for i, lag in ipairs(lags:totable()) do
      eq(e_re:get(i), math.cos(rate * lag), 2e-6)
      eq(e_im:get(i), math.sin(rate * lag), 2e-6)
    end
    eq(m_re:get(2), exp({ -1e-3, rate })[1] - 1, 2e-6)
    eq(m_im:get(2), exp({ -1e-3, rate })[2], 2e-6)
  end
  local re, im = core.tensor { -0.3, -0.1 }, core.tensor { 0.9, -2.5 }
  local x = core.tensor { 0, 1, 3 }:reshape(3, 1)
  for _, fn in ipairs { modes.exp, modes.expm1 } do
    local worst = tl.gradcheck(function()
      local a, b = fn(re:require_grad(), im:require_grad(), x)
      return core.concat({ a, b }, 1)
    end, { re, im })
    ok(worst < 1e-3, worst)
  end
end)

test("S4D's kernel agrees with its recurrence with zero-order hold", function()
  for _, o in ipairs { { state = 8 }, { state = 4, copies = 1, causal = false } } do
    tl.seed(3)
    local mixer = mixers.class "s4d"(3, o)
    local p = {}
    for _, name in ipairs { "log_dt", "a", "w", "c" } do p[name] = mixer.kernel[name]:totable() end
    compare(mixer, 21, function(channel, direction, l)
      local sum, row = 0, o.copies and 1 or channel
      for k = 1, o.state // 2 do
        local dt, a = math.exp(p.log_dt[channel]), { -math.exp(p.a[row][k]), p.w[row][k] }
        local hold = over(add(exp(scaled(a, dt)), { -1, 0 }), a)
        local turn = exp(scaled(a, dt * l))
        sum = sum + 2 * mul(mul(p.c[direction][channel][k], hold), turn)[1]
      end
      return sum
    end)
  end
end)

test("DSS's kernel is W/Lambda times a softmax over the positions, for either sign", function()
  for _, o in ipairs { { state = 4 }, { state = 4, causal = false, eps = 0 } } do
    tl.seed(4)
    local mixer, n = mixers.class "dss"(2, o), 19
    mixer.kernel.lambda:copy(core.tensor { { -0.5, 3 }, { 0.8, 2 }, { 2, -1 }, { -3, 0.5 } })
    mixer.kernel.log_dt:copy(core.tensor { { -1, -2 }, { -0.5, -1 } })
    local p = {}
    for _, name in ipairs { "log_dt", "lambda", "w" } do p[name] = mixer.kernel[name]:totable() end
    compare(mixer, n, function(channel, direction, l)
      local sum = 0
      for k = 1, o.state do
        local lambda, dt = p.lambda[k], p.log_dt[channel]
        local z = { lambda[1] * math.exp(dt[1]), lambda[2] * math.exp(dt[2]) }
        local total = { 0, 0 }
        for i = 0, n - 1 do total = add(total, exp(scaled(z, i))) end
        sum = sum + mul(over(p.w[direction][channel][k], lambda),
          over(exp(scaled(z, l)), total))[1]
      end
      return sum
    end)
  end
end)

test("DSS as published: only the gradient of growing modes differs", function()
  tl.seed(5)
  local x = random(1, 6, 2)
  local function gradient(as_published, sign)
    local mixer = mixers.class "dss"(2, { state = 2, as_published = as_published })
    mixer.kernel.w:fill(0.5)
    mixer.kernel.lambda:copy(core.tensor { { sign, 3 }, { sign * 2, 2 } })
    mixer.kernel.log_dt:fill(-1)
    local y = mixer.tno(x)
    y:sum():backward()
    return y, mixer.kernel.log_dt:grad()
  end
  tl.seed(5)
  local y, g = gradient(false, 1)
  tl.seed(5)
  local z, h = gradient(true, 1)
  eq(y, z)
  ok(largest((g - h):reshape(-1)) > 1e-2)
  tl.seed(6)
  y, g = gradient(false, -1)
  tl.seed(6)
  z, h = gradient(true, -1)
  eq(y, z)
  eq(g, h)
end)

test("GSS's kernel has one set of modes, and acts in both directions if not causal", function()
  for _, causal in ipairs { true, false } do
    tl.seed(7)
    local mixer = mixers.class "gss"(2, { state = 3, inner = 4, causal = causal })
    local p = {}
    for _, name in ipairs { "a", "w", "c" } do p[name] = mixer.kernel[name]:totable() end
    local function kernel(channel, _, l)
      local sum = 0
      for k = 1, 3 do
        local z = { -math.exp(p.a[k]), math.exp(p.w[k]) }
        local hold = over(add(exp(z), { -1, 0 }), z)
        sum = sum + mul(mul(p.c[channel][k], hold), exp(scaled(z, l)))[1]
      end
      return sum
    end
    if causal then
      compare(mixer, 11, kernel)
    else
      local x = random(1, 11, 4)
      local rows = {}
      for l = 0, 10 do
        rows[l + 1] = {}
        for c = 1, 4 do rows[l + 1][c] = kernel(c, 1, l) end
      end
      local once, flipped = convolve(x, rows, nil, mixer.kernel.skip:totable()[1]), {}
      for i, row in ipairs(x:totable()[1]) do flipped[12 - i] = row end
      flipped = convolve(core.tensor { flipped }, rows, nil, mixer.kernel.skip:totable()[1])
      for i = 1, 11 do
        for c = 1, 4 do once[i][c] = once[i][c] + flipped[12 - i][c] end
      end
      eq(core.no_grad(mixer.tno.forward, mixer.tno, x):totable()[1], once, 1e-4)
    end
  end
end)

-- ---- S4 -----------------------------------------------------------------------------------------

test("HiPPO-LegS: the modes are eigenvectors, and give back the vectors and the trace", function()
  local hippo = require "toeplab.nn.mixers.states.hippo"
  for _, size in ipairs { 2, 4, 16, 64 } do
    local w, p, b = hippo.normal_form(size)
    local squares, inputs, cross, want = 0, 0, 0, 0
    for m = 1, size // 2 do
      squares, inputs = squares + w[m] ^ 2, inputs + 2 * (b[m][1] ^ 2 + b[m][2] ^ 2)
      cross = cross + 2 * (p[m][1] * b[m][1] + p[m][2] * b[m][2])
      ok(w[m] < 0 and (m == 1 or w[m] < w[m - 1]))
    end
    local norm = 0 -- of S: twice the sum of the squares of the frequencies
    for j = 1, size do
      for k = 1, size do
        norm = norm + (j ~= k and (2 * j - 1) * (2 * k - 1) / 4 or 0)
      end
      want = want + math.sqrt((2 * j - 1) * (j - 0.5))
    end
    eq(2 * squares / norm, 1, 1e-9)
    eq(inputs / (size * size), 1, 1e-5)
    eq(cross / want, 1, 1e-5)
  end
  eq(hippo.frequencies(2)[1], math.sqrt(3) / 2, 1e-7)
end)

-- The kernel C Ad^l (I - dt A/2)^-1 dt B of a channel by the complex matrices in full.
local function s4_kernel(kernel, c, channel, direction, n)
  local m, p = kernel.opt.state // 2, {}
  for _, name in ipairs { "log_dt", "a", "w" } do p[name] = kernel[name]:totable()[channel] end
  local dt, lambda, low, b, row = math.exp(p.log_dt), {}, {}, {}, {}
  local ps, bs = kernel.p:totable()[1][channel], kernel.b:totable()[1][channel]
  for k = 1, m do
    local one = c[direction][channel][k]
    lambda[k], lambda[k + m] = { -math.exp(p.a[k]), p.w[k] }, { -math.exp(p.a[k]), -p.w[k] }
    low[k], low[k + m] = ps[k], { ps[k][1], -ps[k][2] }
    b[k], b[k + m] = bs[k], { bs[k][1], -bs[k][2] }
    row[k], row[k + m] = one, { one[1], -one[2] }
  end
  local function a_times(u) -- A u = lambda u - P (P^H u)
    local sum, v = { 0, 0 }, {}
    for k = 1, 2 * m do sum = add(sum, mul({ low[k][1], -low[k][2] }, u[k])) end
    for k = 1, 2 * m do v[k] = add(mul(lambda[k], u[k]), scaled(mul(low[k], sum), -1)) end
    return v
  end
  local function inverse(u) -- (I - dt A/2)^-1 u, by the series of Sherman and Morrison
    local diagonal, num, den, v = {}, { 0, 0 }, { 1, 0 }, {}
    for k = 1, 2 * m do diagonal[k] = over({ 1, 0 }, add({ 1, 0 }, scaled(lambda[k], -dt / 2))) end
    for k = 1, 2 * m do
      local left = mul({ low[k][1], -low[k][2] }, diagonal[k])
      num = add(num, mul(left, u[k]))
      den = add(den, scaled(mul(left, low[k]), dt / 2))
    end
    local factor = scaled(over(num, den), -dt / 2)
    for k = 1, 2 * m do v[k] = mul(diagonal[k], add(u[k], mul(low[k], factor))) end
    return v
  end
  local u, list = inverse(b), {}
  for l = 1, n do
    local sum = 0
    for k = 1, 2 * m do sum = sum + dt * mul(row[k], u[k])[1] end
    list[l] = sum
    local moved = a_times(u)
    for k = 1, 2 * m do moved[k] = add(u[k], scaled(moved[k], dt / 2)) end
    u = inverse(moved)
  end
  return list
end

test("S4's kernel agrees with its recurrence, even after the length has grown", function()
  for _, causal in ipairs { true, false } do
    tl.seed(8)
    local mixer = mixers.class "s4"(2, { state = 8, causal = causal })
    local c, rows = mixer.kernel.c:totable(), {}
    for channel = 1, 2 do
      for direction = 1, causal and 1 or 2 do
        rows[channel * 2 + direction] = s4_kernel(mixer.kernel, c, channel, direction, 30)
      end
    end
    local lengths = { [7] = 7, [5] = 7, [8] = 14, [30] = 56 }
    for _, n in ipairs { 7, 5, 8, 30 } do
      compare(mixer, n, function(channel, direction, l)
        return rows[channel * 2 + direction][l + 1]
      end)
      eq(mixer.kernel.length:totable(), { lengths[n] })
    end
  end
end)

test("layers at the sizes of the published models have their parameters", function()
  local function count(name, dim, o)
    return (tl.nn.without_init(mixers.class(name), dim, o or {}):count())
  end
  -- s4, dss: with an embedding [50264,512], two maps and a norm of width 1024
  local around = 50264 * 512 + 2 * 512 * 1024 + 2048
  eq(8 * count("s4", 1024) + around, 45692928)
  eq(16 * count("dss", 1024) + around, 45727744)
  eq(6 * count("gss", 512) + 50264 * 512 + 1024, 43844096)
  eq(14 * count("gss", 768, { causal = false }) + 2 * 768 + 50265 * 768 + 50265
    + 768 * 768 + 3 * 768, 122797657)
end)

test("errors name wrong options", function()
  raises(mixers.class "s4", "option 'state' = 5 must be even", 4, { state = 5 })
  raises(mixers.class "s4d", "option 'state' = 3 must be even", 4, { state = 3 })
  raises(mixers.class "s4d", "copies = 2 must be 1 or dim = 4", 4, { copies = 2 })
  raises(mixers.class "gss", "option 'inner' = 0 must be at least 1", 4, { inner = 0 })
end)

t.done()
