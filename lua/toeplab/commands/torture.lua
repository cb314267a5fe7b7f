-- torture.lua: toeplab torture: kills a sweep again and again on this disk and counts what is lost.
local arguments = require "toeplab.commands.arguments"
local core = require "toeplab.core"
local progress = require "toeplab.progress"
local records = require "toeplab.records"
local shell = require "toeplab.shell"
local stop = require "toeplab.stop"
local torture = require "toeplab.torture"

local command = {
  example = "toeplab torture\n  toeplab torture --kills 200 -j4 --seed 7\n"
    .. "  toeplab torture --kills 200 --seconds 20",
  usage = "toeplab torture",
  about = "Runs a small sweep in a scratch folder of the results folder, kills it and its workers\n"
    .. "at random moments, runs it again, and compares what is left with the same sweep left\n"
    .. "alone. Exit code 4 if anything is lost, doubled or different. With --seconds the kills\n"
    .. "are spread over a sweep of 24 trials of so many seconds: so the time that they cost\n"
    .. "can be told.",
  options = {
    { name = "kills", value = "N", help = "so many kills (50)" },
    { name = "jobs", short = "j", value = "N", help = "workers (2)" },
    { name = "seconds", value = "S", help = "a trial takes that long (0.2)" },
    { name = "seed", value = "N", help = "of the moments (the time)" },
    { name = "dir", short = "C", value = "DIR", help = "the results folder" },
  },
}

function command.run(set, words)
  if #words > 0 then stop.usage("torture: takes no words, got '%s'", words[1]) end
  local kills = arguments.integer("torture", set, "kills", 1) or 50
  local jobs = arguments.integer("torture", set, "jobs", 1) or 2
  local seconds = arguments.number("torture", set, "seconds", 0.1)
  local seed = arguments.integer("torture", set, "seed", 0) or math.floor(core.sys.now())
  local folder = ("%s/torture-%d"):format(records.folder(set.dir), core.sys.getpid())
  local ok, why = core.sys.mkdir(folder)
  if not ok then stop.raise(stop.STORAGE, "%s", why) end
  local shown = progress.new { every = 5 }
  shown:start("")
  local fine, told = pcall(torture.run, folder, kills, { jobs = jobs, seed = seed,
    seconds = seconds, each = function(count)
      shown:update(math.min(count, kills), kills, "kills")
    end })
  shown:clear()
  if not fine then
    shown:say("what was left is in %s", folder)
    error(told, 0)
  end
  print(("%d kills in %d sweeps (seed %d): %d of %d acknowledged metrics lost, %d sweeps different"
    .. "; %.2f times the %.1f s of a sweep left alone, %.2f s lost by a kill"):format(told.kills,
    told.sweeps, seed, told.lost, told.acknowledged, told.different,
    told.spent / told.sweeps / told.alone, told.alone,
    (told.spent - told.sweeps * told.alone) / told.kills))
  if told.lost > 0 or told.different > 0 then
    shown:say("what was left is in %s", folder)
    return stop.CHECK
  end
  os.execute("rm -rf " .. shell.quote(folder))
  return stop.DONE
end

return command
