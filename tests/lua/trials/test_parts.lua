-- test_parts.lua: what t:steps is given, and saves and restores.
local t = require "harness"
local trials = require "trials"

t.test("a table given to steps comes back as it was", function()
  t.in_folder(function(folder)
    local text = [[
      local tl = require "toeplab"
      return tl.experiment "held" {
        fixed = { steps = 8 }, checkpoint = { steps = 1 },
        trial = function(t, c)
          local model = tl.nn.Linear(2, 2)
          local opt = tl.optim.adam(model, { lr = 0.1 })
          local mine = { mean = 0, seen = { 0, 0 }, state = 0, last = tl.zeros(1) }
          local seen = mine.seen
          for step in t:steps(c.steps, model, opt, nil, { mine = mine }) do
            mine.mean = 0.5 * mine.mean + step
            if step == 1 then seen[2] = nil end
            seen[#seen + 1] = step
            mine.last, mine.state = mine.last + step, mine.state + 1
            t:log { loss = mine.mean, seen = #seen, sum = mine.last, state = mine.state }
          end
        end,
      }]]
    t.eq(trials.run_stopped(folder, text, { 3, 6 }, "step"), 0)
    local mean = 0
    for step = 1, 8 do mean = 0.5 * mean + step end
    local rows = trials.query(folder, "SELECT name, value FROM v_last ORDER BY name")
    local values = {}
    for i, row in ipairs(rows) do values[i] = { row.name, row.value } end
    t.eq(values, { { "loss", mean }, { "seen", 9 }, { "state", 8 }, { "sum", 36 } })
  end)
end)

t.done()
