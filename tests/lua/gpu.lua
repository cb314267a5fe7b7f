-- gpu.lua: names the GPU that the tests of the CUDA kernels use: the one in TOEPLAB_TEST_GPU, else
-- tests/emulated.so, which runs core/cuda on the CPU. Without either, the test is skipped.
local core = require "toeplab.core"

local emulated = core.sys.executable():gsub("[^/]*$", "") .. "tests/emulated.so"
local name = os.getenv "TOEPLAB_TEST_GPU" or emulated
if name:find "/" and not core.sys.exists(name) then
  print "skipped: the emulated GPU was not built, which needs a C++ compiler"
  os.exit(0)
end

return { name = name, emulated = name == emulated }
