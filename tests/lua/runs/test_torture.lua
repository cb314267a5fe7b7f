-- test_torture.lua: which ends of a sweep torture/torture.lua takes for the work of its kills.
local t = require "harness"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local kills = require "kills"

-- Runs a torture whose sweeps after the undisturbed one are not run: the processes end as ends(i),
-- i = 1, 2, .., says: with that exit code, or nil: they run until they are killed. Returns what
-- pcall does, and how many were started.
local function with_ends(ends)
  local spawn, count = core.sys.spawn, 0
  local ok, why
  core.sys.spawn = function(command, log)
    if log:find "undisturbed" then return spawn(command, log) end
    count = count + 1
    if count > 5 then error("started again and again", 0) end
    t.write(log, "no room")
    local code = ends(count)
    return { wait = function() return code end, kill = function() end }
  end
  t.in_folder(function(folder)
    ok, why = pcall(kills.run, folder, 1, { jobs = 4, seed = 1, each = function() end })
  end)
  core.sys.spawn = spawn
  return ok, why, count
end

t.test("a sweep that fails though nothing was killed is a finding", function()
  local ok, why, count = with_ends(function() return errors.FAILED end)
  t.ok(not ok and errors.is(why) and why.code == errors.CHECK, tostring(why))
  t.ok(tostring(why):find "exit code 1: no room", tostring(why))
  t.eq(count, 1)
end)

t.test("one that fails once more after the last kill is, too", function()
  local ok, why, count = with_ends(function(i) return i > 1 and errors.FAILED or nil end)
  t.ok(not ok and errors.is(why) and why.code == errors.CHECK, tostring(why))
  t.eq(count, 2)
end)

t.done()
