-- train/profile.lua: where the time of a function goes: print(tl.profile(fn, ...)).

local core = require "toeplab.core"

local Profile = {}
Profile.__index = Profile

-- One line per kernel: calls, milliseconds, share of the whole.
function Profile:__tostring()
  local lines = {}
  local function line(name, calls, seconds)
    lines[#lines + 1] = ("%-18s %8s %10.3f ms %5.1f%%"):format(name, calls, 1e3 * seconds,
      100 * seconds / self.seconds)
  end
  for _, k in ipairs(self.kernels) do line(k.name, k.calls, k.seconds) end
  line("other", "", self.other)
  line("all", "", self.seconds)
  return table.concat(lines, "\n")
end

-- Runs fn(...) and times each kernel of the engine. Returns {seconds=, kernels = {{name=, calls=,
-- seconds=}, ..}, the longest first, other = seconds outside them (Lua, allocation, the tape),
-- system = times that memory was asked of the system}. An error in fn passes on, and a profile
-- within fn is one.
local function profile(fn, ...)
  local before, start = core.memory().system, core.sys.clock()
  core.profile_start()
  local done, problem = pcall(fn, ...)
  local kernels, sum = core.profile_stop(), 0.0
  local spent = core.sys.clock() - start
  if not done then error(problem, 0) end
  for _, k in ipairs(kernels) do sum = sum + k.seconds end
  table.sort(kernels, function(a, b)
    if a.seconds ~= b.seconds then return a.seconds > b.seconds end
    return a.name < b.name
  end)
  return setmetatable({
    seconds = spent, kernels = kernels, other = spent - sum,
    system = core.memory().system - before,
  }, Profile)
end

return profile
