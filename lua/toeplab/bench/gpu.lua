-- bench/gpu.lua: checks and measures a GPU in one command, the most valuable first, within a time
-- limit: the correctness of its results, then the Toeplitz operator and a training step beside
-- PyTorch's, then how close single operators come to its limits. Without a GPU, the kernels are
-- checked in emulation on the CPU.
local core = require "toeplab.core"
local checks = require "toeplab.bench.checks"
local grids = require "toeplab.bench.grids"
local provenance = require "toeplab.trials.provenance"
local shell = require "toeplab.base.shell"
local errors = require "toeplab.base.errors"

local gpu = { measured = { "tno", "lm", "ops" } }

local CHECKED, LEAST = 0.4, 10 -- the share of the time limit for checks; seconds for a bench

local program = core.sys.executable()

-- The emulated GPU (tests/device/emulate.h), beside the program of a build or a bundle.
local emulated = program:match "^(.*)/[^/]*$" .. "/tests/emulated.so"

-- Returns the tests folder of a checkout or a bundle; another installation needs TOEPLAB_TESTS.
local function tests_folder()
  local folder = os.getenv "TOEPLAB_TESTS" or provenance.data "tests"
  return folder and shell.absolute(folder)
end

-- ---- Correctness -------------------------------------------------------------------------------

-- Returns the check that the test ROOM/NAME passes on a device. tool: runs it under that tool of
-- compute-sanitizer; pattern: only the tests whose names match.
local function file_check(name, device, tool, pattern)
  local words = { "env", (name:find "/gpu" and "TOEPLAB_TEST_GPU=" or "TOEPLAB_DEVICE=") .. device }
  if tool then
    for _, word in ipairs { "compute-sanitizer", "--tool", tool, "--target-processes", "all",
      "--error-exitcode", "9", "--log-file", "/dev/stderr" } do
      words[#words + 1] = word
    end
  end
  for _, word in ipairs { program, "lua", name:gsub("/", "/test_") .. ".lua", pattern } do
    words[#words + 1] = word
  end
  return { title = (tool and tool .. " " or "") .. name, words = words }
end

-- Lists the test files of the kernels, which run with TOEPLAB_TEST_GPU, and those that run with
-- TOEPLAB_DEVICE; nil if the folder has none, as in a bundle without tests.
local function test_files(tests, quick)
  local list, text = {}, core.sys.read_file(tests .. "/lua/on_devices.txt")
  if not text then return nil end
  for _, file in ipairs(not quick and core.sys.list(tests .. "/lua/glue") or {}) do
    local name = file:match "^test_(gpu.*)%.lua$"
    list[#list + 1] = name and "glue/" .. name
  end
  for name in text:gmatch "[^\n]+" do list[#list + 1] = name end
  return quick and { list[1] } or list
end

-- What runs under compute-sanitizer, the most valuable first. The kernels of gpu_tiles and gpu_rac
-- exchange the most through shared memory; these of their tests are small.
local SMALL = "batches and channels"
local sanitized = { { "glue/core_ops", "memcheck" }, { "glue/gpu_tiles", "racecheck", SMALL },
  { "glue/gpu_rac", "racecheck", SMALL }, { "glue/core_ops", "initcheck" },
  { "glue/gpu_tiles", "synccheck", SMALL } }

-- Adds the checks under compute-sanitizer, if that is installed.
local function add_sanitized(list, o, device)
  if not grids.is_gpu(device) then return end
  if not shell.on_path "compute-sanitizer" then
    return o.say("%-6s %-22s not in PATH", "-", "compute-sanitizer")
  end
  for _, one in ipairs(sanitized) do
    list[#list + 1] = file_check(one[1], device, one[2], one[3])
  end
end

-- Runs the reference cases and the tests on a device. Returns whether none fails. o: say, progress,
-- quick (only the first tests), check_deadline, record (see gpu.run).
function gpu.correct(o, device)
  local tests = tests_folder()
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
  local list = {}
  for _, precision in ipairs(core.precisions "cuda") do
    list[#list + 1] = { title = precision == "float32" and "verify" or "verify " .. precision,
      words = { program, "verify", "-q", "-p", precision, "--device", device, reference } }
  end
  local files = test_files(tests, o.quick)
  if not files then o.say("tests: not run: %s has only the reference cases", tests) end
  for _, name in ipairs(files or {}) do
    list[#list + 1] = file_check(name, device)
  end
  if files and not o.quick then add_sanitized(list, o, device) end
  return checks.run(o, list, files and tests .. "/lua" or tests)
end

-- ---- The command -------------------------------------------------------------------------------

-- Checks the kernels in emulation; why: the reason that there is no GPU.
local function check_emulated(o, why)
  o.say("no GPU: %s", why)
  o.record { step = "device", state = "none", text = why }
  if not core.sys.exists(emulated) then
    o.say("nothing is checked: there is no %s (./lab bench gpu builds it where there is a C++ "
      .. "compiler)", emulated)
    return errors.DONE
  end
  o.say("checking the kernels on the CPU, one thread after another:")
  o.check_deadline = o.deadline
  return gpu.correct(o, emulated) and errors.DONE or errors.CHECK
end

local function close(programs)
  for _, p in pairs(programs) do p:close() end
end

-- o: the options of measure.bench, with record(t), which writes t as a line of the results, and
-- deadline, if there is a time limit; measure(name, o) runs one bench. Returns the exit code.
function gpu.run(o, measure)
  local count, about = core.look_at_device(o.device)
  if not count then return check_emulated(o, about) end
  o.say("%s: %s", o.device, about)
  o.record { step = "device", state = "ok", text = about }
  local left = o.deadline and o.deadline - core.sys.now()
  o.check_deadline = left and core.sys.now() + CHECKED * left
  local good = gpu.correct(o, o.device)
  o.absent, o.said, o.limits = {}, {}, {} -- shared by all benches
  local programs <close> = setmetatable({}, { __close = close })
  o.programs = programs -- each starts once: PyTorch takes seconds to load
  for _, name in ipairs(gpu.measured) do
    local own = {}
    for key, value in pairs(o) do own[key] = value end
    own.backends = name ~= "ops" and { "fft", "rac", "matrix", "auto" } or nil
    if o.deadline and o.deadline - core.sys.now() < LEAST then
      o.say("bench %s: not measured: no time is left", name)
      o.record { step = name, state = "no time" }
    else
      measure(name, own)
    end
  end
  if not good then o.say("a check FAILED (see above): do not trust the times") end
  return good and errors.DONE or errors.CHECK
end

return gpu
