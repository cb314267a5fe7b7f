-- test_mean_table.lua: the table that an experiment declares as its report, of means over seeds.
local t = require "harness"
local mean_table = require "toeplab.report.mean_table"
local text_table = require "toeplab.base.text_table"

t.test("means over seeds, one line per value", function()
  local trials = {}
  for i, loss in ipairs { 1.0, 3.0, 5.0 } do
    trials[i] = { config = { width = i < 3 and 8 or 16 }, metrics = { loss = loss } }
  end
  local header, rows = mean_table.by({ rows = "width", columns = { "loss" } }, trials)
  t.eq(header, { "width", "loss", "trials" })
  t.eq(rows, { { "8", 2.0, 2 }, { "16", 5.0, 1 } })
  for i, trial in ipairs(trials) do trial.config.op = i < 2 and "fd" or "ski" end
  header, rows = mean_table.by({ rows = { "op", "width" }, columns = { "loss" } }, trials)
  t.eq(header, { "op", "width", "loss", "trials" })
  t.eq(rows, { { "fd", "8", 1.0, 1 }, { "ski", "8", 3.0, 1 }, { "ski", "16", 5.0, 1 } })
end)

t.test("a mean over seeds with diverged ones is nan and reports their number", function()
  local function trial(loss) return { config = { a = 1 }, metrics = { loss = loss } } end
  local spec = { rows = "a", columns = { "loss" } }
  t.eq(text_table.csv(mean_table.by(spec, { trial(1.0), trial(3.0) })), "a,loss,trials\n1,2.0,2\n")
  t.eq(text_table.csv(mean_table.by(spec, { trial(1.0), trial(0 / 0), trial(1 / 0) })),
    "a,loss,trials,diverged\n1,nan,3,2\n")
end)

t.test("counts trials without a metric that others have logged", function()
  local function trial(a, metrics) return { config = { a = a }, metrics = metrics } end
  local trials = { trial(1, { loss = 1.0 }), trial(1, {}), trial(2, { loss = 1 / 0 }) }
  t.eq(text_table.csv(mean_table.by({ rows = "a", columns = { "loss", "other" } }, trials)),
    "a,loss,other,trials,diverged,lacking\n1,1.0,,2,0,1\n2,inf,,1,1,0\n")
end)

t.done()
