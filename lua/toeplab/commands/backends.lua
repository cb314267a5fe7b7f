-- commands/backends.lua: toeplab backends: the loaded operator backends and their options.
local core = require "toeplab.core"
local report = require "toeplab.report.table_text"
local errors = require "toeplab.base.errors"

local backends = {
  example = "toeplab backends",
  usage = "toeplab backends",
  about = "Lists the backends of the Toeplitz operator with their options and the devices that\n"
    .. "they have a form for, and the plugin files that could not be used. TOEPLAB_BACKENDS names\n"
    .. "further folders to look into.",
  options = {},
}

-- The devices that a backend can be used on, as far as this build knows of any.
local function devices_of(name)
  local list = { "cpu" }
  for _, device in ipairs { "cuda" } do
    if core.device_takes(device, name) then list[#list + 1] = device end
  end
  return table.concat(list, ", ")
end

function backends.run(_, words)
  if #words > 0 then errors.usage("backends takes no arguments, got '%s'", words[1]) end
  for _, backend in ipairs(core.backends()) do
    print(("%-8s %s"):format(backend.name, backend.summary))
    print("         " .. backend.path)
    print("         on " .. devices_of(backend.name))
    local rows = {}
    for i, o in ipairs(backend.options) do
      rows[i] = { "         " .. o.name, o.type, o.default, o.range or "", o.help }
    end
    if #rows > 0 then report.print({ "         option", "type", "default", "range", "" }, rows) end
  end
  local cards, about = core.look_at_device "cuda"
  print(cards and "cuda     " .. about or "no cuda: " .. about)
  for _, problem in ipairs(core.backend_problems()) do
    errors.say("not usable: %s", problem)
  end
  return errors.DONE
end

return backends
