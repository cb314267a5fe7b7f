-- gpu.lua: names the GPU that the tests of the CUDA kernels use: the one in TOEPLAB_TEST_GPU, else
-- tests/emulated.so, which runs them on the CPU. Without either, the test is skipped.
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"
local t = require "harness"

local emulated = core.sys.executable():gsub("[^/]*$", "") .. "tests/emulated.so"
local name = os.getenv "TOEPLAB_TEST_GPU" or emulated
if name:find "/" and not core.sys.exists(name) then
  t.skip_all "the emulated GPU was not built, which needs a C++ compiler"
end

local gpu = { name = name, emulated = name == emulated }

local LIVE = [[
local core = require "toeplab.core"
local function live() -- bytes that are not given back
  core.tape_clear()
  collectgarbage()
  collectgarbage()
  return core.memory().live
end
]]

-- Returns what a script prints on an emulated GPU of 1 MiB, on which much does not fit. The script
-- has the module core and the function live.
function gpu.in_one_mib(script)
  local path = os.tmpname()
  assert(core.sys.write_file(path, LIVE .. script))
  local out = t.shell(("EMULATE_MIB=1 TOEPLAB_DEVICE=%s %s --threads 2 lua %s 2>&1"):format(
    shell.quote(name), shell.quote(core.sys.executable()), shell.quote(path)))
  os.remove(path)
  return out
end

-- Prints, for each "n d b causal" in arg[3], the largest error of y, dx and dcoef relative to the
-- largest number, and whether a second pass gives the same bits; long ones have only one pass.
local COMPARE = [[
local core = require "toeplab.core"
local backend = arg[1]
core.precision(arg[2])

local function apply(backend, case, coef, x, dy)
  local o = core.tno(backend, case.n, case.d, case.causal)
  coef, x = coef:clone():require_grad(), x:clone():require_grad()
  local y = o:apply(coef, {}, x)
  local list = { y:reshape(-1):totable() }
  y:backward(dy)
  list[2], list[3] = x:grad():reshape(-1):totable(), coef:grad():reshape(-1):totable()
  return list
end

local function compare(got, want)
  local worst, largest = 0, 1e-30
  for i, v in ipairs(want) do
    local off = math.abs(got[i] - v)
    worst = off ~= off and math.huge or math.max(worst, off)
    largest = math.max(largest, math.abs(v))
  end
  return worst / largest
end

for n, d, b, causal in arg[3]:gmatch "(%d+) (%d+) (%d+) (%d)" do
  local case = { n = n // 1 | 0, d = d // 1 | 0, b = b // 1 | 0, causal = causal == "1" }
  local s = core.stream(n * 100 + b, "case")
  local function normal(...) return s:normal(core.zeros(...), 0, 1) end
  local coef = normal(case.causal and case.n or 2 * case.n - 1, case.d)
  local x, dy = normal(case.b, case.n, case.d), normal(case.b, case.n, case.d)
  local want = apply("naive", case, coef, x, dy)
  local got = apply(backend, case, coef, x, dy)
  local again = case.n < 70 and apply(backend, case, coef, x, dy) or got
  local same = compare(got[1], again[1]) + compare(got[2], again[2]) + compare(got[3], again[3])
  print(("%s %s %s %s %.3g %.3g %.3g %s"):format(n, d, b, causal, compare(got[1], want[1]),
    compare(got[2], want[2]), compare(got[3], want[3]), same == 0))
end
]]

-- Compares a backend on the GPU with the definition there, in cases {n, d, b, causal}, both causal
-- and not unless they say which. The emulated GPU may have settings.
function gpu.compare(backend, precision, cases, tolerance, settings)
  local list, path = {}, os.tmpname()
  for _, case in ipairs(cases) do
    local n, d, b, causal = table.unpack(case)
    for c = causal or 0, causal or 1 do list[#list + 1] = ("%d %d %d %d"):format(n, d, b, c) end
  end
  assert(core.sys.write_file(path, COMPARE))
  local out = t.shell(("%s TOEPLAB_DEVICE=%s %s --threads 2 lua %s %s %s %s 2>&1"):format(
    settings or "", shell.quote(name), shell.quote(core.sys.executable()), shell.quote(path),
    backend, precision, shell.quote(table.concat(list, ","))))
  os.remove(path)
  local count = 0
  for what, y, dx, dcoef, same in out:gmatch "(%d+ %d+ %d+ %d) (%S+) (%S+) (%S+) (%l+)\n" do
    local worst = math.max(tonumber(y), tonumber(dx), tonumber(dcoef))
    t.ok(worst <= tolerance, ("n d b causal %s: y %s dx %s dcoef %s"):format(what, y, dx, dcoef))
    t.eq(same, "true")
    count = count + 1
  end
  t.ok(count == #list, out:sub(-300))
end

return gpu
