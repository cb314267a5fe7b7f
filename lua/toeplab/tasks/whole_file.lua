-- tasks/whole_file.lua: whole_file(path, fill) writes a file piece by piece, completely or not at
-- all. It calls fill(write), in which write(text, ...) appends texts; the file gets its name when
-- fill returns. A file that cannot be written is a storage error.

local core = require "toeplab.core"
local errors = require "toeplab.base.errors"

return function(path, fill)
  local temporary = ("%s.tmp.%d"):format(path, core.sys.getpid())
  local file = errors.stored(io.open(temporary, "wb"))
  local ok, problem = pcall(function()
    fill(function(...) assert(file:write(...)) end)
    assert(file:close())
    assert(core.sys.rename(temporary, path))
  end)
  if ok then return end
  if io.type(file) == "file" then file:close() end
  os.remove(temporary)
  if errors.is(problem) then error(problem, 0) end
  errors.raise(errors.STORAGE, "%s: %s", path, errors.text(problem))
end
