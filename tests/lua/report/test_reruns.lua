-- test_reruns.lua: the commands that compare proposes select the compared settings and no others,
-- whatever other commands of the experiment ran.
local t = require "harness"
local sweeps = require "sweeps"

-- Writes a sweep of experiment e: each point with three seeds, of undecided values.
local function write(folder, points, s)
  local trials = {}
  for _, point in ipairs(points) do
    for seed = 1, 3 do
      local config = {}
      for key, value in pairs(point) do config[key] = value end
      trials[#trials + 1] = { config = config, seed = seed,
        metrics = { loss = 10 + seed + 0.1 * (seed * point.dim // 16 % 5) } }
    end
  end
  sweeps.write(folder, { experiment = "e", script = "e.lua", axes = s.axes, grid = s.grid,
    zip = s.zip, columns = { "loss" }, trials = trials, overrides = s.overrides })
end

-- Returns the proposed commands, without their beginning and the seeds, and the note below them.
local function proposed(folder, words)
  local said, code, err = t.toeplab(("compare e %s --resolve 0.1 -C '%s'"):format(words, folder))
  t.ok(code == 0, err)
  local list = {}
  for command in said:gmatch "toeplab run e%.lua ([^\n]*) ?seeds=%d+ %-C" do
    list[#list + 1] = command:match "^(.-)%s*$"
  end
  return list, said:find("other settings too", 1, true) ~= nil
end

-- Runs f in a folder with sweeps, each { points, s }, oldest first.
local function with(list, f)
  t.in_folder(function(folder)
    for _, sweep in ipairs(list) do write(folder, sweep[1], sweep[2]) end
    f(folder)
  end)
end

local function dim(value, steps) return { dim = value, steps = steps or 10 } end

t.test("keys of a newer command do not reach the command for older trials", function()
  with({ { { dim(16), dim(32) }, { axes = { "dim" } } },
    { { dim(64, 20), dim(128, 20) },
      { axes = { "dim" }, overrides = { "dim=64,128", "steps=20" } } },
  }, function(folder)
    t.eq({ proposed(folder, "dim=16 dim=32") }, { { "dim=16,32 steps=10" }, false })
    t.eq({ proposed(folder, "dim=16 dim=32 steps=10") }, { { "dim=16,32" }, false })
    t.eq({ proposed(folder, "dim=64 dim=128") }, { { "steps=20 dim=64,128" }, false })
  end)
end)

t.test("settings of two commands that differ in another key take two commands", function()
  with({ { { dim(16), dim(32) }, { axes = { "dim" } } },
    { { dim(64, 20) }, { axes = { "dim" }, overrides = { "dim=64", "steps=20" } } } },
    function(folder)
      t.eq({ proposed(folder, "dim=32 dim=64") },
        { { "dim=32 steps=10", "steps=20 dim=64" }, false })
    end)
end)

t.test("settings of two commands that differ in the compared key alone take one", function()
  with({ { { dim(16) }, { axes = { "dim" }, overrides = { "dim=16" } } },
    { { dim(32) }, { axes = { "dim" }, overrides = { "dim=32" } } } }, function(folder)
    t.eq({ proposed(folder, "dim=16 dim=32") }, { { "dim=16,32" }, false })
  end)
end)

t.test("a newer command of one row does not hide the other rows", function()
  local all, some = {}, {}
  for _, lr in ipairs { 1, 2 } do
    for _, d in ipairs { 16, 32 } do
      all[#all + 1] = { dim = d, lr = lr }
      some[#some + 1] = lr == 2 and all[#all] or nil
    end
  end
  with({ { all, { axes = { "dim", "lr" } } },
    { some, { axes = { "dim" }, grid = { "dim", "lr" }, overrides = { "lr=2" } } } },
    function(folder)
      t.eq({ proposed(folder, "dim=16 dim=32") }, { { "dim=16,32 lr=1,2" }, false })
      t.eq({ proposed(folder, "dim=16 dim=32 lr=1") }, { { "dim=16,32 lr=1" }, false })
      t.eq({ proposed(folder, "dim=16 dim=32 lr=2") }, { { "lr=2 dim=16,32" }, false })
    end)
end)

t.test("the keys of a zip are set together", function()
  local points = {}
  for i, d in ipairs { 16, 32, 64 } do points[i] = { dim = d, batch = 64 // d } end
  with({ { points, { axes = { "batch", "dim" }, grid = {}, zip = { { "batch", "dim" } } } } },
    function(folder)
      t.eq({ proposed(folder, "dim=16 dim=64") }, { { "batch=4,1 dim=16,64" }, false })
    end)
  with({ { points, { axes = { "batch", "dim" }, grid = {} } } }, function(folder)
    t.eq({ proposed(folder, "dim=16 dim=64") }, { { "" }, true }) -- of an older release
  end)
end)

t.test("a long text is shortened so that the command cannot run with another", function()
  local text = ("to be or not "):rep(30)
  with({ { { dim(16), dim(32) }, { axes = { "dim" }, overrides = { "corpus=text:" .. text } } } },
    function(folder)
      t.eq({ proposed(folder, "dim=16 dim=32") },
        { { "'corpus=<a text of 390 bytes>' dim=16,32" }, false })
      t.raises(require("toeplab.tasks.corpus").hash, "unknown corpus", "<a text of 390 bytes>")
    end)
end)

t.done()
