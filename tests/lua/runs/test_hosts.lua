-- test_hosts.lua: two machines with one results folder on a network, each with a database of its
-- own. Here they are two hosts' names on one machine, where that is allowed.
local t = require "harness"
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"

local program = core.sys.executable()
local apart = select(2, t.shell "unshare --uts true 2>/dev/null") == 0

-- Each trial waits in step 3 until the file FOLDER/go exists.
local script = [[
local tl = require "toeplab"
return tl.experiment "shared" {
  fixed = { steps = 6 }, grid = { a = { 1, 2, 3 } }, seeds = 2, checkpoint = { steps = 2 },
  trial = function(t, c)
    local x = tl.zeros(4)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * 0.5 + noise:normal(tl.zeros(4), 0, c.a))
      t:log { loss = (x * x):mean():item() }
      while step == 3 and not tl.sys.exists "FOLDER/go" do tl.sys.sleep(0.01) end
    end
    t:log { final = x:sum():item() }
  end,
  report = { rows = "a", columns = { "final" } },
}
]]

local Folder = {}
Folder.__index = Folder

local function with_folder(fn)
  t.in_folder(function(folder)
    local self = setmetatable({ folder = folder, root = folder .. "/r", count = 0 }, Folder)
    t.write(folder .. "/x.lua", (script:gsub("FOLDER", folder)))
    local ok, why = pcall(fn, self)
    t.write(folder .. "/go", "")
    t.shell(("for i in $(seq 100); do pgrep -f '[/]%s' >/dev/null || break; sleep 0.1; done")
      :format(folder:sub(2)))
    if not ok then error(why, 0) end
  end)
end

-- Returns the line of shell that runs toeplab with words on a host.
function Folder:line(host, words)
  local line = ("TOEPLAB_THREADS=1 TOEPLAB_INDEX='%s/%s' '%s' %s -C '%s'"):format(self.folder, host,
    program, words, self.root)
  if not apart then return line end
  return "unshare --uts sh -c " .. shell.quote("hostname " .. host .. "; exec env " .. line)
end

function Folder:ask(host, words)
  local text, code = t.shell(self:line(host, words) .. " 2>&1")
  return text, code
end

-- Starts the sweep on a host; returns a function that waits for its end, and returns the exit code
-- and what it said.
function Folder:start(host, words)
  self.count = self.count + 1
  local name = ("%s/%d"):format(self.folder, self.count)
  local line = self:line(host, ("run '%s/x.lua' %s"):format(self.folder, words or ""))
  os.execute(("{ %s >%s.out 2>&1; echo $? >%s.code; } &"):format(line, name, name))
  return function()
    for _ = 1, 600 do
      if (core.sys.read_file(name .. ".code") or "") ~= "" then break end
      core.sys.sleep(0.05)
    end
    return tonumber(t.read(name .. ".code")), t.read(name .. ".out")
  end
end

