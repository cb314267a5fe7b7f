-- test_text_error.lua: compare says how much of a difference the test text alone leaves open.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local t = require "harness"
local trials = require "trials"

-- The losses of four parts: b's are 0.1, 0.2, 0.3 and 0.2 above a's.
local script = [[
local tl = require "toeplab"
return tl.experiment "text" {
  fixed = { steps = 1, whole = true }, grid = { model = { "a", "b" } }, seeds = 2,
  trial = function(t, c)
    for _ in t:steps(c.steps) do end
    local more = c.model == "b" and { 0.1, 0.2, 0.3, 0.2 } or { 0, 0, 0, 0 }
    local parts = {}
    for i, x in ipairs { 1, 2, 3, 4 } do parts[i] = x + c.seed / 100 + more[i] end
    if not c.whole and c.model == "b" then parts[4] = nil end
    t:log { test_ppl = c.model == "b" and 12 + c.seed or 10 + c.seed, test_text_se = 0.01 }
    t:log { test_loss_parts = tl.tensor(parts) }
  end,
  report = { rows = "model", columns = { "test_ppl" } },
}]]

local function said(folder, words)
  return (t.shell(("'%s' %s -C '%s/results' 2>&1"):format(core.sys.executable(), words, folder)))
end

t.test("the error of a difference is the error over the parts of the text", function()
  t.in_folder(function(folder)
    t.eq(trials.run(folder, script), errors.DONE)
    -- the deviation of 0.1, 0.2, 0.3, 0.2 is sqrt(0.02 / 3), so that of the mean is half of it
    local percent = 100 * (math.exp(math.sqrt(0.02 / 3)) - 1)
    t.holds(said(folder, "compare text model=a model=b"),
      ("another test text of this kind may move the ratio by %.2g %%"):format(percent),
      "over 4 parts of this one")
    t.holds(said(folder, "table text"):gsub("\n  ", " "), ("differ by %.2g to %.2g %%"):format(
      100 * (math.exp(0.02) - 1), 100 * (math.exp(0.02) - 1)))
  end)
end)

t.test("trials with other parts are not compared over them", function()
  t.in_folder(function(folder)
    t.eq(trials.run(folder, script, { "whole=false" }), errors.DONE)
    t.ok(not said(folder, "compare text model=a model=b"):find("another test text", 1, true))
  end)
end)

t.done()
