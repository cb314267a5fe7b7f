-- trials.lua: running an experiment, given as text, in a folder, and asking its store.
local harness = require "harness"
local records = require "toeplab.records"
local runner = require "toeplab.runner"
local stop = require "toeplab.stop"

local trials = {}

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
  if not ok and not stop.is(code) then error(code, 0) end
  if not ok then said[#said + 1] = code.message end
  return ok and code or code.code, table.concat(said)
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
