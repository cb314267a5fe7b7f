-- test_tensors.lua: the tensors that trials have logged as pictures.
local t = require "harness"
local plot = require "toeplab.report.figures.plot"
local records = require "toeplab.store.records"
local tensors = require "toeplab.report.figures.tensors"
local trials = require "trials"

local script = [[
local tl = require "toeplab"
return tl.experiment "kept" {
  fixed = { steps = 12 }, seeds = 2,
  trial = function(t, c)
    for step in t:steps(c.steps) do
      if step % 3 == 0 then
        t:log { vector = tl.range(1, 1000) * step, flat = tl.range(0, 3):reshape(1, 4, 1),
          square = tl.tensor { { step, -2 }, { 3, 0 / 0 } }, cube = tl.zeros(2, 2, 2) }
      end
    end
  end,
}
]]

-- Calls fn(panels, plot): panels(name, options) of the first trial; plot(words) runs toeplab plot.
local function with_trials(fn)
  t.in_folder(function(folder)
    t.eq((trials.run(folder, script)), 0)
    local store <close> = records.open(folder .. "/results", "r")
    local id = store:rows("SELECT id FROM v_trials ORDER BY seed")[1].id
    fn(function(name, o) return tensors.panels(store, id, name, o or {}) end, function(words)
      return t.toeplab(("plot -C '%s/results' %s"):format(folder, words))
    end)
  end)
end

with_trials(function(panels, plotted)
  t.test("a vector is drawn over the steps, a row for each", function()
    local flat = panels("flat")[1]
    t.eq(flat.matrix, { { 0, 1, 2, 3 }, { 0, 1, 2, 3 }, { 0, 1, 2, 3 }, { 0, 1, 2, 3 } })
    t.eq({ flat.ynames, flat.xnames, flat.xlabel, flat.ylabel, flat.zlabel, flat.title },
      { { "3", "6", "9", "12" }, { "1", "2", "3", "4" }, "element", "step", "flat", "flat" })
    local svg = plot.picture(flat, "svg")
    for _, step in ipairs { 6, 9, 12 } do t.ok(svg:find(">%s*" .. step .. "%s*<"), step) end
  end)

  t.test("of a long one every third element is drawn, and named so", function()
    local long = panels("vector", { title = "seed=1" })[1]
    t.eq({ #long.matrix, #long.matrix[1], long.matrix[2][3] }, { 4, 334, 7 * 6 })
    t.eq({ long.xlabel, long.xnames[1], long.xnames[57], long.title },
      { "element (1 in 3)", "1", "169", "seed=1, vector" })
  end)

  t.test("at chosen steps a vector is lines, and a matrix a panel each", function()
    local lines = panels("vector", { steps = { 12, 3 }, logx = true, log = true })
    t.eq({ #lines, #lines[1].series, lines[1].ylabel }, { 1, 2, "|vector|" })
    local first = lines[1].series[1]
    t.eq({ first.name, #first.y, first.x[1000], first.y[1000] }, { "step 12", 1000, 1000, 12000 })
    local squares = panels("square", { steps = { 3, 9 }, log = true })
    t.eq({ squares[1].title, squares[2].title, squares[2].matrix[1] },
      { "square, step 3", "square, step 9", { 9, 2 } })
    t.eq({ panels("square")[1].title, panels("square")[1].matrix[1] },
      { "square, step 12", { 12, -2 } })
  end)

  t.test("a picture of each trial, or the reason why there is none", function()
    local said, code = plotted "kept --tensor square --step 6"
    t.eq(code, 0)
    t.ok(said:find "figures/kept%-square%-6.svg\n$", said)
    t.ok(t.read(said:sub(1, -2)):find "seed=2, square, step 6")
    for _, case in ipairs {
      { "--tensor squar", "has no tensor 'squar'; did you mean 'square'?" },
      { "--tensor cube", "'cube' has the shape [2,2,2]: only vectors and matrices can be drawn" },
      { "--tensor square --step 7", "'square' was not logged at step 7: it has 4 steps from 3 to "
        .. "12, of which 6 is the nearest" },
      { "matrix --tensor square", "choose one of matrix and --tensor square" },
      { "--tensor square --metric loss", "--metric is for curves" },
      { "--step 3", "--step is for --tensor NAME" },
      { "--tensor square --log x", "--log of a matrix takes z, not x" },
    } do
      local _, exit, why = plotted("@last " .. case[1])
      t.eq(exit, 2)
      t.holds(why, case[2])
    end
  end)

  t.done()
end)
