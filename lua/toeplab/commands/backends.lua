-- backends.lua: toeplab backends: the loaded operator backends and their options.
local core = require "toeplab.core"
local report = require "toeplab.report"
local stop = require "toeplab.stop"

local backends = {
  example = "toeplab backends",
  usage = "toeplab backends",
  about = "Lists the backends of the Toeplitz operator with their options, and the plugin files\n"
    .. "that could not be used. TOEPLAB_BACKENDS names further folders to look into.",
  options = {},
}

function backends.run(_, words)
  if #words > 0 then stop.usage("backends takes no arguments, got '%s'", words[1]) end
  for _, backend in ipairs(core.backends()) do
    print(("%-8s %s"):format(backend.name, backend.summary))
    print("         " .. backend.path)
    local rows = {}
    for i, o in ipairs(backend.options) do
      rows[i] = { "         " .. o.name, o.type, o.default, o.range or "", o.help }
    end
    if #rows > 0 then report.print({ "         option", "type", "default", "range", "" }, rows) end
  end
  for _, problem in ipairs(core.backend_problems()) do
    io.stderr:write("not usable: ", problem, "\n")
  end
  return stop.DONE
end

return backends
