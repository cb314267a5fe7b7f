-- torture.lua: runs a small sweep, kills it and its workers at random moments, runs it again, and
-- compares the result with an undisturbed sweep. It fails if anything is lost, doubled or
-- different. With SECONDS the kills are spread over a sweep of 24 trials of that many seconds, to
-- measure the time that a kill costs.
--   cd tests/lua && toeplab lua ../torture/torture.lua FOLDER KILLS [WORKERS [SECONDS [SEED]]]
local core = require "toeplab.core"
local kills = require "kills"
local progress = require "toeplab.base.progress"
local shell = require "toeplab.base.shell"

local top, wanted, jobs, seconds, seed = ...
wanted, jobs, seconds = tonumber(wanted), tonumber(jobs) or 2, tonumber(seconds)
seed = tonumber(seed) or math.floor(core.sys.now())
local folder = ("%s/torture-%d"):format(top, core.sys.getpid())
assert(core.sys.mkdir(folder))
local shown = progress.new { every = 5 }
shown:start("")
local fine, result = pcall(kills.run, folder, wanted, { jobs = jobs, seed = seed, seconds = seconds,
  each = function(count) shown:update(math.min(count, wanted), wanted, "kills") end })
shown:clear()
local bad = not fine or result.lost > 0 or result.different > 0
if not fine then print(result) end
if fine then
  print(("%d kills in %d sweeps (seed %d): %d of %d acknowledged metrics lost, %d sweeps different"
    .. "; %.2f times the %.1f s of a sweep left alone, %.2f s lost by a kill"):format(result.kills,
    result.sweeps, seed, result.lost, result.acknowledged, result.different,
    result.spent / result.sweeps / result.alone, result.alone,
    (result.spent - result.sweeps * result.alone) / result.kills))
end
if bad then print("what was left is in " .. folder) end
if not bad then os.execute("rm -rf " .. shell.quote(folder)) end
os.exit(bad and 1 or 0)
