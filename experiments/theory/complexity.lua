-- complexity.lua: do time and memory of the operators grow with the length as TNN's Table 1 and
-- "SKI to go Faster" say: n^2 d for a matrix, n d log n for Fourier transforms, n for SKI?
--
-- The forward pass is timed: of a backend's operator with given coefficients, of other mixers in a
-- block without a channel mixer, whose embedding takes n d. A mixer stops before the length at
-- which a call would take longer than limit, or more than 4 GiB. Exponents are fitted to the
-- lengths from fit_from on; the table compares them with the formula's exponents over the same
-- lengths.
local tl = require "toeplab"

-- The values of the key mixer: backends, and mixers of other rows of the table.
local backends = { "naive", "matrix", "fft", "ski", "fd" }
local mixers = { "attention", "linear_attention", "conv", "s4", "gru", "gmlp", "fnet" }
local is_mixer = {}
for _, name in ipairs(mixers) do is_mixer[name] = true end

local MOST = 4 * 2 ^ 30 -- bytes

local function squares(n) return n * n end
local function loglinear(n) return n * math.log(n) end
local function linear(n) return n end
local function ski(n, c) return n + c.inducing * math.log(c.inducing) end

-- The time and the memory that the papers state; for the memory of naive and matrix, which they
-- omit, the definition's.
local claims = {
  naive = { "n^2 d", squares, "n d", linear }, matrix = { "n^2 d", squares, "n^2 d", squares },
  fft = { "n d log n", loglinear, "n d", linear }, fd = { "n d log n", loglinear, "n d", linear },
  ski = { "d (n + r log r)", ski, "n d", linear },
  attention = { "n^2 d", squares, "n^2 d", squares },
  linear_attention = { "n d^2", linear, "n d", linear }, conv = { "n e d", linear, "n d", linear },
  s4 = { "n d log n", loglinear, "n d", linear },
  gru = { "n d^2", linear, "n d", linear }, gmlp = { "n^2 d", squares, "n^2 d", squares },
  fnet = { "n d log n", loglinear, "n d", linear },
}

-- Measures one forward pass of a block with a mixer, as tl.cost.operator an operator.
local function cost_of_mixer(c, n)
  local result = {}
  tl.no_grad(function()
    local ids = tl.cost.tokens(c.batch, n, 256)
    local model
    result.bytes = tl.cost.bytes(function()
      model = tl.models.tnn_classifier { vocab = 256, classes = 2, layers = 1, dim = c.dim,
        mixer = c.mixer, layout = "none", channel = "none",
        causal = c.causal or c.mixer == "gru", max_length = n,
        mixer_options = c.mixer == "gmlp" and { max_length = n } or nil }
      model:eval()
      model(ids)
    end)
    result.seconds = tl.cost.seconds(function() model(ids) end, c.budget)
  end)
  return result
end

local function cost_at(c, n)
  if is_mixer[c.mixer] then return cost_of_mixer(c, n) end
  return tl.cost.operator { backend = c.mixer, length = n, dim = c.dim, batch = c.batch,
    options = c.mixer == "ski" and { inducing = c.inducing, taps = c.taps } or nil,
    causal = c.causal, budget = c.budget }
end

local function fitted(trial, metric)
  local x, y = trial:series(metric)
  return tl.cost.exponent(x, y, trial.config.fit_from), x, y
end

local function expected(x, f, c)
  local y = {}
  for i, n in ipairs(x) do y[i] = f(n, c) end
  return tl.cost.exponent(x, y, c.fit_from)
end

local function panel(trials, metric, label, scale)
  local series = {}
  for i, t in ipairs(trials) do
    local x, y = t:series(metric)
    for j, v in ipairs(y) do y[j] = v * scale end
    series[i] = { name = t.config.mixer, x = x, y = y, style = "both" }
  end
  return { xlabel = "length n", ylabel = label, logx = 2, logy = true, key = "top left",
    series = series }
end

return tl.experiment "complexity" {
  label = { step = "length n" },
  answers = "tnn/table1",
  fixed = {
    lengths = { 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536 },
    dim = 16, batch = 1, causal = false, inducing = 64, taps = 32,
    budget = 0.3,           -- seconds for timing each length
    limit = 2.0,            -- seconds that a call may take
    fit_from = 1024,        -- at shorter lengths the overhead of a call dominates
  },
  grid = { mixer = table.move(mixers, 1, #mixers, #backends + 1, backends) },
  scale = { smoke = { lengths = { 256, 512, 1024, 2048, 4096 }, dim = 4, budget = 0.02,
    limit = 0.2 } },

  trial = function(t, c)
    local last
    local x, seconds, bytes = {}, {}, {}
    for i, n in ipairs(c.lengths) do
      if last and last * 4 > c.limit then -- at twice the n a call takes at most 4 times as long
        t:say("stops before n = %d: a call would take up to %.1f s", n, last * 4)
        break
      end
      if i > 1 and bytes[i - 1] * 4 > MOST then
        t:say("stops before n = %d: a call would take up to %.1f GiB", n, bytes[i - 1] / 2 ^ 28)
        break
      end
      local cost = cost_at(c, n)
      t:log(cost, n)
      t:log { longest = n }
      x[i], seconds[i], bytes[i] = n, cost.seconds, cost.bytes
      last = cost.seconds
    end
    t:log { time_exponent = tl.cost.exponent(x, seconds, c.fit_from),
      memory_exponent = tl.cost.exponent(x, bytes, c.fit_from) }
  end,

  report = function(trials, report)
    local rows = {}
    for i, t in ipairs(trials) do
      local time, x, seconds = fitted(t, "seconds")
      local memory, _, bytes = fitted(t, "bytes")
      local claim = claims[t.config.mixer]
      rows[i] = { t.config.mixer, claim[1], expected(x, claim[2], t.config), time, claim[3],
        expected(x, claim[4], t.config), memory, x[#x], seconds[#x] * 1e3, bytes[#x] / 2 ^ 20 }
    end
    report.table({ "mixer", "time", "its exponent", "measured", "memory", "its exponent",
      "measured", "longest n", "ms there", "MiB there" }, rows)
    report.plot { panels = { panel(trials, "seconds", "milliseconds a call", 1e3),
      panel(trials, "bytes", "MiB in use", 2 ^ -20) } }
  end,
}
