-- test_changes.lua: tags, notes, the trash and stopping while a run is at work.
local t = require "harness"
local core = require "toeplab.core"
local trials = require "trials"

local script = [[
local tl = require "toeplab"
return tl.experiment "busy" {
  fixed = { go = "" }, grid = { a = { 1, 2, 3 } },
  trial = function(t, c)
    t:log { loss = 1.0 * c.a }
    if c.a == 1 then error "planned" end
    while c.a == 2 and not tl.sys.exists(c.go) do tl.sys.sleep(0.02) end
  end,
}
]]

-- Runs toeplab with words on the results in folder; returns its exit code and what it printed.
local function toeplab(folder, words)
  local text, code = t.shell(("'%s' %s -C '%s/results' 2>&1"):format(core.sys.executable(), words,
    folder))
  return code, text
end

local function statuses(folder)
  local list = {}
  for i, row in ipairs(trials.query(folder, [[SELECT status FROM v_trials
    ORDER BY json_extract(config, '$.a')]])) do list[i] = row.status end
  return table.concat(list, " ")
end

-- Calls fn() every few milliseconds until it is true; raises after a minute.
local function wait_until(fn)
  local began = core.sys.clock()
  while not fn() do
    t.ok(core.sys.clock() - began < 60, "waited for a minute")
    core.sys.sleep(0.02)
  end
end

-- Waits for the end of a run; returns its exit code as `echo` writes it into the file `code`.
local function code_of(folder)
  wait_until(function() return (t.read(folder .. "/code") or "") ~= "" end)
  return t.read(folder .. "/code")
end

t.test("trials can be marked and removed during a run, except running ones", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", script)
    local go = folder .. "/go"
    os.execute(("{ '%s' run -q '%s/x.lua' 'go=%s' -C '%s/results' >'%s/said' 2>&1; echo $? "
      .. ">'%s/code'; } &"):format(core.sys.executable(), folder, go, folder, folder, folder))
    wait_until(function()
      return core.sys.exists(folder .. "/results/runs.db")
        and pcall(statuses, folder) and statuses(folder) == "failed running queued"
    end)
    t.eq({ toeplab(folder, "mark busy --tag seen --note 'while it runs'") },
      { 0, "mark: 3 trials\n3 trials now 'seen'\n3 trials noted\n" })
    t.eq({ toeplab(folder, "mark a=3 --untag seen") }, { 0, "1 trial no longer 'seen'\n" })
    t.eq(#trials.query(folder, [[SELECT 1 FROM v_trials WHERE tags = 'seen'
      AND notes = 'while it runs']]), 2)
    local code, said = toeplab(folder, "rm a=2")
    t.ok(code == 2 and said:find "is running .process %d+ on .*nothing was removed", said)
    code, said = toeplab(folder, "mark nix --tag x")
    t.ok(code == 2 and said:find("'nix' is neither the id of a trial", 1, true), said)
    code, said = toeplab(folder, "rm a=1")
    t.ok(code == 0 and said:find "^1 trial of [^,]*, 0 files, 0 B moved to the trash", said)
    t.eq(statuses(folder), "running queued")
    t.eq(toeplab(folder, "rm --restore @last"), 0)
    t.eq(statuses(folder), "failed running queued")
    t.eq(toeplab(folder, "rm a=3"), 0)
    t.write(go, "")
    t.eq(code_of(folder), "1\n") -- the planned failure
    t.eq(statuses(folder), "failed done") -- what was removed has not been run
    t.eq(toeplab(folder, "rm --restore @last"), 0)
    t.eq(statuses(folder), "failed done queued")
    t.eq(#trials.query(folder, "SELECT 1 FROM v_trials WHERE tags = 'seen'"), 2)
    t.eq({ toeplab(folder, "mark busy --clear") }, { 0, "mark: 3 trials\n3 trials cleared\n" })
  end)
end)

