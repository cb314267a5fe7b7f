-- complexity.lua: do time and memory of the operators grow with the length as TNN's Table 1 and
-- "SKI to go Faster" say: n^2 d for a matrix, n d log n for Fourier transforms, n for SKI?
--
-- The forward pass is timed, with given coefficients. A backend stops before the length at which a
-- call would take longer than limit. Exponents are fitted to the lengths from fit_from on; the
-- table compares them with the formula's exponents over the same lengths.
local tl = require "toeplab"

local backends = { "naive", "matrix", "fft", "ski", "fd" }
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
}

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
    series[i] = { name = t.config.backend, x = x, y = y, style = "both" }
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
  grid = { backend = backends },
  scale = { smoke = { lengths = { 256, 512, 1024, 2048, 4096 }, dim = 4, budget = 0.02,
    limit = 0.2 } },

  trial = function(t, c)
    local options = c.backend == "ski" and { inducing = c.inducing, taps = c.taps } or nil
    local last
    local x, seconds, bytes = {}, {}, {}
    for i, n in ipairs(c.lengths) do
      if last and last * 4 > c.limit then -- at twice the n a call takes at most 4 times as long
        t:say("stops before n = %d: a call would take up to %.1f s", n, last * 4)
        break
      end
      local cost = tl.cost.operator { backend = c.backend, options = options, length = n,
        dim = c.dim, batch = c.batch, causal = c.causal, budget = c.budget }
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
      local claim = claims[t.config.backend]
      rows[i] = { t.config.backend, claim[1], expected(x, claim[2], t.config), time, claim[3],
        expected(x, claim[4], t.config), memory, x[#x], seconds[#x] * 1e3, bytes[#x] / 2 ^ 20 }
    end
    report.table({ "backend", "time", "its exponent", "measured", "memory", "its exponent",
      "measured", "longest n", "ms there", "MiB there" }, rows)
    report.plot { panels = { panel(trials, "seconds", "milliseconds a call", 1e3),
      panel(trials, "bytes", "MiB in use", 2 ^ -20) } }
  end,
}
