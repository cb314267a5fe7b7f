-- trials.lua: running an experiment, given as text, in a folder, and asking its store.
local core = require "toeplab.core"
local harness = require "harness"
local records = require "toeplab.store.records"
local runner = require "toeplab.runs.runner"
local errors = require "toeplab.base.errors"

local trials = {}

-- Stops the worker, in the script of a trial. A thread of OpenBLAS may get the signal and pass it
-- on, so that it can arrive after os.execute has returned.
trials.STOP =
  [[os.execute "kill -TERM $PPID" repeat until require "toeplab.base.errors".signal()]]

-- Writes the script to folder/x.lua and runs it, with results in folder/results; returns the exit
-- code and what was said.
function trials.run(folder, text, words, more)
  local said = {}
  local out = { write = function(_, ...) said[#said + 1] = table.concat { ... } end,
    flush = function() end }
  harness.write(folder .. "/x.lua", text)
  local options = { dir = folder .. "/results", out = out, command = { "toeplab", "run" } }
  for name, value in pairs(more or {}) do options[name] = value end
  local ok, code = pcall(runner.run, folder .. "/x.lua", words or {}, options)
  if not ok and not errors.is(code) then error(code, 0) end
  if not ok then said[#said + 1] = code.message end
  return ok and code or code.code, table.concat(said)
end

-- Runs the script, whose trials log a loss in each step, with a SIGTERM to the worker in the steps
-- that moments name, and gives the same command again until nothing stops it any more. A moment is
-- a value of key, a Lua expression of the script. Returns the exit code and how often it ran.
function trials.run_stopped(folder, text, moments, key, words, more)
  local flags, runs, code = folder .. "/flags", 0, nil
  core.sys.mkdir(flags)
  for _, moment in ipairs(moments) do harness.write(flags .. "/" .. moment, "") end
  local stopping, places = text:gsub("t:log { loss", function(log)
    return ([[if os.remove("%s/" .. %s) then %s end %s]]):format(flags, key, trials.STOP, log)
  end)
  assert(places == 1)
  repeat
    code, runs = trials.run(folder, stopping, words, more), runs + 1
  until code ~= 143 or runs > 40
  return code, runs
end

-- The rows of a query to the store in folder/results.
function trials.query(folder, sql)
  local store <close> = records.open(folder .. "/results", "r")
  return store:rows(sql)
end

-- How many different losses the trials there have at a step.
function trials.losses(folder, step)
  return trials.query(folder, ([[SELECT count(DISTINCT value) AS count FROM v_metrics
    WHERE name = 'loss' AND step = %d]]):format(step))[1].count
end

return trials