local steps = [[
local tl = require "toeplab"
return tl.experiment "steps" {
  fixed = { go = "" }, grid = { a = { 1, 2, 3 } }, checkpoint = { steps = 1 },
  trial = function(t, c)
    local model = tl.nn.Linear(1, 1)
    for step in t:steps(4, model, tl.optim.sgd(model, { lr = 0.1 })) do
      t:log { loss = c.a / step }
      while c.a < 3 and step == 3 and not tl.sys.exists(c.go) and tl.sys.interrupted() == 0 do
        tl.sys.sleep(0.02)
      end
    end
  end,
}
]]

t.test("one running trial can be stopped, and the same command continues it", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", steps)
    local go = folder .. "/go"
    local run = ("'%s' run '%s/x.lua' -j2 'go=%s' -C '%s/results' >'%s/said' 2>&1"):format(
      core.sys.executable(), folder, go, folder, folder)
    os.execute(("{ %s; echo $? >'%s/code'; } &"):format(run, folder))
    wait_until(function()
      return core.sys.exists(folder .. "/results/runs.db") and select(2, pcall(function()
        return #trials.query(folder, "SELECT 1 FROM v_last WHERE step = 3") == 2
      end)) == true
    end)
    local code, said = toeplab(folder, "status --stop a=3")
    t.ok(code == 2 and said:find("cannot be stopped: it is ", 1, true),
      said)
    code, said = toeplab(folder, "status --stop a=2")
    t.ok(code == 0 and said:find("1 trial asked to save and stop", 1, true), said)
    wait_until(function() return statuses(folder) == "running interrupted done" end)
    t.ok(not core.sys.exists(folder .. "/code"), "the run goes on")
    t.write(go, "")
    t.eq(code_of(folder), "1\n")
    local stop = "stopped on request at step 3; the same command continues\n"
    t.holds(t.read(folder .. "/said"), "a=2: " .. stop)
    t.holds(t.read(folder .. "/said"), "3 trials: 2 done, 1 stopped (the same command continues)")
    t.holds(select(2, toeplab(folder, "show a=2")), "interrupted: " .. stop)
    t.eq(statuses(folder), "done interrupted done")
    code, said = toeplab(folder, "status --stop a=2")
    t.ok(code == 2 and said:find("it is interrupted", 1, true), said)
    t.ok(os.execute(run))
    t.eq(statuses(folder), "done done done")
    t.eq(#trials.query(folder, "SELECT 1 FROM v_metrics"), 12)
  end)
end)

local rounds = [[
local tl = require "toeplab"
return tl.experiment "rounds" {
  fixed = { go = "" }, grid = { a = { 1, 2 } },
  seeds = "until 0.1 %, at least 3, at most 5",
  compare = { with = { a = 2 }, metric = "loss" },
  trial = function(t, c)
    t:log { loss = 1.0 * c.a + 0.1 * (c.seed * c.a % 3) }
    while c.seed > 3 and not tl.sys.exists(c.go) do tl.sys.sleep(0.02) end
  end,
}
]]

t.test("trials that later looks compare are restored from the trash during a run", function()
  t.in_folder(function(folder)
    t.write(folder .. "/x.lua", rounds)
    local go = folder .. "/go"
    local run = ("'%s' run '%s/x.lua' 'go=%s' -C '%s/results' >'%s/said' 2>&1"):format(
      core.sys.executable(), folder, go, folder, folder)
    os.execute(("{ %s; echo $? >'%s/code'; } &"):format(run, folder))
    wait_until(function()
      return core.sys.exists(folder .. "/results/runs.db") and select(2, pcall(function()
        return #trials.query(folder, "SELECT 1 FROM v_trials WHERE seed = 4") > 0
      end)) == true
    end)
    t.eq(toeplab(folder, "rm seed=1"), 0)
    t.write(go, "")
    t.eq(code_of(folder), "0\n")
    t.holds(t.read(folder .. "/said"), "2 trials restored from the trash")
    t.eq(#trials.query(folder, "SELECT 1 FROM v_trials WHERE seed = 1"), 2)
  end)
end)

t.done()
