-- base/temporary.lua: names of temporary files and folders, which are renamed when they are
-- complete. Each name contains host and pid, so that other processes recognise the files of a
-- killed one, also in a folder that several machines share.
local core = require "toeplab.core"
local process = require "toeplab.base.process"

local temporary = {}

-- Returns the path of the temporary file of this process beside the file at path.
function temporary.beside(path)
  local folder, name = path:match "^(.*/)([^/]*)$"
  return ("%s.%s.tmp.%s.%d"):format(folder or "", name or path, core.sys.hostname(),
    core.sys.getpid())
end

-- Returns the host and the pid in the name of a temporary file; nil for other names.
function temporary.owner(name) return name:match "^%..+%.tmp%.(.+)%.(%d+)$" end

-- Returns the paths of the temporary files in folder that dead processes of this machine have left;
-- of: only temporary files of the file with this name.
function temporary.dead(folder, of)
  local list = {}
  for _, name in ipairs(core.sys.list(folder) or {}) do
    local file, host, pid = name:match "^%.(.+)%.tmp%.(.+)%.(%d+)$"
    if pid and (not of or file == of) and process.has_died(host, pid) then
      list[#list + 1] = folder .. "/" .. name
    end
  end
  return list
end

return temporary
