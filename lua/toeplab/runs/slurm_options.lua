-- runs/slurm_options.lua: the options of an array job of Slurm (slurm.lua), which flags of toeplab
-- run and profiles give.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local options = require "toeplab.base.options"
local overlay = require "toeplab.base.overlay"
local quantity = require "toeplab.base.quantity"

local slurm_options = {}

-- From the signal on which a task saves its trials to the end of its time.
slurm_options.LEAD_SECONDS = 90

local function one_line(text)
  return text:find "%S" and not text:find "%c", "must be one line without control characters"
end

-- Returns the seconds of a time in Slurm's forms of two parts or more: D-H[:M[:S]], H:M:S, M:S; nil
-- if it is none.
local function slurm_seconds(text)
  local days, rest = text:match "^(%d+)%-(.+)$"
  local a, b, c = (rest or text):match "^(%d+):?(%d*):?(%d*)$"
  if not a or not days and b == "" or (rest or text):find ":$" then return nil end
  a, b, c = tonumber(a), tonumber(b), tonumber(c)
  if days then return 86400 * tonumber(days) + 3600 * a + 60 * (b or 0) + (c or 0) end
  return c and 3600 * a + 60 * b + c or 60 * a + b
end

local function is_time(text)
  if text:find "^%d+$" then -- minutes to Slurm, seconds to --timeout
    return false, ("needs a unit: %ss are seconds, %sm are minutes"):format(text, text)
  end
  local seconds = quantity.seconds(text) or slurm_seconds(text)
  if not seconds then return false, "takes a time like 90m, 4h, 2d or 1-12:00:00" end
  return seconds > slurm_options.LEAD_SECONDS, ("must be longer than the %d seconds before its end "
    .. "at which a task saves its trials"):format(slurm_options.LEAD_SECONDS)
end

local function is_memory(text)
  if text:find "^[1-9]%d*$" then -- megabytes to Slurm
    return false, ("needs a unit: %sM are megabytes, %sG are gigabytes"):format(text, text)
  end
  return text:find "^%d+[KMGTkmgt]?$" ~= nil, "takes a size like 500M or 16G; 0 is the whole node's"
end

local function word(help, value)
  return options.field { type = "string", optional = true, help = help, check = value or one_line }
end

local function count(help, default)
  return options.field { type = "int", optional = default == nil, default = default, min = 1,
    help = help }
end

-- The options of an array job. Each is a flag of toeplab run and a key of a profile.
slurm_options.spec = options.set {
  { "partition", word "the partition of the job" },
  { "account", word "the account that pays" },
  { "time", word("the time limit of a task (90m, 4h, 2d)", is_time) },
  { "memory", word("the memory of a task (16G)", is_memory) },
  { "cpus", count "processors of a task (those of -j)" },
  { "gpus", word "GPUs of a task (1, a100:2)" },
  { "trials", count "trials that a task runs (those of -j)" },
  { "limit", count "tasks at a time" },
  { "line", options.field { type = "table", default = {},
    help = "a further line of the script (#SBATCH ... or a command)" } },
}

local function in_folder(path) return path:match "^(.*)/[^/]*$" or "." end

-- Returns the options in the profile at path; {} if there is none.
local function read_profile(path)
  if not core.sys.exists(path) then return {} end
  local text = errors.stored(core.sys.read_file(path))
  local chunk, why = load(text, "@" .. path, "t", {})
  if not chunk then errors.usage("%s", why) end
  local ok, profile = pcall(chunk)
  if not ok then errors.usage("%s", errors.text(profile)) end
  if type(profile) ~= "table" then
    errors.usage("%s: must return a table of options, got a %s", path, type(profile))
  end
  for key, value in pairs(profile) do -- a number, as gpus = 1, is natural in Lua
    if (key == "gpus" or key == "memory" or key == "time") and math.type(value) == "integer" then
      profile[key] = tostring(value)
    end
  end
  local good, problem = pcall(options.check, path, slurm_options.spec, profile)
  if not good then errors.usage("%s", errors.text(problem)) end
  return profile
end

-- The options of sbatch on which the submission relies.
local OWN = { array = true, a = true, comment = true, output = true, o = true, requeue = true,
  ["no-requeue"] = true, ["open-mode"] = true, signal = true }

local function check_lines(lines)
  local count = 0
  for _ in pairs(lines) do count = count + 1 end
  for i = 1, count do
    local line = lines[i]
    if type(line) ~= "string" or line:find "[\n\r]" then
      errors.usage("run --on slurm: option 'line' is a list of texts of one line each")
    end
    for dashes, name in (line:match "^#SBATCH(.*)" or ""):gmatch "%s(%-%-?)([%a-]+)" do
      name = dashes == "-" and name:sub(1, 1) or name
      if OWN[name] then
        errors.usage("run --on slurm: option 'line': toeplab itself sets %s%s: take it out", dashes,
          name)
      end
    end
  end
end

-- Returns the options of the job: those of the command line over the profile slurm.lua beside the
-- experiment's file over that in the user's configuration folder. jobs: trials at a time in a task.
function slurm_options.read(script, flags, jobs)
  local config = os.getenv "XDG_CONFIG_HOME"
  local home = config and config ~= "" and config or (os.getenv "HOME" or "") .. "/.config"
  local all = overlay(read_profile(home .. "/toeplab/slurm.lua"),
    read_profile(in_folder(script) .. "/slurm.lua"), flags)
  local ok, result = pcall(options.check, "run --on slurm", slurm_options.spec, all)
  if not ok then errors.usage("%s", errors.text(result)) end
  check_lines(result.line)
  result.cpus, result.trials = result.cpus or jobs, math.max(result.trials or 1, jobs)
  return result
end

return slurm_options
