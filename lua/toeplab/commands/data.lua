-- data.lua: toeplab data: the known data sets, whether they are here, and how to get them.
local core = require "toeplab.core"
local datasets = require "toeplab.datasets"
local report = require "toeplab.report"
local stop = require "toeplab.stop"
local suggest = require "toeplab.suggest"

local data = {
  example = "toeplab data\n  toeplab data wikitext-2",
  usage = "toeplab data [--check] [NAME...]",
  about = "Lists the data sets, or shows the files of some. TOEPLAB_DATA names the folder they\n"
    .. "are in, unpacked, each in a folder of its name.",
  options = { { name = "check", help = "also compare the sha256 of every file" } },
}

-- "here", "absent", "wrong size" or, if checked, "differs".
local function file_state(folder, file, check)
  local path = folder and folder .. "/" .. file[1]
  local handle = path and io.open(path, "rb")
  if not handle then return "absent" end
  local size = handle:seek("end")
  handle:close()
  if size ~= file[2] then return "wrong size" end
  if check and core.sha256_file(path) ~= file[3] then return "differs" end
  return "here"
end

-- How a set stands: the worst state of its files, or the program that prints it.
local function set_state(folder, set, check)
  local worst = "here"
  for _, file in ipairs(set.files) do
    local state = file_state(folder, file, check)
    if state ~= "here" then worst = state end
  end
  if worst == "absent" and datasets.installed(set) then return "here (program)" end
  return worst
end

local function detail(folder, set, check)
  print(("%s: %s (%s)"):format(set.name, set.what, set.licence))
  print("  source: " .. set.source)
  local rows = {}
  for i, file in ipairs(set.files) do
    rows[i] = { "  " .. file[1], file[2], file[3], file_state(folder, file, check) }
  end
  report.print({ "  file", "bytes", "sha256", "state" }, rows)
  local state = set_state(folder, set, check)
  if not state:find("^here") then
    print("  to get it: " .. table.concat(datasets.advice(set), "\n         or: "))
  elseif set.program and state ~= "here" then
    print(("  printed by: %s (package %s)"):format(set.program, set.package))
  end
end

function data.run(set, words)
  local folder = datasets.folder()
  for i, name in ipairs(words) do
    local found = datasets.find(name)
    if not found then
      stop.usage("unknown data set '%s'%s", name, suggest.hint(name, datasets.names()))
    end
    if i > 1 then print() end
    detail(folder, found, set.check)
  end
  if #words > 0 then return stop.DONE end
  local rows = {}
  for i, known in ipairs(datasets.list) do
    local bytes = 0
    for _, file in ipairs(known.files) do bytes = bytes + file[2] end
    rows[i] = { known.name, bytes, set_state(folder, known, set.check), known.what, known.licence }
  end
  report.print({ "name", "bytes", "state", "what", "licence" }, rows)
  print(folder and "\nTOEPLAB_DATA is " .. folder or "\nTOEPLAB_DATA is not set")
  print("toeplab data NAME shows a set's files, sha256 and how to get it")
  return stop.DONE
end

return data
