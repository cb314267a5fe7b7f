-- runs/processes.lua: the worker processes of a run: how they start, stop, and why they end.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local wire = require "toeplab.base.wire"

local processes = {}

local Process = {}
Process.__index = Process

-- Starts a worker at place (devices.lua), which serves one device. What it prints goes to the log
-- of the trial in hand; before that to a file of its own. number: of no other worker of the run.
function processes.start(run, number, device, place)
  local log = ("%s/worker-%d.log"):format(run.folder, number)
  local process, why = core.sys.spawn(run.worker(place.device), log)
  if not process then errors.raise(errors.FAILED, "no worker can be started: %s", why) end
  return setmetatable({ process = process, read = wire.reader(), log = log, device = device,
    place = place }, Process)
end

-- Ends the process, whatever it does.
function Process:kill()
  self.process:kill()
  core.sys.remove(self.log)
end

-- Asks the process to save and stop: it has so many seconds.
function Process:ask_to_stop(signal, seconds)
  self.process:signal(signal)
  self.deadline = math.min(self.deadline or math.huge, core.sys.clock() + seconds)
end

-- Kills a process that was asked to stop and has not.
function Process:kill_if_overdue(now)
  if not self.deadline or now <= self.deadline then return end
  self.killed = "it was asked to stop, its step did not end, and its process was killed"
  self.process:signal("KILL")
  self.deadline = nil
end

-- The last line that a worker printed, e.g. why it cannot go on.
local function last_words(path)
  return (core.sys.read_file(path) or ""):sub(-4000):match("([^\n]+)\n*$")
end

-- Why the process has ended: a text, and the number of the signal that ended it, if one did.
function Process:cause()
  local code, signal = self.process:wait(true)
  if self.killed then return self.killed, signal end
  if signal then
    local oom = signal == 9 and " (was there too little memory?)" or ""
    return ("its process was killed by signal %d%s"):format(signal, oom), signal
  end
  local words = last_words(self.log) or self.trial_log and last_words(self.trial_log)
  return ("its process ended with exit code %d%s"):format(code, words and ": " .. words or "")
end

return processes
