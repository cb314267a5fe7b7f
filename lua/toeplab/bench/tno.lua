-- bench/tno.lua: the operator with its coefficients given, forward and with both adjoints, by every
-- backend of the same meaning and by PyTorch where it is installed.
local core = require "toeplab.core"
local peer = require "toeplab.bench.peer"
local report = require "toeplab.report"
local timing = require "toeplab.bench.timing"

local CHANNELS = 512
local MATRIX = 512 -- the longest sequence for the backend matrix: its work grows with n^2
local SAMPLE = 5e-3 -- seconds that a sample takes at least

local function leaf(stream, ...)
  return stream:normal(core.zeros(...), 0, 1):require_grad()
end

-- Functions that do the work once with a backend.
local function ours(backend, p)
  local stream = core.stream(1, "bench")
  local o = core.tno(backend, p.n, CHANNELS, p.causal)
  local coef, x = leaf(stream, o:points():numel(), CHANNELS), leaf(stream, p.b, p.n, CHANNELS)
  local dy = stream:normal(core.zeros(p.b, p.n, CHANNELS), 0, 1)
  return {
    forward = function()
      core.no_grad(function() o:apply(coef, {}, x) end)
    end,
    both = function()
      coef:set_grad(nil)
      x:set_grad(nil)
      o:apply(coef, {}, x):backward(dy)
    end,
  }
end

-- How often to call run so that a sample is long enough for the clock.
local function calls_for(run)
  run()
  local start = core.sys.clock()
  run()
  return math.max(1, math.min(1000, math.ceil(SAMPLE / (core.sys.clock() - start))))
end

local function our_row(name, run)
  local count = calls_for(run)
  return {
    name = name, count = count,
    run = function()
      for _ = 1, count do run() end
    end,
  }
end

local function peer_row(name, program, what, p)
  local function ask(calls)
    return program:ask(what, p.n, p.b, CHANNELS, p.causal and 1 or 0, calls)
  end
  ask(1)
  local calls = math.max(1, math.ceil(SAMPLE / ask(1)))
  return { name = name, run = function() return ask(calls) end }
end

-- The peers that are there, {name =, program =}; says which are not.
local function peers()
  local list = {}
  for _, row in ipairs { { "torch", {} }, { "torch tuned", peer.tuned } } do
    local program, why = peer.python("tno_torch.py", row[2], core.threads())
    if not program then
      print(("%s: not measured: %s (TOEPLAB_PYTHON names another python)"):format(row[1], why))
    else
      print(("%s: %s"):format(row[1], program.about))
      list[#list + 1] = { name = row[1], program = program }
    end
  end
  return list
end

local function problems(quick)
  local list = {}
  for _, n in ipairs(quick and { 512, 2048 } or { 512, 1024, 2048, 4096, 8192, 16384 }) do
    for _, b in ipairs { 1, 8 } do
      for _, causal in ipairs(quick and { true } or { true, false }) do
        list[#list + 1] = { n = n, b = b, causal = causal }
      end
    end
  end
  return list
end

-- Rows for timing of one problem and what ("forward" or "both"): rac first.
local function contestants(p, what, others)
  local rows = {}
  for _, backend in ipairs { "rac", "fft", "matrix" } do
    if backend ~= "matrix" or p.n * p.b <= MATRIX then
      rows[#rows + 1] = our_row(backend, ours(backend, p)[what])
    end
  end
  for _, other in ipairs(others) do
    rows[#rows + 1] = peer_row(other.name, other.program, what, p)
  end
  return rows
end

local bench = { about = "the TNO forward and with its adjoints: rac, fft, matrix, and PyTorch" }

-- The ratios of all rows to the first, one line each, and adds their logarithms to sums.
local function lines_of(p, what, rows, lines, sums)
  for i, row in ipairs(rows) do
    local median, quartiles = timing.cells(row)
    local ratio, low, high = timing.ratio(row, rows[1])
    lines[#lines + 1] = { p.causal and "causal" or "bidirectional", p.n, p.b,
      what == "both" and "fwd+bwd" or "fwd", row.name, median, quartiles, ("%.2f"):format(ratio),
      ("%.2f-%.2f"):format(low, high) }
    local key = row.name .. ", " .. (what == "both" and "fwd+bwd" or "fwd")
    if i > 1 then
      if not sums[key] then
        sums[key] = { 0, 0 }
        table.insert(sums, key)
      end
      sums[key] = { sums[key][1] + math.log(ratio), sums[key][2] + 1 }
    end
  end
end

function bench.run(o)
  local others, lines, sums = peers(), {}, {}
  print(("%d channels, %d threads; ms, and times over rac's, pair by pair"):format(CHANNELS,
    core.threads()))
  for _, p in ipairs(problems(o.quick)) do
    for _, what in ipairs { "forward", "both" } do
      local rows = contestants(p, what, others)
      local repeats = o.repeats or (o.quick and 7 or p.n * p.b > 16384 and 7 or 15)
      timing.interleaved(rows, repeats)
      lines_of(p, what, rows, lines, sums)
      rows = nil
      collectgarbage()
      core.memory_trim() -- what was kept for reuse would crowd out the next problem's
    end
  end
  for _, other in ipairs(others) do other.program:close() end
  report.print({ "mode", "n", "b", "what", "by", "ms", "quartiles", "over rac", "quartiles" },
    lines)
  for _, key in ipairs(sums) do
    print(("%s over rac, geometric mean of %d: %.2f"):format(key, sums[key][2],
      math.exp(sums[key][1] / sums[key][2])))
  end
end

return bench
