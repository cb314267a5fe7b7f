-- store/internal_files.lua: refuses to overwrite the internal files of a results folder with a
-- user's output.
local errors = require "toeplab.base.errors"
local shell = require "toeplab.base.shell"
local trial_files = require "toeplab.store.trial_files"

local internal_files = {}

local own = { runs = true, sweeps = true, ["at-work"] = true, slurm = true, claims = true,
  changes = true, lock = true, news = true, ["alert.log"] = true }

-- Returns the results folder that has path as an internal file, or in an internal folder; nil if
-- there is none.
local function holder_of(path)
  local folder, name
  repeat
    folder, name = (folder or path):match "^(.*)/([^/]+)$"
    local ours = folder and (own[name] or name:find "^runs%.db" or name:find "^worker%-.*%.log$")
    if ours and trial_files.has_store(folder) then return folder end
  until not folder
end

-- Raises a usage error if path, the value of a verb's option, leads to such a file, also through
-- links.
function internal_files.refuse(verb, option, path)
  local real = shell.output("readlink -m -- " .. shell.quote(path))
  local folder = real and holder_of(real)
  if folder then
    errors.usage("%s: --%s %s: the results folder %s uses this file itself; choose another name",
      verb, option, path, folder)
  end
end

return internal_files
