-- reported.lua: prints what a results folder of power.lua reports: for each trial a line "TRIAL
-- STEP" with the last step that is safe in a checkpoint, or "TRIAL done". toeplab lua reported.lua
-- FOLDER
local core = require "toeplab.core"

local store = core.store(arg[1], "r")
for _, row in ipairs(store:exec [[SELECT json_extract(config, '$.rate') AS rate, seed, status,
    coalesce(step, 0) AS step FROM v_trials ORDER BY 1, 2]]) do
  print(("%s-%d %s"):format(row.rate, row.seed, row.status == "done" and "done" or row.step))
end
