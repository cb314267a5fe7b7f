-- runs/alert.lua: runs a command of the user when a trial fails or diverges, and at the end of a
-- run. The command has a time limit, so that it cannot block the end of the run, and its standard
-- error goes to alert.log in the results folder.
--
-- Environment variables describe the event. They are never part of the command line, because a
-- message of a script could then become a command.
local core = require "toeplab.core"
local cut = require("toeplab.base.characters").cut
local errors = require "toeplab.base.errors"
local shell = require "toeplab.base.shell"

local alert = {
  MOST = 10,  -- alerts about trials of one run, besides the one at its end
  LIMIT = 60, -- seconds that a command may take
}

local PATIENCE = 2 -- seconds of waiting for a command before a message appears

local LONGEST = 2000 -- bytes of a variable, because the environment of a process is limited

local Alert = {}
Alert.__index = Alert

-- Makes the alerts of a run with results in folder. command: a line for sh; nil: no alerts.
function alert.new(command, folder)
  return setmetatable({ command = command, folder = folder, count = 0,
    limited = command and shell.on_path "timeout" }, Alert)
end

local function line_of(self, variables)
  local words = {}
  for _, pair in ipairs(variables) do
    words[#words + 1] = pair[1] .. "=" .. shell.quote(cut(core.sys.clean(pair[2]), LONGEST))
  end
  words[#words + 1] = "TOEPLAB_DIR=" .. shell.quote(self.folder)
  if self.limited then words[#words + 1] = "timeout -k 5 " .. alert.LIMIT end
  words[#words + 1] = "sh -c " .. shell.quote(self.command)
  local log = self.folder .. "/alert.log"
  local file <close> = io.open(log, "ab") -- may fail, if the event is a full disk
  return ("%s </dev/null >/dev/null 2>>%s"):format(table.concat(words, " "),
    shell.quote(file and log or "/dev/null"))
end

-- Reports in the background that a trial "failed" or "diverged", and why.
function Alert:trial(event, t, text)
  if not self.command or self.count >= alert.MOST then return end
  self.count = self.count + 1
  if self.count == alert.MOST then
    text = text .. " (this is the last alert before the end of the run)"
  end
  local line = line_of(self, { { "TOEPLAB_EVENT", event }, { "TOEPLAB_EXPERIMENT", t.experiment },
    { "TOEPLAB_TRIAL", t.id }, { "TOEPLAB_TEXT", t.label .. ": " .. text } })
  os.execute(("{ %s; } </dev/null >/dev/null 2>&1 &"):format(line))
end

-- Reports the end of the run, and waits for the command. Returns whether it succeeded.
function Alert:finish(experiment, text)
  if not self.command then return true end
  local line = line_of(self, { { "TOEPLAB_EVENT", "end" },
    { "TOEPLAB_EXPERIMENT", experiment }, { "TOEPLAB_TEXT", text } })
  local waiting = ("waiting for the command of --alert%s; its errors are in %s"):format(
    self.limited and (", %d s at most"):format(alert.LIMIT) or "", self.folder .. "/alert.log")
  local since = core.sys.clock()
  local ok, code = shell.run(("{ sleep %d 2>/dev/null; echo %s >&2; } </dev/null >/dev/null & %s"
    .. "\ncode=$?; kill $! 2>/dev/null; exit $code"):format(PATIENCE, shell.quote(waiting), line))
  if (code == 124 or code == 137) and core.sys.clock() - since >= alert.LIMIT then
    errors.say("warning: the command of --alert was stopped after %d s", alert.LIMIT)
  end
  return ok
end

return alert
