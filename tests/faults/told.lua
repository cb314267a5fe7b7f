-- told.lua: what a reader of a results folder of power.lua is told: a line "TRIAL STEP" for each
-- trial, the step that is safe in a checkpoint; "TRIAL done" for one that is done.
-- toeplab lua told.lua FOLDER
local core = require "toeplab.core"

local store = core.store(arg[1], "r")
for _, row in ipairs(store:exec [[SELECT json_extract(config, '$.rate') AS rate, seed, status,
    coalesce(step, 0) AS step FROM v_trials ORDER BY 1, 2]]) do
  print(("%s-%d %s"):format(row.rate, row.seed, row.status == "done" and "done" or row.step))
end
