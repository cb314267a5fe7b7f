-- test_mixers_kernels.lua -- layers whose convolution has a free kernel: a table, scales, spectral
-- filters or a network.

local t = require "harness"
local kernels = require "kernels"
local tl = require "toeplab"
local core = require "toeplab.core"
local mixers = require "toeplab.nn.mixers"

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok
local random, largest, compare = kernels.random, kernels.largest, kernels.compare

kernels.tests {
  { "longconv", { length = 40, dropout = 0.0, squash = 1e-4 } },
  { "longconv", { length = 40, dropout = 0.0, squash = 1e-4, causal = false } },
  { "stu", { length = 40, filters = 6 } },
  { "sgconv", { length = 30, size = 4 } },
  { "sgconv", { length = 30, size = 4, causal = false } },
  { "hyena", { length = 40, width = 5, bands = 2 } },
  { "tmm", { length = 40, heads = 2 } },
}

test("LongConv's kernel is its table, squashed; what is dropped in training stays in evaluation",
  function()
    for _, causal in ipairs { true, false } do
      tl.seed(9)
      local mixer = mixers.class "longconv"(2, { length = 12, causal = causal, squash = 0.5 })
      tl.stream_of("test"):normal(mixer.kernel.k, 0, 1)
      mixer:eval()
      local k = mixer.kernel.k:totable()
      compare(mixer, 10, function(channel, direction, l)
        local value = k[direction][l + 1][channel]
        return (value < 0 and -1 or 1) * math.max(math.abs(value) - 0.5, 0)
      end)
      mixer:train()
      local x = random(1, 10, 2)
      local once = core.no_grad(mixer.forward, mixer, x)
      ok(largest((once - core.no_grad(mixer.forward, mixer, x)):reshape(-1)) > 1e-4)
    end
  end)

