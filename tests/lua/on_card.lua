-- on_card.lua: all tests of devices on the first card. Exit code 77: there is none.
local core = require "toeplab.core"
local gpu = require "toeplab.bench.gpu"

local cards, about = core.look_at_device "cuda"
if not cards then
  print("skipped: " .. about)
  os.exit(77)
end
print(about)
local function say(...) print(string.format(...)) end
os.exit(gpu.correct({ say = say, progress = function() end }, "cuda"))
