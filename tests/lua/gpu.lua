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

return gpu
