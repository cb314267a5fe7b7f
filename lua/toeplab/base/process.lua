-- base/process.lua: finds out whether a process of a recorded number still runs. After its end,
-- after a restart of the machine or in a container, another process may have the same number, but
-- it started at another time.
local core = require "toeplab.core"

local process = {}

-- Returns when process pid of this machine started, in clock ticks since the machine did; nil if
-- there is none. A process that has ended and is not yet waited for (a zombie) is none.
function process.start(pid)
  local stat = core.sys.read_file(("/proc/%d/stat"):format(pid)) or ""
  local state, rest = stat:match "^.*%) (%a)(.*)$" -- the name before it may hold any character
  if not state or state == "Z" or state == "X" then return nil end
  return math.tointeger(rest:match("^" .. (" %S+"):rep(18) .. " (%d+)"))
end

-- Returns whether pid (nil: unknown) was a process of this machine that has ended. start: when it
-- started (process.start); nil: unknown, and a process of that number is taken for it.
function process.has_died(host, pid, start)
  if host ~= core.sys.hostname() or not pid then return false end
  if not core.sys.exists "/proc/self" then return false end -- a system without /proc
  local now = process.start(pid)
  return not now or start ~= nil and now ~= start
end

return process
