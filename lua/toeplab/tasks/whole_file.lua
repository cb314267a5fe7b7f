-- tasks/whole_file.lua: whole_file(path, fill) writes a file piece by piece, completely or not at
-- all, even after a power failure. It calls fill(write), in which write(text, ...) appends texts;
-- the file gets its name when fill returns. A file that cannot be written is a storage error. It
-- removes what a killed process has left of the same file.

local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local temporary = require "toeplab.base.temporary"

return function(path, fill)
  local part, folder, name = temporary.beside(path), path:match "^(.*)/([^/]*)$"
  for _, left in ipairs(temporary.dead(folder or ".", name or path)) do os.remove(left) end
  local file = errors.stored(io.open(part, "wb"))
  local ok, problem = pcall(function()
    fill(function(...) assert(file:write(...)) end)
    assert(core.sys.sync(file))
    assert(file:close())
    assert(core.sys.rename(part, path))
    assert(core.sys.sync_folder(folder or "."))
  end)
  if ok then return end
  if io.type(file) == "file" then file:close() end
  os.remove(part)
  if errors.is(problem) then error(problem, 0) end
  errors.raise(errors.STORAGE, "%s: %s", path, errors.text(problem))
end
