-- test_again.lua: a command that is given again: it is the newest one, its stored words, and its
-- results where nothing can be written.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local launch = require "toeplab.runs.launch"
local records = require "toeplab.store.records"
local t = require "harness"
local trials = require "trials"

local in_folder = t.in_folder

local script = [[
local tl = require "toeplab"
return tl.experiment "again" {
  fixed = { k = 1, steps = 1 },
  grid = { a = { 1, 2 } },
  trial = function(t, c)
    if c.k < 0 then error "below 0" end
    for step in t:steps(c.steps) do t:log { loss = 100 * c.a + c.k } end
  end,
  report = { rows = "a", columns = { "loss" } },
}
]]

local function hasnt(text, part) t.ok(not text:find(part, 1, true), text) end

-- Runs toeplab with words in folder; returns its exit code and what it printed.
local function toeplab(folder, words)
  local text, code = t.shell(("cd '%s' && timeout 30 '%s' %s -C results 2>&1"):format(folder,
    core.sys.executable(), words))
  return code, text
end

t.test("the error for --shard names the replacement", function()
  in_folder(function(folder)
    t.write(folder .. "/x.lua", script)
    for _, word in ipairs { "--shard 1/2", "--shard=1/2" } do
      local code, text = toeplab(folder, "run x.lua seeds=2 " .. word)
      t.eq(code, 2)
      t.holds(text, "run: --shard was removed: give the same command without it on each "
        .. "machine, with one results folder")
    end
    local _, text = toeplab(folder, "run --shart 1/2 x.lua")
    hasnt(text, "--shard")
  end)
end)

t.test("a repeated command becomes the newest sweep", function()
  in_folder(function(folder)
    t.write(folder .. "/x.lua", script)
    for _, k in ipairs { 3, 5, 3, 7, 5 } do
      t.eq(toeplab(folder, "run x.lua -q k=" .. k), 0)
      local _, text = toeplab(folder, "table again")
      t.holds(text:match "trials.-\n.-\n", "10" .. k) -- its rows are the first
    end
    t.eq(#trials.query(folder, "SELECT 1 FROM sweeps"), 3)
    local path = folder .. "/x.html"
    t.eq(toeplab(folder, "report again -o x.html"), 0)
    t.holds(t.read(path), "205", "207")
  end)
end)

t.test("the stored command has no --redo", function()
  in_folder(function(folder)
    t.write(folder .. "/x.lua", script)
    t.eq(toeplab(folder, "run x.lua -q --redo k=-1"), 1)
    t.eq(trials.query(folder, "SELECT DISTINCT command LIKE '%redo%' AS redo FROM v_trials"),
      { { redo = 0 } })
    local store <close> = records.open(folder .. "/results", "w") -- as earlier programs stored it
    store:rows "UPDATE trials SET command = 'toeplab run --redo x.lua --redo k=-1 --redo'"
    for _, words in ipairs { "ls --failures" } do
      local _, text = toeplab(folder, words)
      t.holds(text, "toeplab run x.lua k=-1\n")
      hasnt(text, "redo")
    end
  end)
end)

t.test("a finished experiment shows its results in a read-only folder", function()
  in_folder(function(folder)
    t.eq(trials.run(folder, script), 0)
    local open = records.open
    records.open = function(place, mode)
      if mode ~= "w" then return open(place, mode) end
      local why = errors.new(errors.STORAGE, "%s/lock: open failed: Read-only file system", place)
      why.status = "EIO"
      error(why, 0)
    end
    local code, said = trials.run(folder, script)
    local code_new, said_new = trials.run(folder, script, { "k=2" })
    local code_redo = trials.run(folder, script, {}, { redo = true })
    local ours, release, released = launch.ours, launch.release, 0
    launch.ours = function() return { rank = 0, size = 2, place = 0 } end
    launch.release = function() released = released + 1 end
    local code_ranks = trials.run(folder, script)
    launch.ours, launch.release, records.open = ours, release, open
    t.eq({ code_ranks, released }, { 0, 1 }) -- the other rank waits
    t.eq(code, 0)
    t.holds(said, "the results folder is read-only")
    t.holds(said, "2 trials: 2 already done")
    t.eq({ code_new, code_redo }, { errors.STORAGE, errors.STORAGE })
    t.holds(said_new, "Read-only file system")
  end)
end)

t.done()
