-- store/own_files.lua: keeps what a user lets commands write out of the files that a results folder
-- holds for itself.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local shell = require "toeplab.base.shell"

local own_files = {}

local own = { runs = true, sweeps = true, ["at-work"] = true, slurm = true, claims = true,
  changes = true, lock = true, ["marks.jnl"] = true }

-- Returns the results folder of which path is an own file, or in an own folder; nil if there is
-- none. Where there is no database any more, the folder sweeps tells a results folder.
local function holder_of(path)
  local folder, name
  repeat
    folder, name = (folder or path):match "^(.*)/([^/]+)$"
    if folder and (own[name] or name:find "^runs%.db") and (core.sys.exists(folder .. "/runs.db")
        or core.sys.kind(folder .. "/sweeps") == "folder") then
      return folder
    end
  until not folder
end

-- Raises a usage error if the value of an option of a verb, a path that the verb would write, leads
-- to such a file, through links or not.
function own_files.refuse(verb, option, path)
  local real = shell.output("readlink -f -- " .. shell.quote(path))
  local folder = real and holder_of(real)
  if folder then
    errors.usage("%s: --%s %s: the results folder %s holds that for itself; choose another name",
      verb, option, path, folder)
  end
end

return own_files
