-- test_parts.lua: what t:steps is given, and saves and restores.
local t = require "harness"
local core = require "toeplab.core"
local trials = require "trials"

t.test("a table given to steps is restored unchanged", function()
  t.in_folder(function(folder)
    local text = [[
      local tl = require "toeplab"
      return tl.experiment "held" {
        fixed = { steps = 8 }, checkpoint = { steps = 1 },
        trial = function(t, c)
          local model = tl.nn.Linear(2, 2)
          local opt = tl.optim.adam(model, { lr = 0.1 })
          local mine = { mean = 0, seen = { 0, 0 }, state = 0, last = tl.zeros(1) }
          local seen, own = mine.seen, tl.stream(7, "own")
          for step in t:steps(c.steps, model, opt, nil, { mine = mine, own = own }) do
            mine.mean = 0.5 * mine.mean + step
            if step == 1 then seen[2] = nil end
            seen[#seen + 1] = step
            mine.last, mine.state = mine.last + step, mine.state + 1
            t:log { loss = mine.mean, seen = #seen, sum = mine.last, state = mine.state,
              drawn = own:unit() + tl.stream_of(1):unit() }
          end
        end,
      }]]
    t.eq(trials.run_stopped(folder, text, { 3, 6 }, "step"), 0)
    local mean, own, numbered, drawn = 0, core.stream(7, "own"), core.stream(1, "1"), nil
    for step = 1, 8 do
      mean = 0.5 * mean + step
      drawn = own:unit() + numbered:unit()
    end
    local rows = trials.query(folder, "SELECT name, value FROM v_last ORDER BY name")
    local values = {}
    for i, row in ipairs(rows) do values[i] = { row.name, row.value } end
    t.eq(values, { { "drawn", drawn }, { "loss", mean }, { "seen", 9 }, { "state", 8 },
      { "sum", 36 } })
  end)
end)

t.test("values that a checkpoint cannot restore are refused immediately", function()
  for extra, want in pairs {
    ["{ s = { f = print } }"] = "s%.f is a function, which a checkpoint cannot hold",
    ["{ s = { x = tl.stream_of 'data' } }"] =
      "s%.x has methods of its own: pass it to steps under a separate name",
    ["{ s = { [2.5] = 1 } }"] = "s%.2%.5: keys are integers, or strings",
    ["{ s = { ['a/b'] = 1 } }"] = "s%.a/b: keys are",
    ["{ s = { ['.'] = tl.ones(1) } }"] = "s%.%.: keys are",
    ["{ s = { m = tl.nn.Linear(1, 1) } }"] = "s%.m has methods of its own: pass it to steps",
    ["(function() local x = {} return { s = { a = x, b = x } } end)()"] =
      "s%.[ab] and s%.[ab] are one table, but would be restored as two",
    ["(function() local x = {} return { s = x, z = x } end)()"] =
      "[sz] and [sz] are one table",
    ["{ s = print }"] = "'s' needs methods state%(%) and load%(state%)\n",
    ["{ s = 3 }"] = "'s' needs methods state%(%) and load%(state%), or a table around it",
  } do
    t.in_folder(function(folder)
      local code, said = trials.run(folder, ([[
local tl = require "toeplab"
return tl.experiment "refused" { trial = function(t)
  local m = tl.nn.Linear(1, 1)
  for _ in t:steps(1, m, tl.optim.adam(m, { lr = 1 }), nil, %s) do end
end }]]):format(extra))
      t.eq({ extra, code }, { extra, 1 })
      t.ok(said:find("x%.lua:4: steps: " .. want), said)
    end)
  end
end)

t.done()
