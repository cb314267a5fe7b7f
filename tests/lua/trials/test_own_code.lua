-- test_own_code.lua: every file of code that an experiment loads is part of its trials' ids,
-- however it is loaded, and what only a running trial loads is refused.
local core = require "toeplab.core"
local t = require "harness"
local trials = require "trials"

local in_folder = t.in_folder

local script = [[
local tl = require "toeplab"
%s
return tl.experiment "own" {
  fixed = { steps = 1 },
  trial = function(t, c)
    %s
    for step in t:steps(c.steps) do t:log { loss = n } end
  end,
}
]]

-- Runs x.lua in folder, where require finds modules, in a process of its own; returns its exit code
-- and what it printed.
local function run(folder, words)
  local command = "cd '%s' && LUA_PATH='./?.lua;;' timeout 30 '%s' run x.lua -C results %s 2>&1"
  local text, code = t.shell(command:format(folder, core.sys.executable(), words or ""))
  return code, text
end

-- Ways to load a file at the top of the script, and the file whose code gives n.
local ways = {
  { "dofile", "local n = dofile 'part.lua'", "part.lua" },
  { "dofile in a module", "local n = require 'loads'", "part.lua" },
  { "loadfile", "local n = assert(loadfile('part.lua', 't', {}))()", "part.lua" },
  { "package.path changed for the require", [[local path = package.path
    package.path = 'other/?.lua;' .. path
    local n = require 'part'
    package.path = path]], "other/part.lua" },
  { "package.path changed after the require", [[local n = require 'part'
    package.path = 'other/?.lua;' .. package.path]], "part.lua" },
  { "a module that sets a global of its name", "local n = require 'global'", "global.lua",
    "global = %d return global" },
  { "a module that is forgotten", [[local n = require 'part'
    package.loaded.part = nil]], "part.lua" },
  { "package.preload", [[package.preload.there = function() return dofile 'part.lua' end
    local n = require 'there']], "part.lua" },
}

local function write_files(folder)
  core.sys.mkdir(folder .. "/other")
  for _, name in ipairs { "part.lua", "other/part.lua" } do
    t.write(folder .. "/" .. name, "return 0")
  end
  t.write(folder .. "/loads.lua", "return dofile 'part.lua'")
end

for _, way in ipairs(ways) do
  local name, head, file, text = table.unpack(way)
  text = text or "return %d"
  t.test("in the id: " .. name, function()
    in_folder(function(folder)
      write_files(folder)
      t.write(folder .. "/x.lua", script:format(head, ""))
      for i, n in ipairs { 1, 2, 2 } do
        t.write(folder .. "/" .. file, text:format(n) .. (i == 3 and " -- a comment" or ""))
        local code, said = run(folder)
        t.eq({ code, said }, { 0, said })
        t.holds(said, i == 3 and "1 already done" or "1 done")
      end
      t.eq(trials.query(folder, "SELECT value FROM v_last ORDER BY value"),
        { { value = 1.0 }, { value = 2.0 } })
    end)
  end)
end

for _, call in ipairs { "dofile 'part.lua'", "loadfile('part.lua')()", "(require 'part')" } do
  t.test("refused in a running trial: " .. call, function()
    in_folder(function(folder)
      write_files(folder)
      t.write(folder .. "/x.lua", script:format("local dofile = dofile", "local n = " .. call))
      local code, said = run(folder)
      t.eq(code, 1)
      t.ok(said:find "x.lua:%d+: 'part[.lua]*' must be %a+ at the top of the script", said)
    end)
  end)
end

t.test("a file in another folder is the same code", function()
  in_folder(function(folder)
    write_files(folder)
    for i, path in ipairs { "part.lua", "other/part.lua" } do
      t.write(folder .. "/x.lua", script:format(
        "local n = dofile(tl.sys.read_file 'which')", ""))
      t.write(folder .. "/which", path)
      t.holds(select(2, run(folder)), i == 1 and "1 done" or "1 already done")
    end
  end)
end)

t.test("modules beside the script are found from any folder, by every verb", function()
  in_folder(function(folder)
    write_files(folder)
    core.sys.mkdir(folder .. "/beside")
    t.write(folder .. "/beside/part.lua", "return 5")
    t.write(folder .. "/beside/x.lua", script:format("local n = require 'part'", ""))
    t.write(folder .. "/beside/y.lua", "print(require 'part')")
    local function said(words)
      return (t.shell(("cd '%s' && timeout 30 '%s' %s 2>&1"):format(folder,
        core.sys.executable(), words)))
    end
    t.holds(said "plan beside/x.lua -C results", "to run")
    t.holds(said "run beside/x.lua -C results", "1 done")
    t.holds(said "run beside/x.lua -C results", "1 already done")
    t.holds(said "run -n $PWD/beside/x.lua -C results", "done")
    t.holds(said "reproduce @last -C results", "bit-identical")
    t.eq(said "lua beside/y.lua", "5\tbeside/part.lua\n")
    t.eq(trials.query(folder, "SELECT value FROM v_last"), { { value = 5.0 } })
  end)
end)

-- ---- Code that changes while a sweep runs -------------------------------------------------------

local changing = [[
local tl = require "toeplab"
local n = require "part"
return tl.experiment "own" {
  fixed = { steps = 1 },
  grid = { a = { 1, 2 } },
  trial = function(t, c)
    for step in t:steps(c.steps) do t:log { loss = c.a * n } end
    if c.a == 1 and os.remove "change" then
      assert(tl.sys.write_file("part.lua", "return 7"))
      %s
    end
  end,
}
]]

t.test("a module that changes while a sweep runs: no new worker stores results for it", function()
  in_folder(function(folder)
    t.write(folder .. "/x.lua", changing:format "tl.sys.kill(tl.sys.getpid())")
    t.write(folder .. "/part.lua", "return 5")
    t.write(folder .. "/change", "")
    local code, said = run(folder)
    t.eq(code, 1)
    t.holds(said, "x.lua or code that it loads has changed during the run")
    t.eq(#trials.query(folder, "SELECT 1 FROM v_trials WHERE status = 'done'"), 0)
    t.eq(run(folder), 0)
    t.eq(trials.query(folder, [[SELECT value FROM v_last JOIN v_trials t ON t.id = trial
      WHERE t.status = 'done' ORDER BY value]]), { { value = 7.0 }, { value = 14.0 } })
  end)
end)

t.test("a worker that has loaded a module keeps to its code", function()
  in_folder(function(folder)
    t.write(folder .. "/x.lua", changing:format "")
    t.write(folder .. "/part.lua", "return 5")
    t.write(folder .. "/change", "")
    t.eq(run(folder), 0)
    t.eq(trials.query(folder, "SELECT value FROM v_last ORDER BY value"),
      { { value = 5.0 }, { value = 10.0 } })
  end)
end)

t.done()
