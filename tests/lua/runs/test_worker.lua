-- test_worker.lua: what a worker makes of the orders of its coordinator: here it runs in this
-- process, and each case says what it hears.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local experiment = require "toeplab.trials.experiment"
local journal = require "toeplab.store.journal"
local t = require "harness"
local wire = require "toeplab.base.wire"
local worker = require "toeplab.runs.worker"

local SCRIPT = [[
local tl = require "toeplab"
local acts = {}
function acts.done(t, step) t:log { loss = 1 / step } end
function acts.breaks(t, step) if step == 2 then error("no such luck", 0) end end
function acts.shouts() error(("x"):rep(20000), 0) end
function acts.diverges(t) t:log { loss = 0 / 0, other = 1 / 0 } end
function acts.talks(_, step) print("at", step) end
return tl.experiment "x" { grid = { act = { "done", "breaks", "shouts", "diverges", "talks" } },
  checkpoint = { steps = 1 }, PRUNE
  trial = function(t, c)
    local x = tl.zeros(1)
    local part = { state = function() return { x = x } end, load = function(_, s) x:copy(s.x) end }
    for step in t:steps(3, part) do
      acts[c.act](t, step)
      t:log { step = step }
    end
  end }
]]

local PATH = "runs/0123456789ab"

-- Returns the order to run attempt `attempt` at a trial that does act.
local function trial(script, act, attempt, check)
  local config = { act = act, seed = 1, precision = "float32", device = "cpu", ranks = 1,
    sequence_ranks = 1, micro_batches = 1 }
  return wire.line("trial", wire.pack(config), check or worker.check(experiment.load(script)), PATH,
    attempt, 0.0, wire.pack {})
end

-- Runs a worker in this process. orders: what it hears while it waits, after which its coordinator
-- is gone; during: what it hears from its trials, false if the coordinator is gone then; signal:
-- the step after which a SIGTERM arrives. Returns its exit code, or the error that ended it, and
-- the lines that it has told.
local function run(script, folder, orders, during, signal)
  local told, steps, heard, stubs = {}, 0, 0, {}
  function stubs.end_with_parent() end
  function stubs.catch_signals() end
  function stubs.print_to() end
  function stubs.tell(text) told[#told + 1] = wire.parse(text:sub(1, -2)) end
  function stubs.hear(seconds)
    if seconds == 60 then return table.remove(orders, 1) end
    heard = heard + 1
    local text = (during or {})[heard]
    if text == false then return nil end
    return text or ""
  end
  function stubs.interrupted()
    if not signal then return 0 end
    for _, line in ipairs(journal.read(folder .. "/" .. journal.path(PATH, 1), 0)) do
      if line[1] == "metric" then steps = math.max(steps, line[2]) end
    end
    return 0, steps >= signal and "TERM" or nil
  end
  local kept = {}
  for name, stub in pairs(stubs) do kept[name], core.sys[name] = core.sys[name], stub end
  local ok, code = pcall(worker.main, script, { dir = folder, device = "cpu", steps = 1 })
  for name, fn in pairs(kept) do core.sys[name] = fn end
  return ok and code or code, told
end

-- Calls fn(script, folder) with the script and a folder of results for the trial.
local function with(fn, prune)
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", (SCRIPT:gsub("PRUNE", prune or "")))
    core.sys.mkdir(folder .. "/runs")
    core.sys.mkdir(folder .. "/" .. PATH)
    fn(folder .. "/x.lua", folder)
  end)
end

