-- result.lua: prints everything that a sweep left in a results folder, to compare it with the
-- result of an undisturbed sweep. toeplab lua result.lua FOLDER
local core = require "toeplab.core"

local store = core.store(arg[1], "r")
for _, sql in ipairs {
  "SELECT 'trial' AS a, id AS b, status AS c, step AS d FROM v_trials ORDER BY id",
  "SELECT trial AS a, name AS b, step AS c, value AS d FROM v_metrics ORDER BY 1, 2, 3",
  [[SELECT trial AS a, kind AS b, max(step) AS c, sha256 AS d FROM v_artifacts GROUP BY 1, 2
    ORDER BY 1, 2]],
  -- A resumed trial does not know which keys it read before.
  "SELECT trial AS a, kind AS b, step AS c, text AS d FROM v_events WHERE kind <> 'unread' "
    .. "ORDER BY 1, 3, 4" } do
  for _, row in ipairs(store:exec(sql)) do
    print(row.a, row.b, row.c, math.type(row.d) == "float" and ("%a"):format(row.d) or row.d)
  end
end
