-- bench/gpu.lua: all that is to be shown of a GPU, in one command: that what it computes is right,
-- how near single operators are to its limits, and the operator and a training step beside
-- PyTorch's on it. Without a GPU the kernels are checked on the processor.
local core = require "toeplab.core"
local grids = require "toeplab.bench.grids"
local shell = require "toeplab.base.shell"
local errors = require "toeplab.base.errors"

local gpu = { measured = { "ops", "tno", "lm" } }

local program = core.sys.executable()
local here = package.searchpath("toeplab.bench.gpu", package.path):match "^(.*)/[^/]*$"
local tests = (here:match "^(.*)/lua/toeplab/bench$" or ".") .. "/tests"

-- Where tests/lua/*/test_*.lua find the harness, and the file of a test ROOM/NAME.
local harness = "LUA_PATH=" .. tests .. "/lua/?.lua;;"
local function of_test(name) return tests .. "/lua/" .. name:gsub("/", "/test_") .. ".lua" end

-- The GPU that is emulated (tests/device/emulate.h), beside the program of a build.
local emulated = program:match "^(.*)/[^/]*$" .. "/tests/emulated.so"

-- Runs a command, its words; returns whether it succeeded, and what it printed.
local function run(words)
  for i, word in ipairs(words) do words[i] = shell.quote(word) end
  local pipe = assert(io.popen(table.concat(words, " ") .. " 2>&1"))
  local text = pipe:read "a"
  return pipe:close() or false, text
end

-- ---- Is it right ------------------------------------------------------------------------------

-- Says how a check ended: what it counted, or all that it said if it failed.
local function told(o, name, good, text, seconds)
  local counted = text:match "([^\n]*passed[^\n]*)" or text:match "([^\n]+)\n*$" or ""
  o.say("%-6s %-22s %s (%.0f s)", good and "ok" or "FAILED", name, counted, seconds)
  if not good then o.say("%s", text) end
  return good
end

local function check(o, name, words)
  local began = core.sys.clock()
  o.progress(("bench gpu: %s"):format(name))
  local good, text = run(words)
  o.progress ""
  return told(o, name, good, text, core.sys.clock() - began)
end

-- The test files that are run with TOEPLAB_DEVICE, and those that take TOEPLAB_TEST_GPU.
local function files(quick)
  local list = {}
  for name in (core.sys.read_file(tests .. "/lua/on_devices.txt") or ""):gmatch "[^\n]+" do
    list[#list + 1] = name
  end
  if quick then return { list[1] } end
  for _, name in ipairs { "_backends", "_mlp", "_precision", "_capture", "_graphs", "" } do
    list[#list + 1] = "glue/gpu" .. name
  end
  return list
end

-- The tests of operators under compute-sanitizer, where there is one.
local function sanitized(o, device)
  if not grids.is_gpu(device) then return true end
  if not shell.on_path "compute-sanitizer" then
    o.say("%-6s %-22s not in PATH", "-", "compute-sanitizer")
    return true
  end
  return check(o, "compute-sanitizer", { "env", "TOEPLAB_DEVICE=" .. device, harness,
    "compute-sanitizer",
    "--error-exitcode", "9", "--log-file", "/dev/stderr", program, "lua",
    of_test "glue/core_ops" })
end

-- Runs the tests and the reference cases on a device; returns whether all is right. o: say,
-- progress, quick (the first tests only).
function gpu.correct(o, device)
  if not core.sys.exists(tests .. "/reference.h5") then
    o.say("tests: not run: they are beside the sources, and this is an installation")
    return true
  end
  local good = true
  for _, name in ipairs(files(o.quick)) do
    good = check(o, name, { "env", (name:find "/gpu" and "TOEPLAB_TEST_GPU=" or "TOEPLAB_DEVICE=")
      .. device, harness, program, "lua", of_test(name) }) and good
  end
  for _, precision in ipairs(core.precisions "cuda") do
    local name = precision == "float32" and "verify" or "verify " .. precision
    good = check(o, name, { program, "verify", "-q", "-p", precision, "--device", device,
      tests .. "/reference.h5" }) and good
  end
  return (o.quick or sanitized(o, device)) and good
end

-- ---- All of it --------------------------------------------------------------------------------

-- There is no GPU: why tells.
local function without(o, why)
  o.say("no GPU: %s", why)
  if not core.sys.exists(emulated) then
    o.say("nothing is checked: there is no %s (./lab bench gpu builds it where there is a C++ "
      .. "compiler)", emulated)
    return errors.DONE
  end
  o.say("its kernels on the processor, one thread after another:")
  return gpu.correct(o, emulated) and errors.DONE or errors.CHECK
end

-- o: as measure.bench wants it; measure(name, o) does one bench. Returns the exit code.
function gpu.run(o, measure)
  local count, about = core.look_at_device(o.device)
  if not count then return without(o, about) end
  o.say("%s: %s", o.device, about)
  local good = gpu.correct(o, o.device)
  o.absent, o.said, o.limits = {}, {}, {} -- once for all benches
  for _, name in ipairs(gpu.measured) do
    local own = {}
    for key, value in pairs(o) do own[key] = value end
    own.backends = name ~= "ops" and { "fft" } or nil
    measure(name, own)
  end
  if not good then o.say("a check FAILED: see above; the times are those of wrong results") end
  return good and errors.DONE or errors.CHECK
end

return gpu
