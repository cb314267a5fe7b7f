-- test_mixers_scans.lua -- layers whose decay depends on the input: that they are the formulas of
-- their papers, written out densely here; that they see no future; their gradients and errors.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local delta_rule = require "toeplab.nn.mixers.states.delta_rule"
local mixers = require "toeplab.nn.mixers"

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

local function largest(x) return core.abs(x:reshape(-1)):amax():item() end

local all = {
  { "mamba", { state = 3, dt_rank = 2 } },
  { "ssd", { state = 3, head_dim = 6, expand = 3 } },
  { "hgrn", { lower = 0.3 } },
  { "hgrn2", { head_dim = 4 } },
  { "hgrn2", { lower = 0.5 } },
  { "gla", { heads = 2, rank = 3 } },
  { "retention", { heads = 2 } },
  { "delta_net", { heads = 2 } },
  { "delta_net", { heads = 1, taps = 1, beta_max = 2 } },
  { "gated_delta_net", { heads = 2 } },
  { "gru", {} },
  { "lstm", {} },
}

local function each(fn)
  for _, entry in ipairs(all) do
    tl.seed(1)
    fn(mixers.class(entry[1])(8, entry[2]), entry[1])
    core.tape_clear()
  end
end

-- ---- All of them --------------------------------------------------------------------------------

