-- runs/slurm_options.lua: the options of an array job of Slurm (slurm.lua), set by flags of toeplab
-- run and by profiles.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local options = require "toeplab.base.options"
local overlay = require "toeplab.base.overlay"
local quantity = require "toeplab.base.quantity"

local slurm_options = {}

-- From the signal on which a task saves its trials until the end of its time.
slurm_options.LEAD_SECONDS = 90

local function one_line(text)
  return text:find "%S" and not text:find "%c", "must be one line without control characters"
end

local function is_time(text)
  if text:find "^%d+$" then -- minutes to Slurm, seconds to --timeout
    return false, ("needs a unit: write %ss for seconds or %sm for minutes"):format(text, text)
  end
  local seconds = quantity.seconds(text)
  if seconds then
    return seconds > slurm_options.LEAD_SECONDS, ("must be longer than the %d seconds before its "
      .. "end at which a task saves its trials"):format(slurm_options.LEAD_SECONDS)
  end
  return text:find "^%d+%-%d[%d:]*$" or text:find "^%d+:%d%d:%d%d$", -- as Slurm writes it
    "takes a time like 90m, 4h, 2d or 1-12:00:00"
end

local function is_memory(text)
  if text:find "^[1-9]%d*$" then -- megabytes to Slurm
    return false, ("needs a unit: write %sM for megabytes or %sG for gigabytes"):format(text, text)
  end
  return text:find "^%d+[KMGTkmgt]?$" ~= nil, "takes a size like 500M or 16G; 0 is the whole node's"
end

-- The options of sbatch that toeplab sets.
local OWN = { array = true, a = true, comment = true, output = true, o = true, requeue = true,
  ["no-requeue"] = true, ["open-mode"] = true, signal = true }

local function are_lines(list)
  for key, line in pairs(list) do
    if math.type(key) ~= "integer" or type(line) ~= "string" or line:find "[\n\r]" then
      return false, "must be a list of strings without line breaks"
    end
    for dashes, name in (line:match "^#SBATCH(.*)" or ""):gmatch "%s(%-%-?)([%a-]+)" do
      name = dashes == "-" and name:sub(1, 1) or name
      if OWN[name] then
        return false, ("sets %s%s, which toeplab sets itself: remove it"):format(dashes, name)
      end
    end
  end
  return true
end

-- A word may be a number in a profile, as in gpus = 1.
local function word(help, is_good)
  return options.field { type = "string|int", optional = true, help = help,
    check = function(value) return (is_good or one_line)(tostring(value)) end }
end

local function count(help, default)
  return options.field { type = "int", optional = default == nil, default = default, min = 1,
    help = help }
end

-- The options of an array job. Each is a flag of toeplab run and a key of a profile.
slurm_options.spec = options.set {
  { "partition", word "the partition of the job" },
  { "account", word "the account to charge" },
  { "time", word("the time limit of a task (90m, 4h, 2d)", is_time) },
  { "memory", word("the memory of a task (16G)", is_memory) },
  { "cpus", count "processors per task (default: -j)" },
  { "gpus", word "GPUs per task (1, a100:2)" },
  { "trials", count "trials per task (default: -j)" },
  { "limit", count "tasks at a time" },
  { "line", options.field { type = "table", default = {}, check = are_lines,
    help = "another line of the script (#SBATCH ... or a command)" } },
}

-- Returns the options in the profile at path; nil if there is none.
local function read_profile(path)
  if not core.sys.exists(path) then return nil end
  local profile = assert(loadfile(path, "t", {}))()
  options.check(path, slurm_options.spec, profile)
  return profile
end

-- Returns the options of the job. The command line overrides the profile slurm.lua beside the
-- experiment's file, which overrides the one in the user's configuration folder. jobs: trials at a
-- time in a task.
function slurm_options.read(script, flags, jobs)
  local config = os.getenv "XDG_CONFIG_HOME"
  local home = config and config ~= "" and config or (os.getenv "HOME" or "") .. "/.config"
  local ok, result = pcall(function()
    local all = overlay(read_profile(home .. "/toeplab/slurm.lua"),
      read_profile((script:match "^(.*/)[^/]*$" or "") .. "slurm.lua"), flags)
    return options.check("run --on slurm", slurm_options.spec, all)
  end)
  if not ok then errors.usage("%s", errors.text(result)) end
  result.cpus, result.trials = result.cpus or jobs, math.max(result.trials or 1, jobs)
  return result
end

return slurm_options
