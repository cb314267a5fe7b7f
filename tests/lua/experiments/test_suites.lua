-- test_suites.lua: the experiments of the suites of synthetic tasks run at scale smoke, and log
-- what their published tables say.
local t = require "harness"
local published_tables = require "toeplab.trials.published_tables"
local smoke = require "smoke"
local space = require "toeplab.trials.space"
local json = require "toeplab.base.json"

t.test("icl at scale smoke: five models on two tasks, beside the published accuracies", function()
  local published = published_tables.read "field/icl"
  local column = { associative_recall = 2, induction_heads = 3 }
  smoke("icl", { "seeds=1" }, function(store)
    local rows = store:rows [[SELECT config, a.value AS here, p.value AS published
      FROM v_trials JOIN v_last a ON a.trial = v_trials.id AND a.name = 'test_accuracy'
      LEFT JOIN v_last p ON p.trial = v_trials.id AND p.name = 'published_accuracy']]
    t.eq(#rows, 10)
    for _, row in ipairs(rows) do
      local c, wanted = json.decode(row.config), nil
      for _, line in ipairs(published.rows) do
        for _, where in ipairs(line.where) do
          if space.fits(where, c) then wanted = line[column[c.task]] end
        end
      end
      t.ok(row.here >= 0 and row.here <= 1, row.here)
      t.eq(row.published and 100 * row.published, wanted, 1e-9)
    end
  end)
end)

t.done()
