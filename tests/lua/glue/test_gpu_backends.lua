-- test_gpu_backends.lua: compares every backend on a GPU with the CPU: the operator and all its
-- adjoints. The GPU is tests/emulated.so, whose buffers are so small that all work is done in
-- parts, or the device in TOEPLAB_TEST_GPU.
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"
local t = require "harness"

local program = core.sys.executable()
local gpu = require "gpu"

-- Prints a line per result of each case: its name and its numbers.
local SCRIPT = [[
local core = require "toeplab.core"
core.precision(%q)
local cases = %s
local function show(case, name, x)
  local list = x:numel() > 0 and x:reshape(-1):totable() or {}
  for i, v in ipairs(list) do list[i] = ("%%.9g"):format(v) end
  print(case .. " " .. name .. ":" .. table.concat(list, " "))
end
for number, case in ipairs(cases) do
  local s = core.stream(number, "case")
  local o = core.tno(case.backend, case.n, case.d, case.causal, case.options)
  local function normal(...) return s:normal(core.zeros(...), 0, 1) end
  local of = { coef = normal(o:points():dim(1), o:width() * case.d),
               x = normal(case.b, case.n, case.d) }
  local params = {}
  for i, p in ipairs(o:params()) do
    params[i] = normal(p.shape)
    of[p.name] = params[i]
  end
  local dy, wanted = normal(case.b, case.n, case.d), {}
  for name, tensor in pairs(of) do
    if not case.only or case.only == name then
      wanted[#wanted + 1] = name
      tensor:require_grad()
    end
  end
  table.sort(wanted)
  local y, kept = o:apply(of.coef, params, of.x, case.kept)
  if kept then
    y = y + o:apply(of.coef, params, of.x, kept)
    local _, from_none = o:apply(of.coef, params, core.zeros(0, case.n, case.d), true)
    y = y + o:apply(of.coef, params, of.x, from_none)
  elseif case.kept then
    y = 3 * y
  end
  show(case.name, "y", y)
  if case.kept then -- on one of the two, or on both, instead of coef
    show(case.name, "again", core.no_grad(function()
      return o:apply(not kept and of.coef or nil, params, of.x, kept)
    end))
  end
  if case.only ~= "y" then (y * dy):sum():backward() end
  for _, name in ipairs(wanted) do
    local g = of[name]:grad()
    if g then show(case.name, name, g) end
  end
end
]]

-- Returns a Lua table as text.
local function text(value)
  if type(value) ~= "table" then return ("%q"):format(value) end
  local parts = {}
  for k, v in pairs(value) do parts[#parts + 1] = ("[%q]=%s"):format(k, text(v)) end
  return "{" .. table.concat(parts, ",") .. "}"
end

local function run(cases, device, precision)
  local path = os.tmpname()
  assert(core.sys.write_file(path, SCRIPT:format(precision or "float32", text(cases))))
  local command = ("TOEPLAB_DEVICE=%s %s --threads 2 lua %s 2>&1"):format(shell.quote(device),
    shell.quote(program), shell.quote(path))
  local pipe = assert(io.popen(command))
  local results, lines, order = {}, {}, {}
  for line in pipe:lines() do
    local name, numbers = line:match "^([^:]*):(.*)$"
    lines[#lines + 1] = line:sub(1, 200)
    if name then
      results[name], order[#order + 1] = {}, name
      for n in numbers:gmatch "%S+" do table.insert(results[name], tonumber(n) or 0 / 0) end
    end
  end
  local ok = pipe:close()
  os.remove(path)
  t.ok(ok, device .. ": " .. tostring(lines[#lines]))
  return results, order
end

-- Returns the largest difference of two results, relative to their largest number.
local function difference(here, there, name)
  local a, b, largest, worst = here[name], there[name], 0, 0
  t.ok(b and #a == #b, name .. ": not the same numbers")
  for i = 1, #a do
    largest = math.max(largest, math.abs(a[i]))
    local off = math.abs(a[i] - b[i])
    worst = off ~= off and math.huge or math.max(worst, off)
  end
  return worst / math.max(largest, 1e-30)
end

-- Makes the cases of one backend from rows of n, d, b, and options or the gradient to test.
local function check(backend, rows, part)
  t.test(backend .. (part and ": " .. part or ""), function()
    local cases = {}
    for _, row in ipairs(rows) do
      for _, causal in ipairs(row.both == false and { false } or { true, false }) do
        local words = {}
        for k, v in pairs(row.options or {}) do words[#words + 1] = k .. "=" .. tostring(v) end
        table.sort(words)
        cases[#cases + 1] = { backend = backend, n = row[1], d = row[2], b = row[3],
          causal = causal, options = row.options, only = row.only, kept = row.kept,
          name = ("%s n=%d d=%d b=%d %s%s%s %s"):format(backend, row[1], row[2], row[3],
            causal and "causal" or "bidirectional", row.only and " only " .. row.only or "",
            row.kept and " kept" or "", table.concat(words, " ")) }
      end
    end
    local here, order = run(cases, "cpu")
    local there = run(cases, gpu.name)
    t.ok(#order >= 2 * #cases - #rows, "too few results")
    for _, name in ipairs(order) do
      local off = difference(here, there, name)
      t.ok(off <= 1e-5, ("%s: off by %g"):format(name, off))
    end
  end)
end

-- Lengths one, two, odd, prime and even; no sequences; more sequences than a part has; and more
-- channels than a tile has.
local function common(more)
  local rows = {
    { 1, 1, 1 }, { 1, 3, 2 }, { 2, 2, 1 }, { 3, 1, 2 }, { 17, 5, 3 }, { 65, 33, 2 }, { 12, 2, 0 },
    { 24, 3, 40 }, { 9, 4, 3, only = "x" }, { 9, 4, 3, only = "coef" }, { 9, 4, 3, only = "y" },
    { 16, 2, 3, kept = true },
  }
  for _, row in ipairs(more or {}) do rows[#rows + 1] = row end
  return rows
end

-- Repeats n, d and b with each of some options.
local function each(n, d, b, list, interpolation)
  for i, options in ipairs(list) do
    options.interpolation = interpolation
    list[i] = { n, d, b, options = options }
  end
  return list
end

check("fft", common(each(20, 2, 2, { { planner = "estimate" } })))
check("rac", common(each(50, 2, 2, { { isa = "portable" }, { lags = 1 }, { lags = 7 },
  { lags = 40 }, { lags = 60 } })))
check("naive", common { { 130, 2, 2 } })
-- More rows than a block of threads has, more sequences than a product, and more channels.
check("matrix", common { { 90, 3, 2 }, { 70, 1, 33 }, { 129, 2, 1 }, { 64, 12, 9 }, { 300, 1, 8 } })
check("fd", common(each(33, 3, 2, { { size = "power2" }, { size = "good" } })))

-- Up to 16 inducing points use plain sums; more use transforms. Runs of tokens: long ones, ones of
-- one token, and empty ones.
check("ski", common { { 9, 4, 3, only = "taps" } })
check("ski", each(50, 3, 2, { { inducing = 2 }, { inducing = 5, taps = 9 }, { inducing = 16 },
  { inducing = 17, taps = 0 }, { inducing = 50, taps = 1 }, { inducing = 70, taps = 60 },
  { inducing = 6, zero = "mean" }, { inducing = 20, zero = "mean" },
  { inducing = 6, zero = "literal" }, { inducing = 6, span = "n" }, { inducing = 6, lambda = 0.9 },
  { inducing = 6, masking = "token" } }), "linear")
check("ski", each(41, 2, 2, { { inducing = 2 }, { inducing = 3 }, { inducing = 4 },
  { inducing = 9 },
  { inducing = 24 }, { inducing = 60 }, { inducing = 9, span = "n", zero = "mean" },
  { inducing = 9, masking = "token" } }, "cubic"), "cubic")
check("ski", { { 30, 2, 2, options = { parts = "sparse", taps = 5 } },
  { 30, 2, 2, options = { parts = "low-rank", inducing = 8 } },
  { 30, 2, 0, options = { parts = "sparse", taps = 5 } },
  { 30, 2, 0, options = { parts = "low-rank", inducing = 8 } },
  { 30, 2, 2, both = false, options = { as_published = true, inducing = 8 } },
  { 1, 2, 2, options = { inducing = 2 } } }, "parts")

-- tf32 keeps 16 binary digits of a number, bf16 8.
for precision, digits in pairs { tf32 = 16, bf16 = 8 } do
  t.test("matrix in " .. precision, function()
    local cases = {}
    for i, row in ipairs { { 1, 1, 1 }, { 17, 5, 3 }, { 65, 9, 17 }, { 300, 4, 2 } } do
      cases[i] = { backend = "matrix", n = row[1], d = row[2], b = row[3], causal = i % 2 == 0,
        name = ("n=%d d=%d b=%d"):format(row[1], row[2], row[3]) }
    end
    local here, order = run(cases, "cpu")
    local there = run(cases, gpu.name, precision)
    t.ok(#order == 3 * #cases, "too few results")
    for _, name in ipairs(order) do
      local off = difference(here, there, name)
      t.ok(off > 1e-7 and off <= 2 ^ (1 - digits), ("%s: off by %g"):format(name, off))
    end
  end)
end

-- On a GPU of 1 MiB an operator that does not fit raises an error, after which all memory is free.
local SMALL = [[
local function train(backend, causal, d)
  local o = core.tno(backend, 100, d, causal)
  local coef = core.ones(o:points():dim(1), o:width() * d):require_grad()
  local params, x = {}, core.ones(2, 100, d):require_grad()
  for i, p in ipairs(o:params()) do params[i] = core.ones(p.shape):require_grad() end
  o:apply(coef, params, x):sum():backward()
end
local before, failed, done = live(), 0, 0
for _, backend in ipairs { "fft", "rac", "fd", "naive", "matrix", "ski" } do
  for case = 0, 9 do
    local ok, why = pcall(train, backend, case % 2 == 0, 1 + 12 * case)
    if ok then done = done + 1 else failed = failed + 1 end
    if not ok and not tostring(why):find "out of memory" then error(why) end
    why = nil
    if live() ~= before then error(backend .. " keeps memory") end
  end
end
print(failed > 10 and done > 10 and "both" or failed .. " failed, " .. done .. " did not")
]]

-- Transforms of 100 sequences of length 128, for which the emulated cuFFT needs no work area, and
-- of length 100, for which it needs one. Each buffer takes 128 KiB.
local WORK_AREA = [[
local function peak(n)
  local x = core.zeros(100, n, 2)
  core.memory_reset_peak()
  local before = core.memory().live
  core.fft(x, 2)
  return (core.memory().peak - before) >> 17
end
print(peak(128), peak(100))
collectgarbage()
local list = {}
while pcall(function() list[#list + 1] = core.zeros(100, 100, 2) end) do end
for _ = 1, 3 do table.remove(list):close() end -- room for the result and the two sides' vectors
local before = live()
print(pcall(core.fft, list[1], 2) or live() == before and "does not fit")
table.remove(list):close()
print(pcall(core.fft, list[1], 2))
]]

if not os.getenv "TOEPLAB_TEST_GPU" then
  t.test("a GPU that is too small", function()
    t.eq(gpu.in_one_mib(SMALL), "both\n")
  end)
  t.test("the work area of a transform is counted, and taken only while it runs", function()
    local out = gpu.in_one_mib(WORK_AREA)
    t.ok(out:find "^3\t4\ndoes not fit\ntrue\t", out)
  end)
end

t.done()
