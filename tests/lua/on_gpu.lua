-- on_gpu.lua: runs all tests of devices on the first GPU. The exit code is 77 where there is none.
local core = require "toeplab.core"
local gpu = require "toeplab.bench.gpu"

local count, about = core.look_at_device "cuda"
if not count then
  print("skipped: " .. about)
  os.exit(77)
end
print(about)
local function say(...) print(string.format(...)) end
os.exit(gpu.correct({ say = say, progress = function() end }, "cuda"))
