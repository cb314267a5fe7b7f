-- test_folder.lua: which results folder a command uses.
local t = require "harness"
local core = require "toeplab.core"

t.test("without -C the nearest results folder with runs is used, here or above", function()
  t.in_folder(function(folder)
    t.write(folder .. "/own.lua", [[
      local tl = require "toeplab"
      return tl.experiment "own" { grid = { a = { 1 } }, seeds = 1, trial = function(t, c)
        for step in t:steps(1) do t:log { loss = c.a } end
      end }]])
    assert(core.sys.mkdir(folder .. "/a/b"))
    local function says(where, words)
      return (t.shell(("cd '%s/%s' && unset TOEPLAB_DIR; %s 2>&1"):format(folder, where,
        words:gsub("toeplab", core.sys.executable()))))
    end
    t.holds(says(".", "toeplab run -q own.lua; toeplab ls"), "a=1")
    t.holds(says("a/b", "toeplab run ../../own.lua a=2"), "../../results")
    t.holds(says("a", "toeplab ls"), "a=1", "a=2")
    t.holds(says("a", "toeplab ls -C results"), "holds no runs")
    t.holds(says("a", "TOEPLAB_DIR=results toeplab ls"), "holds no runs")
    t.holds(says("a", "toeplab run -q ../own.lua a=3 -C results; cd b; toeplab ls"), "a=3")
    t.ok(not says("a/b", "toeplab ls"):find "a=1")
  end)
end)

t.done()
