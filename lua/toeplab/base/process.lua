-- base/process.lua: checks whether a process with a recorded pid still runs. After its end, after a
-- reboot or in a container, another process may have the pid, but with a different start time.
local core = require "toeplab.core"

local process = {}

-- Returns the start time of process pid of this machine, in clock ticks since boot; nil if there is
-- none, or only a zombie.
function process.start(pid)
  local stat = core.sys.read_file(("/proc/%d/stat"):format(pid)) or ""
  local state, rest = stat:match "^.*%) (%a)(.*)$" -- the name before it may hold any character
  if not state or state == "Z" or state == "X" then return nil end
  return math.tointeger(rest:match("^" .. (" %S+"):rep(18) .. " (%d+)"))
end

-- Returns whether pid (nil: unknown) was a process of this machine that has ended. start: its start
-- time (process.start); nil: unknown, so that any process with the pid counts.
function process.has_died(host, pid, start)
  if host ~= core.sys.hostname() or not pid then return false end
  if not core.sys.exists "/proc/self" then return false end -- a system without /proc
  local now = process.start(pid)
  return not now or start ~= nil and now ~= start
end

return process