test("SGConv's kernel has scales that double, norm 1 at first, and ends at its length", function()
  for _, causal in ipairs { true, false } do
    tl.seed(12)
    local mixer = mixers.class "sgconv"(2, { length = 21, size = 3, causal = causal })
    local k = mixer.kernel.k:totable()
    eq(#k[1], 12) -- 3 + 3 + 6 + 12 lags, cut to 21
    local function value(channel, direction, l)
      if l >= 21 then return 0 end
      local first, scale, factor = 0, 1, 1
      for s = 1, 4 do
        factor = s < 3 and 1 or 2 ^ (s - 2)
        if l < first + 3 * factor then scale = s break end
        first = first + 3 * factor
      end
      local x = math.min(math.max((l - first + 0.5) / factor - 0.5, 0), 2)
      local low = math.min(x // 1 | 0, 1)
      local a, b = k[direction][3 * scale - 2 + low], k[direction][3 * scale - 1 + low]
      return (a[channel] * (1 - x + low) + b[channel] * (x - low)) * 2 ^ (4 - scale)
    end
    local norms = {}
    compare(mixer, 25, function(channel, direction, l)
      local key = channel * 2 + direction
      if not norms[key] then
        norms[key] = 0
        for i = 0, 20 do norms[key] = norms[key] + value(channel, direction, i) ^ 2 end
      end
      return value(channel, direction, l) / math.sqrt(norms[key])
    end)
  end
end)

test("Hyena is its formula, also beyond its length", function()
  tl.seed(10)
  local d, length, width, bands = 2, 16, 4, 3
  local mixer = mixers.class "hyena"(d, { length = length, width = width, bands = bands })
  local function map(linear, v, freq)
    local w, b, y = linear.weight:totable(), linear.bias and linear.bias:totable(), {}
    for i, row in ipairs(w) do
      y[i] = b and b[i] or 0
      for j, value in ipairs(row) do y[i] = y[i] + value * v[j] end
      if freq then y[i] = math.sin(freq[i] * y[i]) end
    end
    return y
  end
  compare(mixer, 21, function(channel, _, l)
    local t, freq = l / (length - 1), mixer.kernel.freq:totable()
    local z = { t }
    for band, f in ipairs { 1e-4, 1.00005, 2 } do
      local angle = 2 * math.pi * f * l / length
      z[1 + band], z[4 + band] = math.cos(angle), -math.sin(angle)
    end
    for _, name in ipairs { "first", "second", "third" } do z = map(mixer.kernel[name], z, freq) end
    local rate = -math.log(1e-2) / (channel == 1 and 1.5 or 0.3)
    return map(mixer.kernel.last, z)[channel] * math.exp(-rate * t)
  end)
  local x = random(1, 21, d)
  local all_ = core.no_grad(function()
    local y, u = mixer.input(x), nil
    for lag = 0, 2 do
      local moved = lag == 0 and y or core.concat({ core.zeros(1, lag, 3 * d),
        y:narrow(2, 1, 21 - lag) }, 2)
      moved = moved * mixer.conv.taps:narrow(1, lag + 1, 1)
      u = u and u + moved or moved
    end
    u = u + mixer.conv_bias
    local mixed = mixer.tno(u:narrow(3, 1, d) * u:narrow(3, d + 1, d))
    return mixer.o(u:narrow(3, 2 * d + 1, d) * mixed)
  end)
  eq(core.no_grad(mixer.forward, mixer, x), all_, 1e-5)
end)

test("STU's filters are eigenvectors of the Hankel matrix, and its kernel their sum", function()
  local spectral = require "toeplab.nn.mixers.states.spectral"
  for _, length in ipairs { 1, 2, 30, 200 } do
    local count = math.min(length, 16)
    local filters, values = spectral.filters(length, count)
    for k = 1, count do
      local norm, worst = 0, 0
      for i = 1, length do
        local sum = 0
        for j = 1, length do
          sum = sum + 2 / ((i + j) ^ 3 - (i + j)) * filters[k][j]
        end
        norm = norm + filters[k][i] ^ 2
        worst = math.max(worst, math.abs(sum - values[k] * filters[k][i]))
      end
      ok(worst < 1e-9, worst)
      if values[k] > 1e-12 then eq(norm / math.sqrt(values[k]), 1, 1e-4) end
      ok(k == 1 or values[k] < values[k - 1])
    end
  end
  eq(spectral.filters(1, 1)[1][1], (1 / 3) ^ 0.25, 1e-7)
  tl.seed(11)
  local mixer = mixers.class "stu"(2, { length = 20, filters = 5 })
  local phi, m = spectral.filters(20, 5), mixer.kernel.m:totable()
  local x, y = random(1, 13, 2), {}
  local moved = core.matmul(x, mixer.input, false, true):totable()[1]
  for i = 1, 13 do
    y[i] = { 0, 0 }
    for c = 1, 2 do
      for l = 0, i - 1 do
        for k = 1, 5 do
          y[i][c] = y[i][c] + phi[k][l + 1] * (m[k][c] + (-1) ^ l * m[5 + k][c]) * moved[i - l][c]
        end
      end
    end
  end
  eq(core.no_grad(mixer.forward, mixer, x):totable()[1], y, 1e-5)
end)

-- Returns c + T z, with T of a table [length,heads] and act(t), for one sequence z {{}}. mean:
-- divide T z by the sums of the rows of T.
local function toeplitz_heads(z, t, c, f, mean)
  local y, width = {}, #z[1] // #c[1]
  for i = 1, #z do
    y[i] = {}
    for channel = 1, #z[1] do
      local head, sum, weight = (channel - 1) // width + 1, 0, 0
      for j = 1, i do
        local value = f(t[i - j + 1][head])
        sum, weight = sum + value * z[j][channel], weight + value
      end
      y[i][channel] = c[i][head] + (mean and sum / weight or sum)
    end
  end
  return y
end

test("TMM is triangular Toeplitz matrices of its table, by head, and a bias of each position",
  function()
    local function itself(v) return v end
    local function softplus(v) return math.log(1 + math.exp(v)) end
    for _, more in ipairs { {}, { maps = false }, { expanded = true }, { act = "softplus" },
      { act = "softplus", normalize = true },
      { maps = false, expanded = true, act = "softplus", normalize = true, heads = 1 } } do
      tl.seed(13)
      local mixer = mixers.class "tmm"(6, tl.overlay({ length = 12, heads = 2 }, more))
      for _, bias in ipairs { mixer.bias, mixer.bias_after } do
        tl.stream_of("test"):normal(bias, 0, 1)
      end
      local x, f = random(1, 9, 6), more.act and softplus or itself
      local z = (more.maps == false and x or core.no_grad(mixer.i, x)):totable()[1]
      z = toeplitz_heads(z, mixer.kernel.table:totable(), mixer.bias:totable(), f, more.normalize)
      if more.expanded then
        z = core.silu(core.tensor { z }):totable()[1]
        z = toeplitz_heads(z, mixer.kernel_after.table:totable(), mixer.bias_after:totable(), f,
          more.normalize)
      end
      local want = core.tensor { z }
      if more.maps ~= false then want = core.no_grad(mixer.o, want) end
      eq(core.no_grad(mixer, x), want, 1e-5)
    end
    for name, deviation in pairs { none = math.sqrt(2 / 1000), softplus = 1 } do
      local mixer = mixers.class "tmm"(4, { length = 1000, heads = 4, act = name })
      eq(math.sqrt(core.square(mixer.kernel.table):mean():item()) / deviation, 1, 0.05)
    end
  end)

test("errors name wrong options", function()
  raises(mixers.class "longconv"(4, { length = 8 }), "length = 8 must be at least 9",
    core.zeros(1, 9, 4))
  raises(mixers.class "longconv", "option 'length' is required", 4)
  raises(mixers.class "stu"(4, { length = 8, filters = 3 }), "length = 8 must be at least 9",
    core.zeros(1, 9, 4))
  raises(mixers.class "stu", "9 filters need a length of at least 9, not 8", 4,
    { length = 8, filters = 9 })
  for name, kind in pairs { hyena = "Hyena", stu = "STU", tmm = "TMM" } do
    raises(mixers.class(name), "option 'causal' = false: " .. kind, 4,
      { length = 8, causal = false })
  end
  raises(mixers.class "tmm"(4, { length = 8 }), "length = 8 must be at least 9",
    core.zeros(1, 9, 4))
  raises(mixers.class "tmm", "4 channels do not divide into 3 heads", 4, { length = 8, heads = 3 })
end)

t.done()
