-- store/own_files.lua: refuses to write what a user asks for over the files that a results folder
-- holds for itself.
local errors = require "toeplab.base.errors"
local shell = require "toeplab.base.shell"
local trial_files = require "toeplab.store.trial_files"

local own_files = {}

local own = { runs = true, sweeps = true, ["at-work"] = true, slurm = true, claims = true,
  changes = true, lock = true, news = true, ["alert.log"] = true }

-- Returns the results folder of which path is an own file, or in an own folder; nil if there is
-- none.
local function holder_of(path)
  local folder, name
  repeat
    folder, name = (folder or path):match "^(.*)/([^/]+)$"
    local ours = folder and (own[name] or name:find "^runs%.db" or name:find "^worker%-.*%.log$")
    if ours and trial_files.has_store(folder) then return folder end
  until not folder
end

-- Raises a usage error if the value of an option of a verb, a path that the verb would write, leads
-- to such a file, through links or not.
function own_files.refuse(verb, option, path)
  local real = shell.output("readlink -m -- " .. shell.quote(path))
  local folder = real and holder_of(real)
  if folder then
    errors.usage("%s: --%s %s: the results folder %s holds that for itself; choose another name",
      verb, option, path, folder)
  end
end

return own_files
