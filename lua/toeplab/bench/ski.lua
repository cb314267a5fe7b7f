-- bench/ski.lua: the operator ski against fft, forward and backward, at two lengths in one run.
local core = require "toeplab.core"
local report = require "toeplab.report"
local stop = require "toeplab.stop"
local timing = require "toeplab.bench.timing"

local CHANNELS = 64
local backends = { "fft", "ski" }

local function loaded(name)
  for _, backend in ipairs(core.backends()) do
    if backend.name == name then return true end
  end
end

-- A tensor of random numbers that wants a gradient.
local function leaf(stream, ...)
  return stream:normal(core.zeros(...), 0, 1):require_grad()
end

-- A row for timing: y = T x and the gradients of x, the coefficients and the backend's own
-- parameters from a given gradient of y.
local function operator(backend, n)
  local stream = core.stream(1, "bench")
  local o = core.tno(backend, n, CHANNELS, false)
  local coef = leaf(stream, o:points():numel(), o:width() * CHANNELS)
  local x, own = leaf(stream, 1, n, CHANNELS), {}
  local weights = stream:normal(core.zeros(1, n, CHANNELS), 0, 1)
  for i, p in ipairs(o:params()) do own[i] = leaf(stream, p.shape) end
  return {
    name = backend, n = n,
    run = function()
      for _, t in ipairs { x, coef, table.unpack(own) } do t:set_grad(nil) end
      local y = o:apply(coef, own, x);
      (y * weights):sum():backward()
    end,
  }
end

local bench = { about = "ski against fft, forward and backward, and their exponents" }

function bench.run(o)
  for _, name in ipairs(backends) do
    if not loaded(name) then stop.usage("bench ski: backend '%s' is not loaded", name) end
  end
  local lengths, rows, lines = { 4096, 16384 }, {}, {}
  for _, n in ipairs(lengths) do
    for _, name in ipairs(backends) do rows[#rows + 1] = operator(name, n) end
  end
  timing.interleaved(rows, o.repeats or (o.quick and 7 or 31))
  for i, row in ipairs(rows) do
    local median, quartiles = timing.cells(row)
    lines[i] = { row.n, row.name, median, quartiles, ("%.2f"):format(
      rows[i - (i - 1) % #backends].median / row.median) }
  end
  print(("%d channels, bidirectional, batch 1, %d threads; forward and backward, with the sum that "
    .. "is\ndifferentiated"):format(CHANNELS, core.threads()))
  report.print({ "n", "backend", "ms", "quartiles", "fft over it" }, lines)
  for i, name in ipairs(backends) do
    local first, last = rows[i], rows[i + #backends]
    print(("%s: time n^%.2f from %d to %d"):format(name,
      timing.exponent(first.n, first.median, last.n, last.median), first.n, last.n))
  end
end

return bench
