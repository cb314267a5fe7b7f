-- bench/gpu.lua: checks and measures a GPU in one command: the correctness of its results, how
-- close single operators come to its limits, and the Toeplitz operator and a training step beside
-- PyTorch's. Without a GPU, the kernels are checked in emulation on the CPU.
local core = require "toeplab.core"
local grids = require "toeplab.bench.grids"
local shell = require "toeplab.base.shell"
local errors = require "toeplab.base.errors"

local gpu = { measured = { "ops", "tno", "lm" } }

local program = core.sys.executable()
local here = package.searchpath("toeplab.bench.gpu", package.path):match "^(.*)/[^/]*$"
local checkout = here:match "^(.*)/lua/toeplab/bench$"

-- The tests folder of a checkout; an installation needs TOEPLAB_TESTS to name one.
local tests = os.getenv "TOEPLAB_TESTS" or checkout and checkout .. "/tests"
tests = tests and shell.absolute(tests)

-- The emulated GPU (tests/device/emulate.h), beside the program of a build.
local emulated = program:match "^(.*)/[^/]*$" .. "/tests/emulated.so"

-- Runs a command given as words, in the folder where ctest starts the test files. Returns whether
-- it succeeded, and its output.
local function run_command(words)
  for i, word in ipairs(words) do words[i] = shell.quote(word) end
  local pipe = assert(io.popen(("cd %s && %s 2>&1"):format(shell.quote(tests .. "/lua"),
    table.concat(words, " "))))
  local text = pipe:read "a"
  return pipe:close() or false, text
end

-- ---- Correctness -------------------------------------------------------------------------------

-- Reports the outcome of a check: its counts or, if it failed, its whole output.
local function report_check(o, name, good, text, seconds)
  local counted = text:match "([^\n]*passed[^\n]*)" or text:match "([^\n]+)\n*$" or ""
  o.say("%-6s %-22s %s (%.0f s)", good and "ok" or "FAILED", name, counted, seconds)
  if not good then o.say("%s", text) end
  return good
end

local function check(o, name, words)
  local began = core.sys.clock()
  o.progress(("bench gpu: %s"):format(name))
  local good, text = run_command(words)
  o.progress ""
  return report_check(o, name, good, text, core.sys.clock() - began)
end

-- Runs the test ROOM/NAME. setting: the environment variable that gives it the device; ...: a
-- command that runs the program, such as a sanitizer, with its options.
local function check_file(o, title, name, setting, ...)
  local words = { "env", setting, ... }
  for _, word in ipairs { program, "lua", name:gsub("/", "/test_") .. ".lua" } do
    words[#words + 1] = word
  end
  return check(o, title, words)
end

-- Lists the test files that run with TOEPLAB_DEVICE, and those that run with TOEPLAB_TEST_GPU.
local function test_files(quick)
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

-- Runs the tests of operators under compute-sanitizer if it is installed.
local function sanitized(o, device)
  if not grids.is_gpu(device) then return true end
  if not shell.on_path "compute-sanitizer" then
    o.say("%-6s %-22s not in PATH", "-", "compute-sanitizer")
    return true
  end
  return check_file(o, "compute-sanitizer", "glue/core_ops", "TOEPLAB_DEVICE=" .. device,
    "compute-sanitizer", "--error-exitcode", "9", "--log-file", "/dev/stderr")
end

-- Runs the tests and the reference cases on a device. Returns whether all pass. o: say, progress,
-- quick (only the first tests).
function gpu.correct(o, device)
  if not tests then
    o.say("tests: not run: an installation does not contain them; set TOEPLAB_TESTS to the tests "
      .. "folder of a checkout")
    return true
  end
  local reference = tests .. "/reference.h5"
  if not core.sys.exists(reference) then
    errors.usage("bench gpu: there is no %s: set TOEPLAB_TESTS to the tests folder of a checkout",
      reference)
  end
  local good = true
  for _, name in ipairs(test_files(o.quick)) do
    good = check_file(o, name, name, (name:find "/gpu" and "TOEPLAB_TEST_GPU=" or "TOEPLAB_DEVICE=")
      .. device) and good
  end
  for _, precision in ipairs(core.precisions "cuda") do
    local name = precision == "float32" and "verify" or "verify " .. precision
    good = check(o, name, { program, "verify", "-q", "-p", precision, "--device", device,
      reference }) and good
  end
  return (o.quick or sanitized(o, device)) and good
end

-- ---- The command -------------------------------------------------------------------------------

-- Checks the kernels in emulation; why: the reason that there is no GPU.
local function check_emulated(o, why)
  o.say("no GPU: %s", why)
  if not core.sys.exists(emulated) then
    o.say("nothing is checked: there is no %s (./lab bench gpu builds it where there is a C++ "
      .. "compiler)", emulated)
    return errors.DONE
  end
  o.say("checking the kernels on the CPU, one thread after another:")
  return gpu.correct(o, emulated) and errors.DONE or errors.CHECK
end

-- o: the options of measure.bench; measure(name, o) runs one bench. Returns the exit code.
function gpu.run(o, measure)
  local count, about = core.look_at_device(o.device)
  if not count then return check_emulated(o, about) end
  o.say("%s: %s", o.device, about)
  local good = gpu.correct(o, o.device)
  o.absent, o.said, o.limits = {}, {}, {} -- shared by all benches
  for _, name in ipairs(gpu.measured) do
    local own = {}
    for key, value in pairs(o) do own[key] = value end
    own.backends = name ~= "ops" and { "fft" } or nil
    measure(name, own)
  end
  if not good then o.say("a check FAILED (see above): do not trust the times") end
  return good and errors.DONE or errors.CHECK
end

return gpu
