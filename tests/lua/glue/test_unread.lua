-- test_unread.lua: what a run says besides its results: of keys that nobody read, of many failures.
local t = require "harness"
local trials = require "trials"

local script = [[
local tl = require "toeplab"
return tl.experiment "unread" {
  fixed = { steps = 1, lernrate = 1, dropuot = 0 },
  grid = { width = { 4, 6 } },
  scale = { smoke = { steps = 2 } },
  trial = function(t, c)
    if c.width < 0 then error("width " .. c.width) end
    t:log { loss = c.width + c.steps }
  end,
}
]]

t.test("a fixed key that no trial reads is named at every run of a whole sweep", function()
  t.in_folder(function(folder)
    local code, said = trials.run(folder, script, {})
    t.eq(code, 0)
    t.ok(said:find("x%.lua:3: no trial read 'dropuot', 'lernrate': is the name misspelt"), said)
    code, said = trials.run(folder, script, {}) -- all were done before
    t.ok(code == 0 and said:find("no trial read 'dropuot', 'lernrate': is"), said)
    code, said = trials.run(folder, script, { "seeds=2" }) -- some were
    t.ok(code == 0 and said:find("no trial read 'dropuot', 'lernrate': is"), said)
    code, said = trials.run(folder, script, { "scale=smoke" })
    t.ok(code == 0 and said:find("no trial read 'dropuot', 'lernrate' at scale smoke"), said)
    code, said = trials.run(folder, script, { "width=2", "steps=7" }) -- others may read it
    t.ok(code == 0 and not said:find("dropuot"), said)
    code, said = trials.run(folder, script, { "width=1,-1" })
    t.ok(code == 1 and not said:find("dropuot"), said)
    code, said = trials.run(folder, script, { "steps=3", "dropuot=1" })
    t.ok(code == 0 and said:find("no trial read 'dropuot'"), said)
  end)
end)

t.test("an axis that no trial reads is an error at every run", function()
  t.in_folder(function(folder)
    for _ = 1, 2 do
      local code, said = trials.run(folder, (script:gsub("width = {", "lagn = { 1, 2 }, %0")), {})
      t.ok(code == 2 and said:find("x%.lua:4: no trial read 'lagn', so its values"), said)
    end
  end)
end)

t.test("a run names the values of fixed that its scale replaces", function()
  t.in_folder(function(folder)
    local words = "scale smoke replaces the values in fixed of steps\n"
    local _, said = trials.run(folder, script, {})
    t.ok(not said:find("replaces", 1, true), said)
    _, said = trials.run(folder, script, { "scale=smoke" })
    t.ok(said:find(words, 1, true), said)
    _, said = trials.run(folder, script, { "scale=smoke", "steps=3" })
    t.ok(not said:find("replaces", 1, true), said)
  end)
end)

t.test("an undeclared key that the trial of tl.lm takes is refused with the line to add", function()
  t.in_folder(function(folder)
    local text = [[local tl = require "toeplab"
return tl.experiment "lm" { trial = tl.lm.trial, scale = tl.lm.scales {},
  fixed = tl.lm.fixed {} }
]]
    for key, of in pairs { rpe_act = { "tnn_lm", '"relu"' },
      separator = { "tl.corpus", "VALUE" }, carry = { "tl.blocks", "false" },
      memory = { "tl.carried", "VALUE" } } do
      local code, said = trials.run(folder, text, { key .. "=x" })
      t.eq(code, 2)
      t.ok(said:find(("x.lua:3: '%s' is an option of %s, but not a key of this experiment: add "
        .. "%s = %s to fixed there"):format(key, of[1], key, of[2]), 1, true), said)
    end
  end)
end)

t.test("after many failures the run names the command that groups them", function()
  t.in_folder(function(folder)
    local code, said = trials.run(folder, script, { "width=-1,-2,-3,-4" })
    t.eq(code, 1)
    t.ok(said:find("toeplab ls --failures unread groups them", 1, true), said)
    code, said = trials.run(folder, script, { "width=-5" })
    t.ok(code == 1 and not said:find("--failures", 1, true), said)
  end)
end)

t.done()
