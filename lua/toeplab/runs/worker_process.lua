-- runs/worker_process.lua: starts and stops the worker processes of a run, and explains their
-- exits.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local wire = require "toeplab.base.wire"

local worker_process = { GRACE_SECONDS = 8 } -- from the request to stop until a process is killed

local Process = {}
Process.__index = Process

-- Starts a worker on the device of place (devices.lua). Its standard output goes to the log of its
-- trial; before the first trial, to worker-HOST.PID-NUMBER.log, where PID is this process. number
-- is unique in the run.
function worker_process.start(run, number, device, place)
  local log = ("%s/worker-%s.%d-%d.log"):format(run.folder, core.sys.hostname(), core.sys.getpid(),
    number)
  local process, why, no_log = core.sys.spawn(run.worker(place.device), log)
  if not process then
    local code = no_log and errors.STORAGE or errors.FAILED
    errors.raise(code, "cannot start a worker: %s", why)
  end
  return setmetatable({ process = process, read = wire.reader(), log = log, device = device,
    place = place }, Process)
end

-- Kills the process and removes its own log.
function Process:kill()
  self.process:kill()
  core.sys.remove(self.log)
end

-- Asks the process to save and stop; kill_if_overdue kills it after `seconds` (nil: GRACE_SECONDS).
function Process:ask_to_stop(signal, seconds)
  self.process:signal(signal)
  self.asked = signal
  local deadline = core.sys.clock() + (seconds or worker_process.GRACE_SECONDS)
  self.deadline = math.min(self.deadline or math.huge, deadline)
end

-- Kills the process if it has not stopped in time.
function Process:kill_if_overdue(now)
  if not self.deadline or now <= self.deadline then return end
  self.killed = "its process was killed, because it did not stop in time when asked to"
  self.process:signal("KILL")
  self.deadline = nil
end

-- Returns the last line of a log, which usually explains why the process ended.
local function last_line(path)
  return (core.sys.read_file(path) or ""):sub(-4000):match("([^\n]+)\n*$")
end

-- The numbers of the signals that ask a process to stop.
local NUMBERS = { HUP = 1, INT = 2, USR1 = 10, USR2 = 12, TERM = 15 }

-- Waits for a process that has closed its pipe, and kills it if it does not end. Returns a message
-- of how it ended, and the number of the signal that ended it, if any.
function Process:cause()
  local deadline = core.sys.clock() + worker_process.GRACE_SECONDS
  local code, signal = self.process:wait()
  while not code and not signal do
    if core.sys.clock() > deadline then
      self.killed = "its process was killed, because it had closed its pipe and did not end"
      self.process:signal("KILL")
    end
    core.sys.sleep(0.005)
    code, signal = self.process:wait()
  end
  if self.killed then return self.killed, signal end
  if signal and NUMBERS[self.asked] == signal then -- it had not yet begun to catch signals
    return errors.stop_text(self.asked), signal
  end
  if signal then
    local oom = signal == 9 and " (perhaps out of memory)" or ""
    return ("its process was killed by signal %d%s"):format(signal, oom), signal
  end
  local words = last_line(self.log) or self.trial_log and last_line(self.trial_log)
  return ("its process ended with exit code %d%s"):format(code, words and ": " .. words or "")
end

return worker_process
