-- card.lua: the card that tests of cards use: tests/emulated.so, which runs the kernels of
-- core/cuda on the CPU, or the device that TOEPLAB_CARD names. Without either the test is skipped.
local core = require "toeplab.core"

local emulated = core.sys.executable():gsub("[^/]*$", "") .. "tests/emulated.so"
local name = os.getenv "TOEPLAB_CARD" or emulated
if name:find "/" and not core.sys.exists(name) then
  print "skipped: no emulated card, for want of a C++ compiler"
  os.exit(0)
end

return { name = name, emulated = name == emulated }
