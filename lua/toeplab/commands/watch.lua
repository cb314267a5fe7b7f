-- commands/watch.lua: toeplab watch: shows a sweep in the terminal while it runs.
local arguments = require "toeplab.base.arguments"
local errors = require "toeplab.base.errors"
local output = require "toeplab.report.output"
local records = require "toeplab.store.records"
local sweep_progress = require "toeplab.live.sweep_progress"
local status = require "toeplab.commands.status"
local view = require "toeplab.live.watch"

local watch = {
  example = "toeplab watch\n  toeplab watch quickstart --metric val_ppl",
  usage = "toeplab watch [EXPERIMENT|SWEEP]",
  about = "Shows the trials of a sweep (the newest) in the terminal and redraws them while they\n"
    .. "run: how far each is, the last value and the curve of a metric. Keys: up and down choose\n"
    .. "a trial, c shows its curve, l its log, s asks the run to save and stop it (the run's\n"
    .. "command continues it later), m shows the next metric, q quits. If the output is not a\n"
    .. "terminal, prints the state once, like toeplab status.",
  words = { "stored" },
  options = {
    { name = "metric", short = "m", value = "NAME", of = "metrics",
      help = "the metric (default: loss)" },
    { name = "every", value = "SECONDS", help = "how often the store is read (default: 1)" },
    output.dir,
  },
}

function watch.run(set, words)
  if #words > 1 then errors.usage("watch: takes one experiment, got '%s' too", words[2]) end
  local o = { folder = records.folder(set.dir), name = words[1], metric = set.metric,
    every = arguments.number("watch", set, "every", 0.1) or 1 }
  if view.can() then return view.run(o) end
  local option = set.metric and "metric" or set.every and "every"
  if option then errors.usage("watch: --%s requires a terminal", option) end
  local store <close> = records.open(o.folder, "r")
  status.show(store, sweep_progress.sweep(store, o.name, "watch"))
  errors.say("watch: the output is not a terminal, so the state of %s is printed once",
    os.date "%Y-%m-%d %H:%M:%S")
end

return watch