test("gradients agree with differences", function()
  each(function(mixer, name)
    -- As initialised, the steps and what depends on them are too small for differences.
    for _, p in ipairs(mixer:parameters()) do tl.stream_of("test"):normal(p.tensor, 0, 0.7) end
    local x, tensors = random(2, 6, 8):require_grad(), mixer:parameters()
    tensors[#tensors + 1] = { name = "x", tensor = x }
    local worst = tl.gradcheck(function() return mixer(x) end, tensors, { most = 6, step = 3e-3 })
    ok(worst < 2e-2, ("%s: %g"):format(name, worst))
  end)
end)

test("no layer sees a later token, at lengths within, at and beyond a chunk", function()
  each(function(mixer, name)
    for _, n in ipairs { 2, 3, 63, 64, 65, 131 } do
      local x, seen = random(2, n, 8), n // 2
      local y = core.no_grad(mixer.forward, mixer, x)
      eq(y:shape(), { 2, n, 8 })
      local other = core.concat({ x:narrow(2, 1, seen), random(2, n - seen, 8) }, 2)
      local z = core.no_grad(mixer.forward, mixer, other)
      eq(largest((y - z):narrow(2, 1, seen)), 0.0)
      ok(largest((y - z):narrow(2, seen + 1, n - seen)) > 1e-3, name)
    end
  end)
end)

test("a layer with another's loaded state equals it", function()
  each(function(mixer, name)
    local x = random(1, 5, 8)
    local y = core.no_grad(mixer.forward, mixer, x)
    tl.seed(2)
    local again = mixers.class(name)(8, mixer.opt):load(mixer:state())
    eq(core.no_grad(again.forward, again, x), y)
  end)
end)

-- ---- Formulas -----------------------------------------------------------------------------------

-- s_i = sum over j <= i of q_i . (exp(g_(j+1) + .. + g_i) * k_j) v_j of one head, position by
-- position.   q, k, g [n][w]   v [n][w']
local function dense(q, k, v, g)
  local out = {}
  for i = 1, #q do
    local faded = {}
    out[i] = {}
    for m = 1, #v[1] do out[i][m] = 0 end
    for c = 1, #q[1] do faded[c] = 0 end
    for j = i, 1, -1 do
      local weight = 0
      for c = 1, #q[1] do
        weight = weight + q[i][c] * math.exp(faded[c]) * k[j][c]
        faded[c] = faded[c] + g[j][c]
      end
      for m = 1, #v[1] do out[i][m] = out[i][m] + weight * v[j][m] end
    end
  end
  return out
end

-- The same for all heads of x [1,n,heads w], as [1,n,heads w'].
local function dense_heads(heads, q, k, v, g)
  local parts = {}
  for head = 1, heads do
    local function part(x)
      local w = x:dim(3) // heads
      return x:narrow(3, (head - 1) * w + 1, w):totable()[1]
    end
    parts[head] = core.tensor { dense(part(q), part(k), part(v), part(g)) }
  end
  return core.concat(parts, 3)
end

-- Compares a layer with formula(x) at lengths within and beyond a chunk.
local function compare(mixer, formula)
  for _, n in ipairs { 1, 5, 70 } do
    local x = random(1, n, mixer.opt.dim)
    local y, want = core.no_grad(mixer.forward, mixer, x), core.no_grad(formula, x)
    ok(largest(y - want) < 2e-5 * largest(want), ("%d: %g of %g"):format(n, largest(y - want),
      largest(want)))
  end
end

local function times(x, weight) return core.matmul(x, weight, false, true) end

local function rms(x, weight)
  return x / core.sqrt(core.affine((x * x):mean(3, true), 1, 1e-6)) * weight
end

test("HGRN2 is its formula, with any lower bound", function()
  for _, lower in ipairs { 0, 0.3 } do
    tl.seed(3)
    local mixer = mixers.class "hgrn2"(6, { head_dim = 2, lower = lower })
    compare(mixer, function(x)
      local f = core.affine(core.sigmoid(times(x, mixer.f.weight)), 1 - lower, lower)
      local q = core.silu(times(x, mixer.q.weight))
      local s = dense_heads(3, q, core.affine(f, -1, 1), times(x, mixer.v.weight), core.log(f))
      return times(rms(s, mixer.norm.weight), mixer.o.weight)
    end)
  end
end)

test("HGRN is its recurrence of complex numbers", function()
  tl.seed(6)
  local d, n = 3, 7
  local mixer, x = mixers.class "hgrn"(d, { lower = 0.2 }), random(2, 7, 3)
  local function gate(linear) return core.sigmoid(linear(x)) end
  local f, re, im = gate(mixer.f), core.silu(mixer.re(x)), core.silu(mixer.im(x))
  local states = core.zeros(2, n, 2 * d)
  for b = 1, 2 do
    for c = 1, d do
      local h_re, h_im, theta = 0, 0, 10000 ^ (-2 * (c - 1) / d)
      for i = 1, n do
        local keep = 0.2 + 0.8 * f:get(b, i, c)
        local cos, sin = keep * math.cos(theta), keep * math.sin(theta)
        h_re, h_im = cos * h_re - sin * h_im + (1 - keep) * re:get(b, i, c),
          sin * h_re + cos * h_im + (1 - keep) * im:get(b, i, c)
        local at = ((b - 1) * n + i - 1) * 2 * d + c - 1
        states:view(at, { 1 }):fill(h_re)
        states:view(at + d, { 1 }):fill(h_im)
      end
    end
  end
  local want = mixer.o(mixer.norm(states * gate(mixer.g)))
  ok(largest(mixer(x) - want) < 1e-5 * largest(want))
end)

test("HGRN2 stays finite where a gate forgets everything", function()
  tl.seed(4)
  local mixer = mixers.class "hgrn2"(4)
  mixer.f.weight:fill(100)
  local x = core.full({ 1, 70, 4 }, -3):require_grad()
  local y = mixer(x)
  local size = largest(y)
  y:sum():backward()
  ok(size < 1e3 and largest(x:grad()) < 1e3)
end)

test("GLA is its formula", function()
  tl.seed(5)
  local mixer = mixers.class "gla"(8, { heads = 2, rank = 3 })
  compare(mixer, function(x)
    local gate = times(times(x, mixer.narrow_gate.weight), mixer.gate.weight) + mixer.gate.bias
    local g = core.affine(core.log(core.sigmoid(gate)), 1 / 16, 0)
    local s = dense_heads(2, core.affine(times(x, mixer.q.weight), math.sqrt(0.5), 0),
      times(x, mixer.k.weight), times(x, mixer.v.weight), g)
    local parts = {}
    for head = 1, 2 do
      local one = s:narrow(3, 4 * head - 3, 4)
      one = one - one:mean(3, true)
      parts[head] = one / core.sqrt(core.affine((one * one):mean(3, true), 1, 1e-5))
    end
    local r = times(x, mixer.r.weight) + mixer.r.bias
    return times(core.silu(r) * core.concat(parts, 3), mixer.o.weight)
  end)
end)

-- The causal depthwise convolution of u [1,n,w], summed over the taps.
local function short_conv(u, taps, bias)
  local y, n = u * taps:narrow(1, 1, 1), u:dim(2)
  for lag = 1, math.min(taps:dim(1), n) - 1 do
    local moved = core.concat({ core.zeros(1, lag, u:dim(3)), u:narrow(2, 1, n - lag) }, 2)
    y = y + moved * taps:narrow(1, lag + 1, 1)
  end
  return core.silu(y + bias)
end

test("SSD is its formula", function()
  tl.seed(6)
  local heads, w, state = 2, 8, 3
  local mixer = mixers.class "ssd"(4, { head_dim = 4, state = state, expand = 2 })
  -- [1,n,heads] with each entry count times: of one head after the other
  local function spread(x, count)
    local n = x:dim(2)
    return (x:reshape(1, n, heads, 1) * core.ones(1, 1, 1, count)):reshape(1, n, heads * count)
  end
  compare(mixer, function(x)
    local parts = times(x, mixer.input.weight)
    local z, r = parts:narrow(3, 1, w), parts:narrow(3, 2 * w + 2 * state + 1, heads)
    local mixed = short_conv(parts:narrow(3, w + 1, w + 2 * state), mixer.conv.taps,
      mixer.conv_bias)
    local u, b, c = mixed:narrow(3, 1, w), mixed:narrow(3, w + 1, state),
      mixed:narrow(3, w + state + 1, state)
    local delta = core.softplus(r + mixer.step_bias)
    local decay = spread(-delta * core.exp(mixer.a_log), state)
    local s = dense_heads(heads, core.concat({ c, c }, 3), core.concat({ b, b }, 3),
      u * spread(delta, w // heads), decay)
    s = s + u * spread(mixer.skip:reshape(1, 1, heads), w // heads)
    return times(rms(s * core.silu(z), mixer.norm.weight), mixer.o.weight)
  end)
end)

test("Mamba is its formula", function()
  tl.seed(7)
  local w, state, rank = 8, 3, 2
  local mixer = mixers.class "mamba"(4, { state = state, dt_rank = rank })
  compare(mixer, function(x)
    local parts = times(x, mixer.input.weight)
    local u = short_conv(parts:narrow(3, 1, w), mixer.conv.taps, mixer.conv_bias)
    local chosen = times(u, mixer.choice.weight)
    local delta = core.softplus(times(chosen:narrow(3, 1, rank), mixer.step.weight)
      + mixer.step_bias)
    local a, b = mixer.a_log:totable(), chosen:narrow(3, rank + 1, state):totable()[1]
    local c, skip = chosen:narrow(3, rank + state + 1, state):totable()[1], mixer.skip:totable()
    local us, steps, h, y = u:totable()[1], delta:totable()[1], {}, {}
    for i = 1, #us do
      y[i] = {}
      for e = 1, w do
        h[e], y[i][e] = h[e] or {}, skip[e] * us[i][e]
        for k = 1, state do
          h[e][k] = math.exp(-math.exp(a[e][k]) * steps[i][e]) * (h[e][k] or 0)
            + steps[i][e] * us[i][e] * b[i][k]
          y[i][e] = y[i][e] + c[i][k] * h[e][k]
        end
      end
    end
    return times(core.tensor { y } * core.silu(parts:narrow(3, w + 1, w)), mixer.o.weight)
  end)
end)

test("Retention is its formula", function()
  tl.seed(9)
  local mixer = mixers.class "retention"(8, { heads = 2, expand = 2 })
  -- Turns the pairs of channels i and i + 2 of each head of x [1,n,8].
  local function turned(x)
    local rows = x:totable()[1]
    for t, row in ipairs(rows) do
      for head = 0, 1 do
        for i = 1, 2 do
          local angle, at = (t - 1) * 10000 ^ (-(i - 1) / 2), 4 * head + i
          local a, b = row[at], row[at + 2]
          row[at] = a * math.cos(angle) - b * math.sin(angle)
          row[at + 2] = b * math.cos(angle) + a * math.sin(angle)
        end
      end
    end
    return core.tensor { rows }
  end
  compare(mixer, function(x)
    local decays = {}
    for c = 1, 8 do decays[c] = math.log(1 - 2.0 ^ (c <= 4 and -5 or -6)) end
    local g = core.tensor(decays):reshape(1, 1, 8) * core.ones(1, x:dim(2), 1)
    local s = dense_heads(2, core.affine(turned(times(x, mixer.q.weight)), 0.5, 0),
      turned(times(x, mixer.k.weight)), times(x, mixer.v.weight), g)
    local parts = {}
    for head = 1, 2 do
      local one = s:narrow(3, 8 * head - 7, 8)
      one = one - one:mean(3, true)
      parts[head] = one / core.sqrt(core.affine((one * one):mean(3, true), 1, 1e-5))
    end
    return times(core.silu(times(x, mixer.gate.weight)) * core.concat(parts, 3), mixer.o.weight)
  end)
end)

test("GRU and LSTM are their formulas", function()
  local function logistic(v) return 1 / (1 + math.exp(-v)) end
  for name, gates in pairs { gru = 3, lstm = 4 } do
    tl.seed(11)
    local mixer = mixers.class(name)(4)
    local ih, hh = mixer.ih.weight:totable(), mixer.hh.weight:totable()
    local b, c = mixer.ih.bias:totable(), mixer.hh.bias:totable()
    compare(mixer, function(x)
      local y, h, cell = {}, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }
      for t, row in ipairs(x:totable()[1]) do
        -- Entries i, d + i, ... of a and u are the parts of the gates of channel i.
        local a, u, new = {}, {}, {}
        for i = 1, 4 * gates do
          a[i], u[i] = b[i], c[i]
          for j = 1, 4 do a[i], u[i] = a[i] + ih[i][j] * row[j], u[i] + hh[i][j] * h[j] end
        end
        for i = 1, 4 do
          local function both(k) return a[4 * k + i] + u[4 * k + i] end
          if name == "gru" then
            local m = 2 * logistic(2 * (a[8 + i] + logistic(both(0)) * u[8 + i])) - 1 -- tanh
            new[i] = (1 - logistic(both(1))) * m + logistic(both(1)) * h[i]
          else
            local g = 2 * logistic(2 * both(2)) - 1 -- tanh
            cell[i] = logistic(both(1)) * cell[i] + logistic(both(0)) * g
            new[i] = logistic(both(3)) * (2 * logistic(2 * cell[i]) - 1)
          end
        end
        y[t], h = new, new
      end
      return core.tensor { y }
    end)
  end
end)

-- ---- The delta rule -----------------------------------------------------------------------------

-- Returns y [n][w] of one head of delta_rule.apply, position by position, and the last state.
local function delta(q, k, v, beta, g)
  local s, y = {}, {}
  for c = 1, #k[1] do
    s[c] = {}
    for e = 1, #v[1] do s[c][e] = 0 end
  end
  for t = 1, #q do
    y[t] = {}
    for e = 1, #v[1] do
      local said = 0
      for c = 1, #k[1] do
        s[c][e] = math.exp(g[t][1]) * s[c][e]
        said = said + s[c][e] * k[t][c]
      end
      y[t][e] = 0
      for c = 1, #k[1] do
        s[c][e] = s[c][e] + beta[t][1] * k[t][c] * (v[t][e] - said)
        y[t][e] = y[t][e] + s[c][e] * q[t][c]
      end
    end
  end
  return y, s
end

test("the delta rule in chunks equals it position by position, even if keys repeat", function()
  local of_size = delta_rule.cache()
  for _, n in ipairs { 1, 2, 31, 32, 33, 100 } do
    for _, kind in ipairs { "random", "equal keys", "no decay", "twice" } do
      local b, h, m, w = 2, 3, 4, 5
      local function unit(x) return x / core.sqrt((x * x):sum(4, true)) end
      local q, k, v = random(b, n, h, m), unit(random(b, n, h, m)), random(b, n, h, w)
      if kind == "equal keys" then k = k:narrow(2, 1, 1) * core.ones(1, n, 1, 1) end
      local beta = core.affine(core.sigmoid(random(b, n, h, 1)), kind == "twice" and 2 or 1, 0)
      if kind == "equal keys" then beta:fill(1) end
      local g = -core.exp(random(b, n, h, 1))
      if kind ~= "random" then g:fill(0) end
      local got, last = delta_rule.apply(of_size, q, k, v, beta, kind ~= "no decay" and g or nil)
      for row = 1, b do
        for head = 1, h do
          local function of(x) return x:narrow(1, row, 1):narrow(3, head, 1):reshape(n, -1) end
          local function list(x) return of(x):totable() end
          local want, state = delta(list(q), list(k), list(v), list(beta), list(g))
          local what = ("%s, %d"):format(kind, n)
          ok(largest(of(got) - core.tensor(want)) < 2e-5 * (1 + largest(core.tensor(want))), what)
          local of_head = last:narrow(1, row, 1):narrow(2, head, 1):reshape(m, w)
          ok(largest(of_head - core.tensor(state)) < 2e-5 * (1 + largest(of_head)), what)
        end
      end
    end
  end
end)

-- What a layer has to do besides: norms of lengths, convolutions, gates.
test("DeltaNet and GatedDeltaNet are their formulas", function()
  for _, name in ipairs { "delta_net", "gated_delta_net" } do
    tl.seed(10)
    local gated, n = name == "gated_delta_net", 40
    local mixer = mixers.class(name)(8, { heads = 2 })
    local x = random(1, n, 8)
    local none = core.zeros(1)
    local function mixed(part)
      return short_conv(times(x, mixer[part].weight), mixer[part .. "_conv"].taps, none)
    end
    local beta = core.sigmoid(times(x, mixer.beta.weight))
    local g = gated and -core.exp(mixer.a_log)
      * core.softplus(times(x, mixer.decay.weight) + mixer.step_bias) or core.zeros(1, n, 2)
    local parts, width = {}, gated and 8 or 4
    for head = 1, 2 do
      local function of(y, w) return y:narrow(3, (head - 1) * w + 1, w) end
      local function unit(y)
        return y / core.sqrt(core.affine((y * y):sum(3, true), 1, 1e-6))
      end
      local s = delta(core.affine(unit(of(mixed "q", 4)), 0.5, 0):totable()[1],
        unit(of(mixed "k", 4)):totable()[1], of(mixed "v", width):totable()[1],
        of(beta, 1):totable()[1], of(g, 1):totable()[1])
      parts[head] = rms(core.tensor { s }, mixer.norm.weight)
    end
    local y = core.concat(parts, 3)
    if gated then y = y * core.silu(times(x, mixer.gate.weight)) end
    local want = times(y, mixer.o.weight)
    ok(largest(mixer(x) - want) < 1e-4 * largest(want), name)
    core.tape_clear()
  end
end)

test("initial values: steps from 0.001 to 0.1, and Mamba's decays 1..state", function()
  tl.seed(8)
  local mixer = mixers.class "mamba"(64)
  local dt = core.softplus(mixer.step_bias):totable()
  table.sort(dt)
  ok(dt[1] > 0.99e-3 and dt[1] < 2e-3 and dt[#dt] < 0.1001 and dt[#dt] > 0.05)
  eq(core.exp(mixer.a_log):narrow(1, 5, 1):reshape(-1), core.range(1, 16), 1e-4)
  eq(mixer.step.weight:dim(2), 4)
  local a = core.exp(mixers.class "ssd"(128, { head_dim = 8 }).a_log)
  ok(a:amax():item() <= 16 and (-a):amax():item() <= -1)
end)

test("errors name wrong options", function()
  for _, name in ipairs { "mamba", "ssd", "hgrn", "hgrn2", "gla", "retention", "delta_net",
    "gru", "lstm" } do
    raises(mixers.class(name), "option 'causal' = false: .* sees earlier tokens only", 8,
      { causal = false })
  end
  raises(mixers.class "ssd", "16 channels do not divide into heads of head_dim = 3", 8,
    { head_dim = 3 })
  raises(mixers.class "hgrn2", "8 channels do not divide into heads of head_dim = 3", 8,
    { head_dim = 3 })
  raises(mixers.class "gla", "dim = 8 must be a multiple of twice the heads, 6", 8, { heads = 3 })
  raises(mixers.class "delta_net", "8 channels do not divide into 3 heads", 8, { heads = 3 })
  raises(mixers.class "retention", "dim = 8 must be a multiple of twice the heads, 6", 8,
    { heads = 3 })
  raises(mixers.class "hgrn2", "option 'lower' = 1.0 must be between 0 and 0.999", 8,
    { lower = 1 })
end)

t.done()
