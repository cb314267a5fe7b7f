-- runs/alert.lua: runs a command of the user when a trial fails or diverges, and at the end of a
-- run.
--
-- The command learns what happened from environment variables. The texts are never part of the
-- command line itself: a message of a script could otherwise become a command.
local core = require "toeplab.core"
local cut = require("toeplab.base.characters").cut
local shell = require "toeplab.base.shell"

local alert = { MOST = 10 } -- alerts about trials of one run; that of its end comes in addition

local LONGEST = 2000 -- bytes of a text, since the environment of a process is limited

local Alert = {}
Alert.__index = Alert

-- Makes the alerts of a run with results in folder. command: a line for sh; nil: there are none.
function alert.new(command, folder)
  return setmetatable({ command = command, folder = folder, count = 0 }, Alert)
end

local function line_of(self, variables)
  local words = {}
  for _, pair in ipairs(variables) do
    words[#words + 1] = pair[1] .. "=" .. shell.quote(cut(core.sys.clean(pair[2]), LONGEST))
  end
  words[#words + 1] = "TOEPLAB_DIR=" .. shell.quote(self.folder)
  words[#words + 1] = "sh -c " .. shell.quote(self.command)
  return table.concat(words, " ") .. " </dev/null >/dev/null"
end

-- Tells that a trial "failed" or "diverged", and why. The command runs in the background, since the
-- trials do not wait for it.
function Alert:trial(event, t, text)
  if not self.command or self.count >= alert.MOST then return end
  self.count = self.count + 1
  if self.count == alert.MOST then text = text .. " (of further trials only the end is told)" end
  local line = line_of(self, { { "TOEPLAB_EVENT", event }, { "TOEPLAB_EXPERIMENT", t.experiment },
    { "TOEPLAB_TRIAL", t.id }, { "TOEPLAB_TEXT", t.label .. ": " .. text } })
  os.execute(("{ %s || echo 'toeplab: the command of --alert failed' >&2; } &"):format(line))
end

-- Tells that the run has ended, and waits for the command. Returns whether this succeeded.
function Alert:finish(experiment, text)
  if not self.command then return true end
  return (shell.run(line_of(self, { { "TOEPLAB_EVENT", "end" },
    { "TOEPLAB_EXPERIMENT", experiment }, { "TOEPLAB_TEXT", text } })))
end

return alert