-- Returns the lines of that kind.
local function lines(list, kind)
  local found = {}
  for _, line in ipairs(list) do
    if line[1] == kind then found[#found + 1] = table.pack(table.unpack(line, 2, line.n)) end
  end
  return found
end

local function read(folder, attempt)
  return journal.read(("%s/%s"):format(folder, journal.path(PATH, attempt)), 0)
end

t.test("a trial's results are in its journal before its end is reported", function()
  with(function(script, folder)
    local code, told = run(script, folder, { trial(script, "done", 1) })
    t.eq({ code, told[#told][1], told[#told][2] }, { 0, "ended", "done" })
    local list = read(folder, 1)
    t.eq({ #lines(list, "code"), #lines(list, "metric"), lines(list, "end")[1][1] },
      { 1, 6, "done" })
    t.eq(lines(list, "artifact")[4][3], PATH .. "/step-00000003.h5")
    t.eq(lines(list, "drop"), { { PATH .. "/step-00000001.h5", n = 1 } })
    t.eq(lines(told, "read")[1][1], "act")
    t.ok(core.sys.exists(folder .. "/" .. PATH .. "/step-00000003.h5"))
  end)
end)

t.test("a trial that breaks has failed, and the worker takes the next one", function()
  with(function(script, folder)
    local code, told = run(script, folder, { trial(script, "breaks", 1),
      trial(script, "shouts", 2), trial(script, "done", 3) })
    local ends = lines(told, "ended")
    t.eq({ code, ends[1][1], ends[1][3], ends[2][1], ends[3][1] }, { 0, "failed",
      script .. ":4: no such luck", "failed", "done" })
    t.eq(ends[1][2], nil)
    t.eq(lines(read(folder, 1), "end")[1][2], ends[1][3])
    local why = lines(read(folder, 2), "end")[1][2]
    t.ok(#why < 10100 and why:find "x%.%.%. %(20%d+ bytes%)$", why:sub(-50))
  end)
end)

t.test("a trial that has diverged is reported once", function()
  with(function(script, folder)
    local _, told = run(script, folder, { trial(script, "diverges", 1) })
    t.eq(lines(told, "diverged"), { { "loss is nan at step 1", n = 1 } })
  end)
end)

t.test("the worker passes on what a script prints", function()
  with(function(script, folder)
    local _, told = run(script, folder, { trial(script, "talks", 1) })
    t.eq(lines(told, "say")[3][1], "at\t3")
  end)
end)

t.test("a signal ends the trial with a checkpoint, and the worker", function()
  with(function(script, folder)
    local order = { trial(script, "done", 1), trial(script, "done", 2) }
    local code, told = run(script, folder, order, nil, 2)
    t.eq({ code, #order, #lines(told, "ended") }, { 0, 1, 1 })
    local ended = lines(told, "ended")[1]
    t.eq({ ended[1], ended[2], ended[3] }, { "interrupted", errors.TERMINATE,
      "stopped by SIGTERM at step 2" })
    t.eq(lines(read(folder, 1), "end")[1][1], "interrupted")
    -- the next attempt gets the checkpoints and goes on from the last one
    local words = {}
    for _, a in ipairs(lines(read(folder, 1), "artifact")) do
      words[#words + 1] = wire.line("artifact", table.unpack(a, 1, 5))
    end
    code, told = run(script, folder, { table.concat(words) .. trial(script, "done", 2) })
    t.eq({ code, lines(told, "note")[1][1] }, { 0, "resumed after step 2 of 3" })
    t.eq(lines(told, "ended")[1][1], "done")
    t.eq(#lines(read(folder, 2), "metric"), 2)
  end)
end)

t.test("a trial whose coordinator is gone saves and ends", function()
  with(function(script, folder)
    local code, told = run(script, folder, { trial(script, "done", 1) }, { "", "", false })
    local ended = lines(told, "ended")[1]
    t.eq({ code, ended[1], ended[2], ended[3] }, { 0, "interrupted", errors.TERMINATE,
      "the coordinator died at step 2" })
    t.eq(lines(read(folder, 1), "artifact")[3][2], 2)
  end)
end)

t.test("at a rung the trial waits for the word of the coordinator", function()
  with(function(script, folder)
    local _, told = run(script, folder, { trial(script, "done", 1) },
      { "", "", wire.line "go", "", wire.line "prune" })
    t.eq(lines(told, "rung"), { { 1, n = 1 }, { 2, n = 1 } })
    local ended = lines(told, "ended")[1]
    t.eq({ ended[1], ended[4] }, { "done", "pruned" })
    local last = lines(read(folder, 1), "end")[1]
    t.eq({ last[1], last[3], lines(read(folder, 1), "step")[2][1] }, { "done", "pruned", 2 })
  end, [[prune = { metric = "loss", rule = "asha", eta = 2, min_steps = 1 },]])
end)

t.test("a trial whose journal cannot be written ends the run", function()
  with(function(script, folder)
    t.shell(("ln -s /dev/full '%s/%s'"):format(folder, journal.path(PATH, 1)))
    local code, told = run(script, folder, { trial(script, "done", 1) })
    t.eq(code, 0)
    local ended = lines(told, "ended")[1]
    t.eq({ ended[1], ended[2] }, { "interrupted", errors.STORAGE })
    t.holds(ended[3], "No space left on device")
  end)
end)

t.test("a worker that cannot run the trials says so", function()
  with(function(script, folder)
    local why, told = run(script, folder, { trial(script, "done", 1, "other code 1") })
    t.ok(errors.is(why) and why.code == errors.FAILED, why)
    t.holds(told[1][3], "code that it loads has changed during the run")
    t.eq({ #told, told[1][1], told[1][2] }, { 1, "unfit", errors.FAILED })
    t.write(script, "return nonsense(")
    why, told = run(script, folder, {})
    t.ok(errors.is(why) and why.code == errors.USAGE, why)
    t.eq({ #told, told[1][1], told[1][2] }, { 1, "unfit", errors.USAGE })
  end)
end)

t.done()
