-- test_redo.lua: what run --redo makes again, and what it leaves alone.
local core = require "toeplab.core"
local devices = require "toeplab.trials.devices"
local records = require "toeplab.store.records"
local errors = require "toeplab.base.errors"
local t = require "harness"
local trials = require "trials"

local in_folder = t.in_folder

local script = [[
local tl = require "toeplab"
return tl.experiment "again" {
  fixed = { steps = 8 },
  grid = { a = { 1, 2 } },
  checkpoint = { steps = 2 },
  trial = function(t, c)
    local x = tl.zeros(1)
    local part = { state = function() return { x = x } end, load = function(_, s) x:copy(s.x) end }
    for step in t:steps(c.steps, part, part) do t:log { loss = c.a + step } end
  end,
}
]]

-- Changes the rows of the store in folder as sql says.
local function change(folder, sql)
  local store <close> = records.open(folder .. "/results", "w")
  store:rows(sql)
end

-- Runs x.lua in folder in a process of its own; returns its exit code and what it printed.
local function run(folder, words)
  local text, code = t.shell(("cd '%s' && timeout 30 '%s' run x.lua -C results %s 2>&1"):format(
    folder, core.sys.executable(), words or ""))
  return code, text
end

local OTHER = "UPDATE trials SET code_hash = 'other'"

t.test("--redo on a device that is gone is refused and touches nothing", function()
  in_folder(function(folder)
    local device = folder .. "/device.so"
    local apart = core.sys.executable():gsub("[^/]*$", "") .. "tests/apart.so"
    t.write(device, core.sys.read_file(apart))
    t.write(folder .. "/x.lua", script)
    t.eq(run(folder, "device=" .. device), 0)
    change(folder, OTHER)
    os.remove(device)
    local code, said = run(folder, "--redo device=" .. device)
    t.eq(code, errors.USAGE)
    t.holds(said, "device.so")
    t.eq(trials.query(folder, "SELECT status, count(*) AS n FROM v_trials GROUP BY 1"),
      { { status = "done", n = 2 } })
    t.eq(#trials.query(folder, "SELECT 1 FROM v_metrics"), 16)
  end)
end)

t.test("a trial that no device takes ends the run", function()
  in_folder(function(folder)
    local check = devices.check
    devices.check = function() end
    local code, said = trials.run(folder, script, { "device=/no/such/device.so" })
    devices.check = check
    t.eq(code, errors.USAGE)
    t.holds(said, "device '/no/such/device.so' takes no trial")
  end)
end)

-- Runs the script, and stops its first trial at step 5; then it has a checkpoint of step 4.
local function stopped(folder)
  t.write(folder .. "/x.lua", (script:gsub("do t:log", "do if c.a == 1 and step == 5 and "
    .. "os.remove 'stop' then " .. trials.STOP .. " end t:log")))
  t.write(folder .. "/stop", "")
  t.eq(run(folder), 143)
end

local function events(folder)
  return trials.query(folder, "SELECT kind, text FROM v_events ORDER BY trial, created")
end

t.test("--redo makes trials of mixed code again", function()
  in_folder(function(folder)
    stopped(folder)
    change(folder, OTHER)
    t.eq(run(folder), 0) -- goes on from the checkpoint of the other code
    t.eq(events(folder)[1].kind, "code")
    change(folder, "UPDATE metrics SET value = 0")
    t.holds(select(2, run(folder)), "1 finished trial made by other code: kept")
    t.holds(select(2, run(folder, "-n --redo")), "redo")
    t.holds(t.shell(("cd '%s' && '%s' plan x.lua -C results"):format(folder,
      core.sys.executable())), "1 of them by other code (run --redo runs them again)")
    t.holds(select(2, run(folder, "--redo")), "1 done, 1 already done")
    t.eq(#trials.query(folder, "SELECT 1 FROM v_metrics WHERE value > 0"), 8)
    t.eq(#events(folder), 1)
    t.holds(events(folder)[1].text, "done by code ")
    t.holds(select(2, run(folder, "--redo")), "2 already done")
  end)
end)

t.test("--redo of an unfinished trial starts over, not from the checkpoint of other code",
  function()
    in_folder(function(folder)
      stopped(folder)
      t.holds(select(2, run(folder, "-n --redo")), "interrupted")
      change(folder, OTHER)
      change(folder, "UPDATE metrics SET value = 0")
      t.holds(select(2, run(folder, "-n --redo")), "redo")
      local code, said = run(folder, "--redo")
      t.eq(code, 0)
      t.holds(said, "1 unfinished trial made by other code: started over")
      t.eq(#trials.query(folder, "SELECT 1 FROM v_metrics WHERE value > 0"), 16)
      t.eq({ #events(folder), events(folder)[1].kind }, { 1, "redo" })
    end)
  end)

t.done()
