-- bench.lua: toeplab bench: time and memory, measured.
local arguments = require "toeplab.commands.arguments"
local report = require "toeplab.report"
local stop = require "toeplab.stop"
local suggest = require "toeplab.suggest"

-- What can be measured: modules toeplab.bench.NAME, each {about = a line, run = function({quick=,
-- repeats=})}, which prints its table.
local benches = { "generate", "ski", "tno" }

local command = {
  example = "toeplab bench generate --quick",
  usage = "toeplab bench [WHAT]",
  about = "Measures WHAT, and prints medians and quartiles of runs taken in turns; without WHAT,\n"
    .. "lists what can be measured. Close what else runs on the machine.",
  options = {
    { name = "quick", short = "q", help = "shorter: fewer lengths and repeats" },
    { name = "repeats", short = "r", value = "N", help = "runs of each" },
  },
}

local function open(name)
  return require("toeplab.bench." .. name)
end

function command.run(set, words)
  if #words == 0 then
    local rows = {}
    for i, name in ipairs(benches) do rows[i] = { name, open(name).about } end
    report.print({ "what", "" }, rows)
    return stop.DONE
  end
  local ok, why = suggest.choose("bench", words[1], benches)
  if not ok then stop.usage("%s", why) end
  if #words > 1 then stop.usage("bench: one at a time, got '%s' too", words[2]) end
  open(words[1]).run { quick = set.quick, repeats = arguments.integer("bench", set, "repeats", 1) }
  return stop.DONE
end

return command
