-- live/modules.lua: loads the modules of Lua that a build has where their libraries are installed
-- (lua/live/, cmake/live.cmake).
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local shell = require "toeplab.base.shell"

local modules = {}

local known = {
  tensorboard = { what = "TensorBoard's files", needs = "protobuf-c",
    packages = "libprotobuf-c-dev protobuf-c-compiler" },
  http = { what = "served pages", needs = "libmicrohttpd",
    packages = "libmicrohttpd-dev" },
}

-- Returns the path of a module, or nil and the reason if there is none. A build and an installation
-- have its folder beside the backends' folder.
function modules.file(name)
  for _, backend in ipairs(core.backends()) do
    local path = ("%s/live/%s.so"):format(backend.path:match "^(.*)/[^/]*/[^/]*$", name)
    if core.sys.exists(path) then return path end
  end
  local about = known[name]
  return nil, ("%s require %s, which this build lacks: %s, and rebuild"):format(about.what,
    about.needs, shell.install(about.packages, about.needs .. " with its headers"))
end

-- Returns the module; raises a usage error if there is none.
function modules.load(name)
  local path, why = modules.file(name)
  if not path then errors.usage("%s", why) end
  local open, problem = package.loadlib(path, "luaopen_toeplab_" .. name)
  if not open then errors.raise(errors.FAILED, "%s cannot be loaded: %s", path, problem) end
  return open()
end

return modules
