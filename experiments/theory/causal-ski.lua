-- causal-ski.lua: does causal masking cost SKI its advantage over the Fourier transform, as
-- Appendix B of "SKI to go Faster" reports for GPUs?
--
-- masking=token is the appendix's recursion, x'_i = (W A)_i s_i with sums s_i of W' x up to i,
-- which costs O(n r) per channel. masking=interval multiplies by A once per inducing point instead
-- of once per token. The forward pass is timed, with given coefficients. The speed is relative to
-- fft, causal or bidirectional as the variant is.
local tl = require "toeplab"

local variants = { "fft", "ski, token", "ski, interval", "fft, bidirectional",
  "ski, bidirectional" }

local function problem(variant, c)
  local backend, kind = variant:match("^(%a+),? ?(.*)$")
  local options
  if backend == "ski" then
    options = { inducing = c.inducing, taps = c.taps, masking = kind == "token" and kind or nil }
  end
  return { backend = backend, causal = kind ~= "bidirectional", options = options, dim = c.dim,
    batch = c.batch, budget = c.budget }
end

local function by_variant(trials)
  local map = {}
  for _, t in ipairs(trials) do
    local n, seconds = t:series "seconds"
    local _, bytes = t:series "bytes"
    local at = {}
    for i, length in ipairs(n) do at[length] = { seconds = seconds[i], bytes = bytes[i] } end
    map[t.config.variant] = { n = n, seconds = seconds, bytes = bytes, at = at }
  end
  return map
end

-- Returns the time of fft divided by the time of a variant, by length.
local function ratios(map, variant)
  local base = map[variant:find "bidirectional" and "fft, bidirectional" or "fft"]
  local list = {}
  for i, n in ipairs(base and map[variant].n or {}) do
    local one = base.at[n]
    list[i] = one and one.seconds / map[variant].at[n].seconds or 0 / 0
  end
  return list
end

return tl.experiment "causal-ski" {
  label = { step = "length n" },
  fixed = {
    lengths = { 256, 512, 1024, 2048, 4096, 8192, 16384, 32768 },
    dim = 64, batch = 1, inducing = 64, taps = 32,
    budget = 0.5,           -- seconds for timing each length
    fit_from = 1024,        -- shortest length to which exponents are fitted
  },
  grid = { variant = variants },
  scale = { smoke = { lengths = { 256, 512, 1024 }, dim = 4, budget = 0.02,
    fit_from = 256 } },

  trial = function(t, c)
    local o = problem(c.variant, c)
    for _, n in ipairs(c.lengths) do
      o.length = n
      t:log(tl.cost.operator(o), n)
    end
  end,

  report = function(trials, report)
    local map, rows, times, gains = by_variant(trials), {}, {}, {}
    local from = trials[1].config.fit_from
    for i, variant in ipairs(variants) do
      local v = map[variant]
      if v then
        local last, gain, ms = #v.n, ratios(map, variant), {}
        for k, s in ipairs(v.seconds) do ms[k] = s * 1e3 end
        rows[#rows + 1] = { variant, tl.cost.exponent(v.n, v.seconds, from),
          tl.cost.exponent(v.n, v.bytes, from), v.n[last], ms[last], v.bytes[last] / 2 ^ 20,
          gain[1], gain[last] }
        times[#times + 1] = { name = variant, x = v.n, y = ms, style = "both", colour = i }
        if variant:find "^ski" then
          gains[#gains + 1] = { name = variant, x = v.n, y = gain, style = "both", colour = i }
        end
      end
    end
    report.table({ "variant", "exponent of time", "of memory", "longest n", "ms there",
      "MiB there", "times faster than fft, shortest n", "longest n" }, rows)
    report.plot { panels = {
      { xlabel = "length n", ylabel = "milliseconds a call", logx = 2, logy = true,
        key = "top left", series = times },
      { xlabel = "length n", ylabel = "times faster than fft", logx = 2, key = "top left",
        series = gains },
    } }
  end,
}
