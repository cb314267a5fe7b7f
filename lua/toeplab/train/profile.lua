-- train/profile.lua: measures the time of each kernel in a function: print(tl.profile(fn, ...)).

local core = require "toeplab.core"

local Profile = {}
Profile.__index = Profile

-- Prints a line per kernel: calls, milliseconds, and share of the total; the last line names the
-- timed device.
function Profile:__tostring()
  local lines = {}
  local function line(name, calls, seconds)
    lines[#lines + 1] = ("%-18s %8s %10.3f ms %5.1f%%"):format(name, calls, 1e3 * seconds,
      100 * seconds / self.seconds)
  end
  for _, k in ipairs(self.kernels) do line(k.name, k.calls, k.seconds) end
  line("other", "", self.other)
  line("all", "", self.seconds)
  lines[#lines + 1] = self.device == "cpu" and "timed: each kernel on the CPU"
    or ("timed: each kernel on %s until it had finished; without a profile they overlap")
      :format(self.device)
  return table.concat(lines, "\n")
end

-- Calls fn(...) and times each kernel of the engine. On a GPU it synchronises after each kernel,
-- and uses no CUDA graphs, whose kernels cannot be timed one by one. Returns {seconds=, kernels =
-- {{name=, calls=, seconds=, bytes= (of its inputs and outputs, the least that it can move)}, ..}
-- with the longest first, other = the seconds outside of kernels (Lua, allocation, the tape),
-- device = the name of the device, system = the number of allocations from the system}. An error in
-- fn is raised again; it is an error if fn itself calls profile.
local function profile(fn, ...)
  core.profile_start()
  local before, start = core.memory().system, core.sys.clock()
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
    seconds = spent, kernels = kernels, other = spent - sum, device = core.device(),
    system = core.memory().system - before,
  }, Profile)
end

return profile
