-- bench/measure.lua: runs the problems of a bench. Each contestant is a separate process with its
-- own threads, environment and memory; all are timed in turns.
local core = require "toeplab.core"
local count = require "toeplab.bench.count"
local grids = require "toeplab.bench.grids"
local peer = require "toeplab.bench.peer"
local progress = require "toeplab.base.progress"
local timing = require "toeplab.bench.timing"

local measure = {}

local SAMPLE, MOST = 2e-2, 1000 -- minimal seconds of a sample; maximal calls in it
-- Seconds to wait after a turn until spinning threads have gone to sleep: they halved the speed of
-- the next contestant (OpenBLAS's spin for 100 ms).
local REST, LONG_REST = 1e-2, 1.5e-1
local GPU_SAMPLE = 0.2

-- Returns the minimal seconds of a sample, and the seconds of rest after it. A GPU lowers its
-- clocks while it rests, and no thread of its contestants spins.
function measure.sampling(device, ours)
  if grids.is_gpu(device) then return GPU_SAMPLE, 0.0 end
  return SAMPLE, ours and REST or LONG_REST
end

-- Returns the number of repetitions, given the seconds of one round.
function measure.repeats(seconds, quick)
  local least, most, budget = quick and 3 or 5, quick and 7 or 11, quick and 2.0 or 20.0
  return math.max(least, math.min(most, math.floor(budget / math.max(seconds, 1e-6))))
end

-- ---- Contestants ------------------------------------------------------------------------------

-- Returns the running program of a contestant, or starts it by start(...): o.programs, if given,
-- keeps programs between problems. Returns nil and the reason if there is none.
local function started(o, key, start, ...)
  local kept = o.programs and o.programs[key]
  if kept and not kept.closed then return kept end
  local p, why = start(...)
  if p and o.programs then o.programs[key], p.kept = p, true end
  return p, why
end

-- Returns the contestants that join every group: Toeplab's own processes, and FFTW where it can do
-- the work. Each is {by=, precision=, ours=, program=, options=}.
local function ours(name, p, threads, o)
  local list, left_out = grids.ours(name, p, o)
  for _, by in ipairs(left_out) do
    local note = ("%s: not measured at n %d, b %d: too slow or too large"):format(by, p.n, p.b)
    if not o.said[note] then o.say("%s", note) end
    o.said[note] = true
  end
  if #list == 0 then return list end -- FFTW alone has no competitor
  for _, c in ipairs(list) do
    c.program = started(o, c.by .. c.precision .. threads, peer.ours, threads, o.device)
    c.ours = true
  end
  if not grids.get(name).fftw or o.absent.fftw or o.device ~= "cpu" then return list end
  local program, why = peer.fftw(threads)
  list[#list + 1] = program and { by = "fftw plain", precision = "float32", program = program,
    options = { precision = "float32" } }
  if not program then
    o.absent.fftw = true
    o.say("fftw plain: not measured: %s", why)
  end
  return list
end

-- Returns the contestants of one Python interpreter, one per precision and method. Reports a
-- missing one once.
local function torch(name, who, threads, o)
  local list = {}
  if not who or o.absent[who.python] then return list end
  local bench = grids.get(name)
  for _, method in ipairs(bench.peer_methods or { false }) do
    for _, precision in ipairs(bench.matrices and o.precisions or { "float32" }) do
      local key = table.concat({ who.python, tostring(who.tuned), method or "", precision,
        threads }, "|")
      local program, why = started(o, key, peer.torch, who.python, who.tuned, threads, o.device)
      if not program then
        o.absent[who.python] = true
        o.say("torch: not measured: %s (TOEPLAB_PYTHON chooses another one)", why)
        return {}
      end
      list[#list + 1] = { precision = precision, program = program, tuned = who.tuned,
        python = who.python, suffix = method and " " .. method or "",
        options = { precision = precision, method = method or nil } }
    end
  end
  return list
end

-- Returns the contestants that answer; prints their descriptions once.
local function answering(list, o)
  local there = {}
  for _, c in ipairs(list) do
    local about, why = c.program:greet()
    local key = c.python or "ours"
    if about then
      there[#there + 1] = c
      c.by = c.by or (about:match "^torch [^:]*" or "torch") .. (c.tuned and " tuned" or "")
        .. c.suffix
      if not o.said[about] then o.say("%s", about) end
      o.said[about] = true
    elseif not o.absent[key] then
      o.absent[key] = true
      o.say("%s: not measured: %s", c.python and "torch" or c.by, why)
    end
  end
  return there
end

-- Returns groups of peers: each is an interpreter in one environment, measured beside Toeplab.
local function groups(name, o)
  local list, pythons = {}, peer.pythons()
  if grids.get(name).peers then
    if #pythons == 0 and not o.said.none then
      o.said.none = true
      o.say("torch: not measured: TOEPLAB_PYTHON names no python")
    end
    for _, python in ipairs(pythons) do
      for _, tuned in ipairs { false, true } do
        local wanted = tuned or not o.quick
        if o.device ~= "cpu" then wanted = not tuned end -- only the CPU needs tuning
        if wanted then list[#list + 1] = { python = python, tuned = tuned } end
      end
    end
  end
  return list
end

-- ---- One pass over a problem ------------------------------------------------------------------

-- Returns the contestants of a pass.
local function taking_part(list, pass)
  local some = {}
  for _, c in ipairs(list) do
    if (c.options.pass or pass) == pass then some[#some + 1] = c end
  end
  return some
end

-- Prepares the contestants for pass `pass` of p; returns rows for timing.lua.
local function prepare(list, p, pass, o)
  local rows, file = {}, p.what == "peers" and os.tmpname() or nil -- of the weights of both sides
  for _, c in ipairs(taking_part(list, pass)) do
    local request = { pass = pass, file = file and file .. ".npz" }
    for _, t in ipairs { p, c.options } do
      for key, value in pairs(t) do request[key] = value end
    end
    local answer, why = c.program:ask("make " .. peer.words(request))
    if answer then
      local row = { by = c.by, precision = c.precision, program = c.program, ours = c.ours,
        request = request, made = peer.parse(answer) }
      rows[#rows + 1] = row
      if row.made.parts then
        o.say("%s %s: n %d, b %d: in %d parts, as the whole batch does not fit in the GPU's memory",
          c.by, c.precision, p.n, p.b, row.made.parts)
      end
    elseif not o.said[c.by .. why] then
      o.said[c.by .. why] = true
      o.say("%s: not measured: %s", c.by, why)
    end
  end
  if file then
    os.remove(file)
    os.remove(file .. ".npz")
  end
  return rows
end

-- Returns the seconds of a call. Raises if the contestant has ended or answers without a time.
local function seconds_of(row, calls)
  local answer, why = row.program:ask("run " .. calls)
  local seconds = tonumber(answer)
  if seconds and seconds > 0 and seconds < math.huge then return seconds end
  row.failed = true
  error(row.by .. ": " .. (why or answer), 0)
end

-- Times rows in turns; each sample is long enough for the resolution of the clock.
local function time_rows(rows, o)
  local total = 0.0
  for _, row in ipairs(rows) do
    local once, sample, rest = seconds_of(row, 1), measure.sampling(o.device, row.ours)
    row.calls = math.max(1, math.min(MOST, math.ceil(sample / math.max(once, 1e-9))))
    if (row.made.positions or 0) > 0 then row.calls = row.made.positions end -- of a stream: all
    row.run = function() return seconds_of(row, row.calls) end
    row.rest = o.rest or rest
    total = total + once * (1 + row.calls) -- plus one uncounted warm-up call
  end
  timing.interleaved(rows, o.repeats or measure.repeats(total, o.quick or o.deadline))
end

-- Adds the measurements of rows to results, a list that is also indexed by contestant. Of a bench
-- with matrix products a row's ratio is to the first of ours in its precision, else to the first.
local function collect(results, rows, about)
  local first, apart = {}, grids.get(about.bench).matrices
  local function group(row) return apart and row.precision or "" end
  for _, row in ipairs(rows) do
    if row.ours then first[group(row)] = first[group(row)] or row end
  end
  for _, row in ipairs(rows) do
    local key = table.concat({ about.pass, row.by, row.precision }, "|")
    local memory, under = peer.parse(row.program:ask "memory" or ""), first[group(row)] or row
    local r = results[key]
    row.made.flop = row.made.flop or under.made.flop -- PyTorch does not count the arithmetic
    if not r then
      r = { bench = about.bench, problem = about.problem, threads = about.threads,
        pass = about.pass, by = row.by, precision = row.precision, samples = {}, ratios = {},
        request = row.request, made = row.made, parameters = row.made.parameters or 0,
        rss = 0, engine = memory.engine, ours = row.ours, device = about.device,
        over = under.by }
      results[key] = r
      results[#results + 1] = r
    end
    r.rss = math.max(r.rss, tonumber(memory.rss) or 0)
    table.move(row.samples, 1, #row.samples, #r.samples + 1, r.samples)
    for i, s in ipairs(row.samples) do r.ratios[#r.ratios + 1] = s / under.samples[i] end
  end
end

-- Reduces the samples to medians, quartiles and shares.
local function summarise(r, limits)
  r.low, r.median, r.high = timing.quartiles(r.samples)
  r.least = math.min(table.unpack(r.samples))
  r.ratio_low, r.ratio, r.ratio_high = timing.quartiles(r.ratios)
  r.flop, r.bytes = count.of(r.request, r.parameters, r.made)
  if limits then r.share = count.share(r.flop, r.bytes, r.median, r.precision, limits) end
end

-- ---- The bench ---------------------------------------------------------------------------------

-- Ends the programs of a list of contestants, except those that o.programs keeps.
local function close(list)
  for _, c in ipairs(list) do
    if not c.program.kept then c.program:close() end
  end
end

-- Removes the contestants of failed rows from the list, and returns it. why: the error to raise if
-- none has failed.
local function without_failed(list, rows, why)
  local failed = {}
  for _, row in ipairs(rows) do failed[row.program] = row.failed end
  if not next(failed) then error(why, 0) end
  for i = #list, 1, -1 do
    if failed[list[i].program] then table.remove(list, i).program:close() end
  end
  return list
end

-- Measures all passes of one group.
local function contest(name, p, threads, who, results, o)
  local list = ours(name, p, threads, o)
  if #list == 0 then return end
  local others = torch(name, who, threads, o)
  table.move(others, 1, #others, #list + 1, list)
  local there <close> = setmetatable(answering(list, o), { __close = close })
  for _, pass in ipairs(grids.passes(name, p)) do
    local rows = prepare(there, p, pass, o)
    local ok, why = pcall(time_rows, rows, o)
    while not ok do -- a contestant has ended, most likely for lack of memory
      o.say("bench %s: n %d, b %d, %s: left out: %s", name, p.n, p.b, pass, why)
      rows = prepare(without_failed(there, rows, why), p, pass, o)
      ok, why = pcall(time_rows, rows, o)
    end
    collect(results, rows, { bench = name, problem = p, threads = threads, pass = pass,
      device = o.device })
  end
end

-- Returns the rows of one problem.
function measure.problem(name, p, threads, limits, o)
  local results, list = {}, groups(name, o)
  for _, who in ipairs(list) do
    if not o.absent[who.python] then contest(name, p, threads, who, results, o) end
  end
  if #results == 0 then contest(name, p, threads, false, results, o) end
  local in_order = {}
  for _, pass in ipairs(grids.passes(name, p)) do
    for _, r in ipairs(results) do
      if r.pass == pass then
        summarise(r, limits)
        in_order[#in_order + 1] = r
      end
    end
  end
  return in_order
end

-- Returns sizes of matrices and vectors far beyond the caches, at which a device reaches its
-- limits.
local function sizes(o)
  if grids.is_gpu(o.device) then return o.quick and 4096 or 8192, 1 << (o.quick and 26 or 28) end
  if o.device ~= "cpu" then return 16, 1 << 10 end
  return o.quick and 1024 or 2048, 1 << (o.quick and 23 or 25)
end

-- Returns the precisions in which the limit of products is measured: always float32, because rows
-- without matrix products use it.
local function gemm_precisions(o)
  local list = { "float32" }
  for _, precision in ipairs(o.precisions) do
    if precision ~= "float32" then list[#list + 1] = precision end
  end
  return list
end

-- Measures the limits of this machine with `threads` threads by the engine's own matrix products,
-- Adam in place, and the sum of two vectors, taking the best of a few: {threads=, gemm = {float32
-- =, ...} FLOP/s, inplace = bytes/s, triad = bytes/s}.
function measure.limits(threads, o)
  local limits, matrix, vector = { threads = threads, gemm = {} }, sizes(o)
  local program = peer.ours(threads, o.device)
  local guard <close> = setmetatable({ { program = program } }, { __close = close })
  local about, problem = program:greet()
  if not about then error("bench: " .. problem, 0) end
  local function best(p)
    local answer, why = program:ask("make " .. peer.words(p))
    if not answer then error("bench: " .. why, 0) end
    local least = math.huge
    for _ = 1, o.quick and 3 or 9 do
      least = math.min(least, seconds_of({ program = program, by = "toeplab" }, 1))
    end
    local flop, bytes = count.of(p)
    return (flop or bytes) / least
  end
  for _, precision in ipairs(gemm_precisions(o)) do
    limits.gemm[precision] = best { what = "gemm", n = matrix, precision = precision }
  end
  for _, what in ipairs { "inplace", "triad" } do
    limits[what] = best { what = what, n = vector, precision = "float32" }
  end
  return limits
end

-- Estimates the remaining time, ", eta 5m", from the time per finished problem.
local function remaining(began, done, all)
  if done == 0 then return "" end
  local seconds = (core.sys.clock() - began) / done * (all - done)
  return ", eta " .. progress.duration(seconds)
end

-- Returns the rows of a bench. o: threads (a list), precisions, quick, repeats, lengths, batches,
-- dim, backends, device, say(format, ...), progress(text), limits (by threads, filled here),
-- deadline (a time after which no problem begins but the first), programs (that started keeps).
-- measured: called with the rows of each problem and the limits that apply to them.
function measure.bench(name, o, measured)
  o.device = o.device or "cpu"
  local rows, problems = {}, grids.problems(name, o)
  local began = core.sys.clock()
  o.absent, o.said, o.limits = o.absent or {}, o.said or {}, o.limits or {}
  for turn, threads in ipairs(o.threads) do
    o.limits[threads] = o.limits[threads] or measure.limits(threads, o)
    for i, p in ipairs(problems) do
      if o.deadline and #rows > 0 and core.sys.now() > o.deadline then
        o.say("bench %s: the last %d of %d problems: not measured: no time is left", name,
          #problems - i + 1, #problems)
        break
      end
      o.progress(("bench %s: %d of %d, n %d, b %d, threads %d%s"):format(name, i, #problems, p.n,
        p.b, threads, remaining(began, (turn - 1) * #problems + i - 1, #problems * #o.threads)))
      local list = measure.problem(name, p, threads, o.limits[threads], o)
      if #list > 0 then measured(list, o.limits[threads]) end
      table.move(list, 1, #list, #rows + 1, rows)
    end
  end
  return rows
end

return measure
