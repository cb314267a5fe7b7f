-- test_ablations.lua: every ablation experiment runs at scale smoke and answers its published
-- table.
local t = require "harness"
local core = require "toeplab.core"
local published_tables = require "toeplab.trials.published_tables"
local records = require "toeplab.store.records"
local runner = require "toeplab.runs.runner"

-- By experiment: its trials with one seed, and a key by which they differ.
local experiments = {
  ["tnn-table7"] = { 5, "structure" }, ["tnn-table8"] = { 6, "rpe_input" },
  ["tnn-table9"] = { 2, "encoder" }, ["tnn-table10"] = { 6, "decay" },
  ["ski-table1"] = { 2, "backend" }, ["tnn-table2"] = { 17, "model" },
}

local quiet = { write = function() end, flush = function() end }

-- Runs an experiment at scale smoke with further words, and calls check(store, path).
local function smoke(name, words, check)
  t.in_folder(function(folder)
    local path, printed = ("../../experiments/%s.lua"):format(name), _G.print
    _G.print = function() end
    local ok, code = pcall(runner.run, path, { "scale=smoke", table.unpack(words) },
      { dir = folder, out = quiet, command = { "toeplab", "run" } })
    _G.print = printed
    t.eq({ ok, code }, { true, 0 })
    local store <close> = records.open(folder, "r")
    check(store, path)
  end)
end

for name, want in pairs(experiments) do
  t.test(name .. " at scale smoke", function()
    smoke(name, { "seeds=1", "steps=4" }, function(store, path)
      local rows = store:rows(([[SELECT count(DISTINCT json_extract(config, '$.%s')) AS kinds,
        count(*) AS trials FROM v_trials WHERE status = 'done']]):format(want[2]))
      t.eq(rows[1].trials, want[1])
      t.ok(rows[1].kinds >= 2, rows[1].kinds)
      local means = store:rows [[SELECT count(*) AS n FROM v_last
        WHERE name IN ('best_val_ppl', 'test_ppl', 'mean_extrapolation_ppl') AND value > 1]]
      t.eq(means[1].n, 3 * want[1])
      local answers = core.sys.read_file(path):match 'answers = .-"(%l+/%w+)"'
      t.ok(core.sys.exists("../../results/published/" .. answers .. ".lua"), answers)
    end)
  end)
end

t.test("tnn-table5 at scale smoke: every model has a speed at each length", function()
  smoke("tnn-table5", {}, function(store)
    local rows = store:rows [[SELECT count(*) AS n FROM v_last WHERE value > 0
      AND name IN ('steps_per_second@64', 'steps_per_second@128')]]
    t.eq(rows[1].n, 2 * 13)
    -- the keys and metrics are those of the published table
    local table5 = published_tables.read "tnn/table5"
    t.eq(table5.columns[1].metrics, { "steps_per_second@1024" })
    local models = {}
    local trials = store:rows [[SELECT json_extract(config, '$.model') AS m FROM v_trials]]
    for _, trial in ipairs(trials) do models[trial.m] = true end
    for _, row in ipairs(table5.rows) do t.ok(models[row.where[1].model], row[1]) end
  end)
end)

t.test("mqar at scale smoke", function()
  smoke("mqar", {}, function(store)
    local rows = store:rows [[SELECT count(*) AS n FROM v_last WHERE name = 'test_accuracy'
      AND value BETWEEN 0 AND 1]]
    t.eq(rows[1].n, 10)
  end)
end)

t.done()
