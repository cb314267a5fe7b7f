-- test_together.lua: several runs at a time in one results folder.
local t = require "harness"
local journal = require "toeplab.store.journal"
local core = require "toeplab.core"
local stores = require "stores"

local program = core.sys.executable()

-- Each trial waits in step 3 until the file FOLDER/NAME-go exists.
local script = [[
local tl = require "toeplab"
local function stopped()
  local count, name = tl.sys.interrupted()
  return count > 0 or name ~= nil
end
return tl.experiment "NAME" {
  fixed = { steps = 6 }, grid = { a = { 1, 2, 3 } }, seeds = 2, checkpoint = { steps = 2 }, MORE
  trial = function(t, c)
    local x = tl.zeros(4)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * 0.5 + noise:normal(tl.zeros(4), 0, c.a))
      t:log { loss = (x * x):mean():item() }
      while step == 3 and not tl.sys.exists "FOLDER/NAME-go" and not stopped() do
        tl.sys.sleep(0.01)
      end
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
    local self = setmetatable({ folder = folder, root = folder .. "/r", at_work = {} }, Folder)
    local ok, why = pcall(fn, self)
    for name in pairs(self.at_work) do self:go(name) end
    for name in pairs(self.at_work) do pcall(self.finish, self, name) end
    if not ok then error(why, 0) end
  end)
end

function Folder:write(name, more)
  t.write(("%s/%s.lua"):format(self.folder, name), (script:gsub("NAME", name)
    :gsub("FOLDER", self.folder):gsub("MORE", more or "")))
end

-- Starts toeplab run NAME in the background: its exit code will be in NAME.code, what it prints in
-- NAME.out.
function Folder:start(name, words)
  local f = self.folder
  self.at_work[name] = true
  os.execute(("{ TOEPLAB_THREADS=1 '%s' run '%s/%s.lua' -C '%s' %s >'%s/%s.out' 2>&1; "
    .. "echo $? >'%s/%s.code'; } &"):format(program, f, name, self.root, words or "", f, name, f,
    name))
end

function Folder:ask(words)
  local text, code = t.shell(("TOEPLAB_THREADS=1 '%s' %s -C '%s' 2>&1"):format(program, words,
    self.root))
  return code, text
end

local function wait_until(what, fn)
  local began = core.sys.clock()
  while not fn() do
    if core.sys.clock() - began > 100 then error("waited in vain until " .. what, 2) end
    core.sys.sleep(0.05)
  end
end

-- Waits for the end of a run; returns its exit code and what it printed.
function Folder:finish(name)
  local path = ("%s/%s.code"):format(self.folder, name)
  wait_until(name .. " ends", function() return (core.sys.read_file(path) or "") ~= "" end)
  local code = tonumber(t.read(path))
  core.sys.remove(path)
  self.at_work[name] = nil
  return code, t.read(("%s/%s.out"):format(self.folder, name))
end

-- Sends a signal to the run that runs a trial of an experiment.
function Folder:kill(name, signal)
  local pid = stores.dump(self.root, ([[SELECT provenance ->> '$.run' AS run FROM trials
    WHERE experiment = '%s' AND status = 'running']]):format(name))[1]:match "%.(%d+)%-"
  os.execute(("kill -%d %s"):format(signal, pid))
end

function Folder:go(name) t.write(("%s/%s-go"):format(self.folder, name), "") end

-- The statuses of the trials of an experiment in order of a and seed.
function Folder:statuses(name)
  local ok, lines = pcall(stores.dump, self.root, ([[SELECT json_extract(config, '$.a') AS a, seed,
    status FROM v_trials WHERE experiment = '%s']]):format(name))
  if not ok then return "" end
  for i, line in ipairs(lines) do lines[i] = line:match '"status":"(%l+)"' end
  return table.concat(lines, " ")
end

function Folder:wait_for(name, statuses)
  local last
  wait_until(name .. " is " .. statuses, function()
    last = self:statuses(name)
    return last == statuses
  end)
end

local done = "done done done done done done"
local one_runs = "running queued queued queued queued queued"

-- Starts one, and two beside it.
function Folder:start_both()
  for _, name in ipairs { "one", "two" } do
    self:write(name)
    self:start(name)
    self:wait_for(name, one_runs)
  end
end

local function results(root, name)
  return stores.dump(root, ([[SELECT t.experiment, t.config, t.seed, t.status, t.attempt, m.name,
    m.step, m.value FROM v_metrics m JOIN v_trials t ON t.id = m.trial WHERE t.experiment = '%s']])
    :format(name))
end

-- What a run of its own in a fresh folder stores.
local function alone(f, name)
  f:go(name)
  local root = f.root
  f.root = f.folder .. "/alone"
  f:start(name, "-q")
  local code = f:finish(name)
  local list = results(f.root, name)
  f.root = root
  core.sys.remove(("%s/%s-go"):format(f.folder, name))
  return code, list
end

t.test("two sweeps run at a time, and store what each stores alone", function()
  with_folder(function(f)
    f:write "one"
    f:write "two"
    local code, want = alone(f, "two")
    t.eq(code, 0)
    t.eq(#want, 42)
    f:start "one"
    f:wait_for("one", one_runs)
    f:start("two", "-j2")
    f:wait_for("two", "running running queued queued queued queued")
    t.eq(f:ask "mark two --tag seen", 0)
    f:go "two"
    local said
    code, said = f:finish "two"
    t.eq(code, 0)
    t.ok(said:find("6 trials: 6 done", 1, true) and said:find("a +final"), said)
    t.eq(f:statuses "two", done)
    t.eq(f:statuses "one", one_runs)
    t.eq(results(f.root, "two"), want)
    f:go "one"
    code = f:finish "one"
    t.eq(code, 0)
    t.eq(f:statuses "one", done)
    code, said = f:ask "fsck"
    t.ok(code == 0 and said:find "^12 trials, %d+ files: no problems\n$", said)
  end)
end)

t.test("two runs of one sweep share its trials, and each prints the whole table", function()
  with_folder(function(f)
    local _, want = nil, nil
    f:write "one"
    _, want = alone(f, "one")
    f:start "one"
    f:wait_for("one", one_runs)
    t.write(f.folder .. "/again.lua", t.read(f.folder .. "/one.lua"))
    f:start("again", "-j2")
    f:wait_for("one", "running running running queued queued queued")
    f:go "one"
    for _, name in ipairs { "one", "again" } do
      local code, said = f:finish(name)
      t.ok(code == 0 or code == 5, said) -- 5: the other one still runs the last trial
      t.ok(said:find("6 trials: %d done"), said)
    end
    t.eq(f:statuses "one", done)
    t.eq(results(f.root, "one"), want) -- each once, in one attempt
    local code, said = f:ask("run '" .. f.folder .. "/one.lua'")
    t.ok(code == 0 and said:find("6 already done", 1, true), said)
  end)
end)

t.test("a run says what other processes run, and leaves it to them", function()
  with_folder(function(f)
    f:write "one"
    f:start("one", "-j6")
    f:wait_for("one", ("running "):rep(6):sub(1, -2))
    local code, said = f:ask("run '" .. f.folder .. "/one.lua'")
    t.eq(code, 5)
    t.ok(said:find("6 trials: 6 run by other processes", 1, true), said)
    f:go "one"
    t.eq(f:finish "one", 0)
  end)
end)

t.test("a run outlives another one, and one that is killed", function()
  with_folder(function(f)
    f:start_both()
    f:go "one"
    t.eq(f:finish "one", 0)
    f:kill("two", 9)
    t.eq(f:finish "two", 137)
    f:start "two"
    f:wait_for("two", one_runs)
    f:go "two"
    t.eq(f:finish "two", 0)
    t.eq(f:statuses "two", done)
    t.eq(#results(f.root, "two"), 42)
    t.eq(f:ask "fsck", 0)
  end)
end)

t.test("a killed run continues beside another one, bit for bit", function()
  with_folder(function(f)
    f:write "one"
    f:write "two"
    f:start "one"
    f:wait_for("one", one_runs)
    local _, want = alone(f, "two")
    f:start "two"
    f:wait_for("two", one_runs)
    f:kill("two", 9)
    f:finish "two"
    f:start "two"
    wait_until("two goes on", function()
      return #stores.dump(f.root, "SELECT 1 AS x FROM v_trials WHERE attempt = 2") == 1
    end)
    f:kill("two", 15)
    local code, said = f:finish "two"
    t.ok(code == 143 and said:find("the same command continues", 1, true), said)
    f:go "one"
    t.eq(f:finish "one", 0)
    f:go "two"
    f:start "two"
    t.eq(f:finish "two", 0)
    t.eq(f:statuses "two", done)
    for i, line in ipairs(want) do want[i] = line:gsub('"attempt":%d+', "") end
    local got = results(f.root, "two")
    for i, line in ipairs(got) do got[i] = line:gsub('"attempt":%d+', "") end
    table.sort(want)
    table.sort(got)
    t.eq(got, want)
  end)
end)

local many = [[
local tl = require "toeplab"
return tl.experiment "many" {
  grid = { a = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 } }, seeds = 6,
  trial = function(t, c) t:log { loss = c.a + c.seed } end,
}
]]

t.test("commands that read do not touch what a run is about to write", function()
  with_folder(function(f)
    f:write "one"
    t.write(f.folder .. "/many.lua", many)
    f:start "one"
    f:wait_for("one", one_runs)
    f:start("many", "-j2 -q")
    wait_until("many runs", function() return f:statuses("many"):find "done" end)
    f:go "one"
    t.eq(f:finish "one", 0)
    repeat f:ask "ls" until core.sys.exists(f.folder .. "/many.code")
    t.eq(f:finish "many", 0)
    t.eq(select(2, f:statuses("many"):gsub("done", "")), 60)
    t.eq(f:ask "fsck", 0)
  end)
end)

t.test("later seeds that another run has are not run twice", function()
  with_folder(function(f)
    t.write(f.folder .. "/many.lua", (many:gsub("seeds = 6", [[
  seeds = "until 0.1 %%, at least 3, at most 5",
  compare = { with = { a = 1 }, metric = "loss" }]]):gsub("trial = function%(t, c%)", [[%0
    local go = c.seed > 3 and "FOLDER/go-late" or "FOLDER/go"
    while not tl.sys.exists(go) do tl.sys.sleep(0.01) end]]):gsub("FOLDER", f.folder)))
    f:start("many", "-q")
    f:wait_for("many", "running" .. (" queued"):rep(29))
    t.write(f.folder .. "/two.lua", t.read(f.folder .. "/many.lua"))
    f:start("two", "seed=4,5 a=1,2 -q")
    wait_until("the other run is at work", function()
      return select(2, f:statuses("many"):gsub("running", "")) == 2
    end)
    t.write(f.folder .. "/go", "") -- the first three seeds; the other run still waits in its own
    local code, said = f:finish "many"
    t.eq(code, 5)
    t.ok(said:find('runs trial %x+, but seeds = "until ..." requires'), said)
    t.write(f.folder .. "/go-late", "")
    t.eq(f:finish "two", 0)
    f:start("many", "-q")
    t.eq(f:finish "many", 0)
    local rows = stores.dump(f.root, [[SELECT seed > 3 AS late, status, attempt, count(*) AS n
      FROM v_trials GROUP BY late, status, attempt]])
    t.eq(#rows, 2)
    t.holds(rows[1], '"attempt":1', '"n":30', '"status":"done"')
    t.holds(rows[2], '"attempt":1', '"n":20', '"status":"done"')
    t.eq(f:ask "fsck", 0)
  end)
end)

t.test("a trial that another process has begun, and the store has not seen, is not run", function()
  with_folder(function(f)
    f:start_both()
    local id = stores.dump(f.root, [[SELECT id FROM v_trials WHERE experiment = 'two'
      AND seed = 2 AND json_extract(config, '$.a') = 2]])[1]:match "%x+%x%x%x"
    local path = f.root .. "/runs/" .. id:sub(1, 12)
    core.sys.mkdir(path)
    t.ok(journal.create(path .. "/events-1.jnl", { "begin", 1, core.sys.now(), 5, "c",
      '{"label":"x","host":"n2","command":"toeplab run two.lua"}', n = 6 }))
    local writer = journal.writer(path .. "/events-1.jnl") -- its worker is at work
    f:go "two"
    local code, said = f:finish "two"
    writer:close()
    t.eq(code, 5)
    t.ok(said:find("another process has taken it", 1, true), said)
    t.ok(said:find("6 trials: 5 done, 1 run by other processes", 1, true), said)
  end)
end)

t.test("a run tunes a key before its trials", function()
  with_folder(function(f)
    f:write "one"
    f:write("two",
      "better = { final = 'lower' }, tune = { key = 'steps', values = { 4, 5 }, metric = 'final', "
      .. "seed = 101 },")
    f:start "one"
    f:wait_for("one", one_runs)
    f:go "two"
    f:start "two"
    local code, said = f:finish "two"
    t.eq({ code, code == 0 and "" or said }, { 0, "" })
    t.eq(f:statuses "two", done)
    t.eq(f:statuses "two-tuning", done)
    f:go "one"
    t.eq(f:finish "one", 0)
  end)
end)

t.test("what needs all trials of a run for itself is refused while others run them", function()
  with_folder(function(f)
    f:write "one"
    f:write("two", "prune = { metric = 'loss', eta = 2, min_steps = 4 },")
    f:start "one"
    f:start "two"
    f:wait_for("one", one_runs)
    f:wait_for("two", one_runs)
    for words, want in pairs {
      ["one.lua --redo"] = "process %d+ on %S+ runs trial %x+, but %-%-redo requires",
      ["two.lua"] = "process %d+ on %S+ runs trial %x+, but prune requires",
    } do
      local code, said = f:ask("run " .. f.folder .. "/" .. words)
      t.eq(code, 5)
      t.ok(said:find(want), said)
    end
    local code, said = f:ask "status --stop two"
    t.ok(code == 2 and said:find "name one trial", said)
    f:go "one"
    f:go "two"
    t.eq(f:finish "one", 0)
    t.eq(f:finish "two", 0)
  end)
end)

t.done()
