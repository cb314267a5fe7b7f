-- commands/unlisted/worker.lua: toeplab worker: runs one worker process of a run; only toeplab run
-- starts it.
local arguments = require "toeplab.base.arguments"
local errors = require "toeplab.base.errors"
local worker = require "toeplab.runs.worker"

local command = {
  example = "toeplab run experiments/quickstart.lua -j2",
  usage = "toeplab worker FILE",
  about = "Runs the trials that toeplab run sends to it; -j sets the number of workers.",
  options = {
    { name = "dir", value = "DIR", help = "the results folder" },
    { name = "checkpoint-steps", value = "N", help = "a checkpoint every N steps" },
    { name = "checkpoint-seconds", value = "S", help = "a checkpoint every S seconds" },
    { name = "device", value = "DEVICE", help = "the device to compute on" },
    { name = "command", value = "HASH", help = "hash of the command, which other ranks compare" },
  },
}

function command.run(set, words)
  local path = table.remove(words, 1)
  if not path then errors.usage("worker: which experiment?") end
  return worker.main(path, { dir = set.dir, device = set.device or "cpu",
    command = set.command,
    steps = arguments.integer("worker", set, "checkpoint-steps", 1),
    seconds = arguments.number("worker", set, "checkpoint-seconds", 0) })
end

return command
