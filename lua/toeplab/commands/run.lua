-- commands/run.lua: toeplab run: runs the trials of an experiment.
local arguments = require "toeplab.base.arguments"
local core = require "toeplab.core"
local quantity = require "toeplab.base.quantity"
local runner = require "toeplab.runs.runner"
local errors = require "toeplab.base.errors"

local run = {
  example = "toeplab run experiments/quickstart.lua\n"
    .. "  toeplab run experiments/quickstart.lua scale=smoke steps=20 seeds=3",
  usage = "toeplab run FILE [key=value...]",
  about = "Runs every trial of an experiment that is not done yet. The same command continues\n"
    .. "after an interruption of any kind, and repeats only what failed. key=value sets a key of\n"
    .. "the experiment (a,b,c: the values of an axis); scale=NAME takes one of its scales;\n"
    .. "seeds=N or seed=N sets the seeds. Results go to standard output, progress to standard\n"
    .. "error.",
  options = {
    { name = "dry-run", short = "n", help = "list the trials with their status; run nothing" },
    { name = "jobs", short = "j", value = "N", help = "N trials at a time, each in a process" },
    { name = "share", value = "N", help = "N trials at a time on each GPU (1)" },
    { name = "timeout", value = "TIME", help = "stop a trial that takes longer (90s, 30m)" },
    { name = "fail-fast", help = "stop all at the first failure" },
    { name = "redo", help = "make trials of other code again, from the start" },
    { name = "shard", value = "I/K", help = "only every K-th trial, from the I-th on" },
    { name = "dir", short = "C", value = "DIR", help = "the results folder" },
    { name = "quiet", short = "q", help = "no progress" },
    { name = "checkpoint-steps", value = "N", help = "a checkpoint every N steps" },
    { name = "checkpoint-seconds", value = "S", help = "a checkpoint every S seconds" },
  },
}

-- Parses "I/K" into {part=, of=}.
local function shard(text)
  if not text then return nil end
  local part, of = text:match("^(%d+)/(%d+)$")
  part, of = math.tointeger(tonumber(part)), math.tointeger(tonumber(of))
  if not of or part < 1 or part > of then
    errors.usage("run: --shard takes I/K with I from 1 to K, got '%s'", text)
  end
  return { part = part, of = of }
end

local function duration(text)
  if not text then return nil end
  return quantity.seconds(tonumber(text) or text)
    or errors.usage("run: --timeout takes a time like 90s, 30m or 4h, got '%s'", text)
end

-- Half the processes that can be polled: each may be exiting while its successor starts.
local MOST = 128

function run.run(set, words, command)
  local path = table.remove(words, 1)
  if not path then errors.usage("run: which experiment? Give the path of its file") end
  if path:find("=") and not core.sys.exists(path) then
    errors.usage("run: the file comes first, then key=value; got '%s'", path)
  end
  local options = {
    dir = set.dir, quiet = set.quiet, command = { "toeplab", table.unpack(command) },
    jobs = arguments.integer("run", set, "jobs", 1),
    share = arguments.integer("run", set, "share", 1), timeout = duration(set.timeout),
    fail_fast = set["fail-fast"], shard = shard(set.shard),
    redo = set.redo,
    steps = arguments.integer("run", set, "checkpoint-steps", 1),
    seconds = arguments.number("run", set, "checkpoint-seconds", 0),
  }
  if options.jobs and options.jobs > MOST then
    errors.usage("run: --jobs takes at most %d, got %d", MOST, options.jobs)
  end
  if set["dry-run"] then return runner.list(path, words, options) end
  return runner.run(path, words, options)
end

return run