-- What a host knows of the trials, a list of lines.
local ASKED = [["SELECT t.config, t.seed, t.status, t.attempt, t.tags, m.name, m.step, m.value
  FROM v_trials t LEFT JOIN v_metrics m ON m.trial = t.id
  ORDER BY t.config, t.seed, m.name, m.step"]]

function Folder:known(host)
  local list = {}
  for line in self:ask(host, "ls --csv --sql " .. ASKED):gmatch "[^\n]+" do
    list[#list + 1] = line
  end
  return list
end

local function any(list, text)
  for _, line in ipairs(list) do
    if line:find(text, 1, true) then return true end
  end
  return false
end

function Folder:statuses(host)
  local text = self:ask(host, [[ls --csv --sql "SELECT group_concat(status, ' ') AS s
    FROM (SELECT status FROM v_trials ORDER BY json_extract(config, '$.a'), seed)"]])
  return text:match "\n(.-)\n" or text
end

-- Waits until the trials have these statuses, and those that are running have logged all that they
-- do until FOLDER/go exists.
function Folder:wait_for(host, statuses)
  local last
  local _, running = statuses:gsub("running", "")
  for _ = 1, 400 do
    last = self:statuses(host)
    local _, ready = table.concat(self:known(host), "\n"):gsub(",running,%d,%w*,loss,3,", "")
    if last == statuses and ready == running then return end
    core.sys.sleep(0.05)
  end
  t.eq(last, statuses)
end

local DONE = "done done done done done done"

t.test("two hosts share the trials of a sweep, and each knows all", function()
  with_folder(function(f)
    local first = f:start "a"
    f:wait_for("a", "running queued queued queued queued queued")
    local second = f:start "b"
    f:wait_for("a", "running running queued queued queued queued")
    f:wait_for("b", "running running queued queued queued queued")
    local known = f:known "b"
    t.ok(any(known, ",loss,")) -- what the run of the other one has logged
    t.eq(f:known "a", known)
    t.write(f.folder .. "/go", "")
    for _, finish in ipairs { first, second } do
      local code, said = finish()
      t.ok(code == 0 or code == 5, said) -- 5: the other one still runs the last trial
    end
    t.eq(f:statuses "a", DONE)
    known = f:known "a"
    t.eq(f:known "b", known)
    t.eq(f:known "c", known) -- a host that has never seen the folder
    t.ok(not any(known, ",done,2,") and not core.sys.exists(f.root .. "/runs.db"))
    local said, code = f:ask("b", "fsck")
    t.ok(code == 0 and said:find "^6 trials, %d+ files: all is whole\n$", said)
    t.holds(f:ask("b", "doctor"), "; its database is " .. f.folder .. "/b/index/")
    said, code = f:ask("b", "run '" .. f.folder .. "/x.lua'")
    t.ok(code == 0 and said:find("6 already done", 1, true), said)
  end)
end)

t.test("a host continues what a killed run of another one has left, bit for bit", function()
  with_folder(function(f)
    local first = f:start "a"
    f:wait_for("b", "running queued queued queued queued queued")
    local run = f:ask("b", [[ls --csv --sql "SELECT json_extract(provenance, '$.run') AS run
      FROM v_trials WHERE status = 'running'"]])
    t.shell("kill -9 " .. run:match "%.(%d+)%-")
    t.eq(first(), 137)
    t.write(f.folder .. "/go", "")
    local code, said = f:start("b", "-j2")()
    t.ok(code == 0, said)
    t.eq(f:statuses "a", DONE)
    t.eq(f:known "a", f:known "b")
    local got = f:known "a"
    for i, line in ipairs(got) do got[i] = line:gsub(",done,2,", ",done,1,") end
    f.root = f.folder .. "/alone"
    t.eq(f:start "a"(), 0)
    t.eq(got, f:known "a")
  end)
end)

t.test("marks, the trash, purges and merges of one host reach the others while a run goes on",
  function()
    with_folder(function(f)
      t.write(f.folder .. "/go", "")
      local root = f.root
      f.root = f.folder .. "/there"
      t.eq(f:start("a", "a=7")(), 0)
      f.root = root
      t.eq(f:start("a", "a=1,2")(), 0)
      t.eq(core.sys.remove(f.folder .. "/go"), true)
      local going = f:start("a", "a=3")
      f:wait_for("b", "done done done done running queued")
      for _, step in ipairs { { "mark a=1 --tag good" }, { "rm a=2" },
          { ("merge '%s/there'"):format(f.folder) }, { "rm --purge --days 0" },
          { "mark a=7 --tag far", "a" } } do
        local said, code = f:ask(step[2] or "b", step[1])
        t.ok(code == 0, step[1] .. ": " .. said)
        t.eq({ step[1], f:known "a" }, { step[1], f:known "b" })
      end
      t.ok(any(f:known "a", ",good,") and any(f:known "a", ",far,"))
      t.eq(f:statuses "a", "done done running queued done done")
      t.write(f.folder .. "/go", "")
      local code, said = going()
      t.ok(code == 0, said)
      t.eq(f:statuses "b", "done done done done done done")
      local known = f:known "a"
      t.eq(f:known "b", known)
      t.shell(("rm -r '%s/a'"):format(f.folder))
      t.eq(f:known "a", known)
      said, code = f:ask("b", "fsck")
      t.ok(code == 0, said)
    end)
  end)

t.test("a trial is stopped from another host", function()
  with_folder(function(f)
    local going = f:start("a", "a=1 seeds=1")
    f:wait_for("b", "running")
    local said, code = f:ask("b", "status --stop a=1")
    t.ok(code == 0, said)
    t.ok(going() ~= 0)
    t.eq(f:statuses "b", "interrupted")
  end)
end)

t.test("a folder that replaces another one at its path is not taken for it", function()
  with_folder(function(f)
    t.write(f.folder .. "/go", "")
    t.eq(f:start("a", "a=1 seeds=1")(), 0)
    t.shell(("rm -r '%s'"):format(f.root))
    t.eq(f:start("b", "a=2 seeds=2")(), 0)
    t.eq(f:statuses "a", "done done")
    t.eq(f:known "a", f:known "b")
  end)
end)

t.test("a folder that was used on its own machine is used on a network, and back", function()
  with_folder(function(f)
    t.write(f.folder .. "/go", "")
    local run = ("TOEPLAB_THREADS=1 '%s' run '%s/x.lua' -C '%s' 2>&1 "):format(program, f.folder,
      f.root)
    t.eq(select(2, t.shell(run .. "a=1")), 0)
    t.ok(core.sys.exists(f.root .. "/runs.db"))
    t.eq(f:statuses "a", "done done")
    t.eq(f:start("a", "a=1,2")(), 0)
    local said, code = t.shell(run .. "a=1,2")
    t.ok(code == 0 and said:find("4 trials: 4 already done", 1, true), said)
    -- of a version that kept no files of sweeps
    t.shell(("rm -r '%s/a' '%s/sweeps' '%s/news'"):format(f.folder, f.root, f.root))
    t.eq(f:statuses "a", "done done done done")
    t.eq(f:start("a", "a=1,2,3")(), 0)
    t.eq(f:statuses "b", DONE)
  end)
end)

t.done()
