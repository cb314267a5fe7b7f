-- test_budget.lua: trials that are pruned, run out of time or memory, or take too long.
local core = require "toeplab.core"
local experiment = require "toeplab.trials.experiment"
local journal = require "toeplab.store.journal"
local plan = require "toeplab.trials.plan"
local prune = require "toeplab.trials.prune"
local records = require "toeplab.store.records"
local stores = require "stores"
local t = require "harness"
local trials = require "trials"
local wire = require "toeplab.base.wire"
local worker = require "toeplab.runs.worker"

local query, in_folder = trials.query, t.in_folder

local script = [[
local tl = require "toeplab"
return tl.experiment "budget" {
  fixed = { steps = 40, pause = 0.0, take = 0 },
  grid = { quality = { 1, 2, 3, 4, 5, 6 } },
  EXTRA
  trial = function(t, c)
    local x = tl.zeros(4)
    local part = { state = function() return { x = x } end, load = function(_, s) x:copy(s.x) end }
    for step in t:steps(c.steps, part, part) do
      if c.take > 0 then x = tl.zeros(c.take) end
      t:log { loss = c.quality + 1 / step }
      tl.sys.sleep(c.pause)
    end
    t:log { final = c.quality }
  end,
  report = { rows = "quality", columns = { "loss" } },
}
]]

local function run(folder, extra, words, options)
  return trials.run(folder, (script:gsub("EXTRA", extra)), words, options)
end

local function status(folder)
  local list = {}
  for i, row in ipairs(query(folder, [[SELECT status, json_extract(config, '$.quality') AS q
    FROM v_trials ORDER BY q]])) do
    list[i] = row.status
  end
  return table.concat(list, " ")
end

t.test("trials that fall behind are pruned at the rungs, and not resumed", function()
  in_folder(function(folder)
    local extra = 'prune = { metric = "loss", rule = "asha", eta = 2, min_steps = 4 },'
    local code, said = run(folder, extra, { "pause=0.02" })
    t.eq(code, 0)
    t.eq(status(folder), "done pruned pruned pruned pruned pruned")
    t.ok(said:find "quality=2: pruned: loss is 2.25 at step 4, not among the best 1 of 2", said)
    t.ok(said:find "6 trials: 1 done, 5 pruned", said)
    local events = query(folder, "SELECT kind, step FROM v_events WHERE kind = 'prune'")
    t.eq({ #events, events[1].kind, events[1].step }, { 5, "prune", 4 })
    t.eq(#query(folder, "SELECT 1 FROM v_trials WHERE status = 'pruned' AND step = 4"), 5)
    t.eq(#query(folder, "SELECT 1 FROM v_metrics WHERE name = 'final'"), 1)
    code, said = run(folder, extra, { "pause=0.02" })
    t.eq(code, 0)
    t.ok(said:find "6 trials: 6 already done", said)
  end)
  in_folder(function(folder)
    t.eq(run(folder, 'prune = { metric = "loss", rule = "median", min_steps = 4, goal = "max" },',
      { "pause=0.02" }), 0)
    t.eq(status(folder), "done done done done done done") -- each is better than all before
  end)
  in_folder(function(folder)
    t.eq(run(folder, 'prune = { metric = "loss", rule = "median", min_steps = 4, goal = "min" },',
      { "pause=0.02" }), 0)
    t.eq(status(folder), "done done done pruned pruned pruned") -- each is worse than all before
  end)
end)

-- What a Pruner says at step 4 of trial number i of a store of five, whose losses are -1 to -5;
-- events: number of a trial -> what was decided of it; over: of those that have ended.
local function judged(i, events, over, goal, value, rule)
  local word, why, told
  in_folder(function(folder)
    local list, trial_list = {}, {}
    for k, name in ipairs { "a", "b", "c", "d", "e" } do
      list[k] = { name = name, experiment = "x", config = { n = k }, metrics = { loss = {} } }
      for step = 1, 8 do list[k].metrics.loss[step] = k == i and value or -k * 1.0 end
      trial_list[k] = { id = stores.id(name), status = (over or {})[k] }
    end
    stores.fill(folder, list)
    local store <close> = records.open(folder, "w")
    for k, event in pairs(events) do
      store:event(trial_list[k].id, 4, event, ("loss is %d.0 at step 4, by hand"):format(-k))
    end
    local pruner = prune.new({ metric = "loss", rule = rule or "asha", eta = 2.0, min_steps = 4,
      goal = goal or "min" }, store, trial_list, trial_list)
    word, why = pruner:judge(trial_list[i], 4)
    told = store:rows("SELECT kind, text FROM v_events WHERE trial = ?", { trial_list[i].id })
    t.eq({ pruner:judge(trial_list[i], 4) }, { word, why }) -- it stays
  end)
  return word, why, told[1] and told[1].kind
end

t.test("a trial is judged when earlier trials have reached the rung or ended", function()
  t.eq({ judged(1, {}) }, { "go", "loss is -1.0 at step 4, among the first 1", "judged" })
  t.eq(judged(2, {}), nil) -- the first one has not been there
  t.eq({ judged(2, { "judged" }) }, { "go", "loss is -2.0 at step 4, among the best 1 of 2",
    "judged" })
  t.eq({ judged(2, { "judged" }, nil, "max") }, { "prune",
    "loss is -2.0 at step 4, not among the best 1 of 2", "prune" })
  t.eq(judged(3, { "judged" }), nil) -- nor the second
  t.eq({ judged(3, { "judged" }, { [2] = "failed" }, "max") }, { "prune",
    "loss is -3.0 at step 4, not among the best 1 of 2", "prune" })
  t.eq({ judged(4, { "prune", "judged", "judged" }, { "pruned" }) }, { "go",
    "loss is -4.0 at step 4, among the best 2 of 4", "judged" })
  t.eq({ judged(4, { "judged", "judged", "judged", "prune" }) }, { "prune",
    "loss is -4.0 at step 4, by hand", "prune" })
  t.eq({ judged(1, {}, nil, nil, 0 / 0) }, { "prune",
    "loss is nan at step 4, not among finite numbers", "prune" }) -- asha's first rung
  for goal, infinite in pairs { min = -math.huge, max = math.huge } do -- has diverged
    t.eq(judged(2, { "judged" }, nil, goal, infinite), "prune")
  end
end)

-- Before trial i come the losses -1, -2, -3, -4, as many as it needs.
t.test("with rule median, a trial continues if it is not worse than the median including itself",
  function()
    for _, row in ipairs {
      { 3, -0.5, "min", "go", "among the first 3" }, -- the worst of three
      { 4, -2.5, "min", "go", "among the better half of 4" }, -- the median is -2.25
      { 4, -2.0, "min", "go", "among the better half of 4" }, -- it is the median
      { 4, -1.5, "min", "prune", "not among the better half of 4" }, -- -1.75
      { 4, -1.5, "max", "go", "among the better half of 4" },
      { 4, -2.5, "max", "prune", "not among the better half of 4" },
      { 5, -3.5, "min", "go", "among the better half of 5" }, -- -3
      { 5, -2.5, "min", "go", "among the better half of 5" }, -- it is the median
      { 5, -1.5, "min", "prune", "not among the better half of 5" }, -- -2
      { 5, -2.5, "max", "go", "among the better half of 5" },
      { 5, -3.5, "max", "prune", "not among the better half of 5" },
      { 4, 0 / 0, "min", "prune", "not among finite numbers" },
      { 1, math.huge, "min", "prune", "not among finite numbers" }, -- also of the first
      { 4, math.huge, "max", "prune", "not among finite numbers" },
    } do
      local i, value, goal, word, place = table.unpack(row)
      local before = {}
      for k = 1, i - 1 do before[k] = "judged" end
      local got, why, kind = judged(i, before, nil, goal, value, "median")
      t.eq({ got, kind }, { word, word == "go" and "judged" or "prune" })
      t.eq(why:match "at step 4, (.*)", place)
    end
  end)

-- Losses that cross: what a trial is worth depends on the step at which it is judged.
local crossing = script:gsub("EXTRA", 'prune = { metric = "loss", eta = 2, min_steps = 3 },')
  :gsub("c.quality %+ 1 / step",
  "((c.quality * 7) %% 5) * (1 + ((c.quality * step) %% 4)) + 1 / step")

local function outcome(folder)
  local lines = {}
  for _, sql in ipairs { [[SELECT json_extract(config, '$.quality') AS a, status AS b FROM v_trials
      ORDER BY a]],
    [[SELECT json_extract(config, '$.quality') AS a, m.step || ' ' || m.value AS b FROM v_metrics m
      JOIN v_trials t ON t.id = m.trial ORDER BY a, m.step, m.name]],
    [[SELECT json_extract(config, '$.quality') AS a, e.step || ' ' || e.kind || ' ' || e.text AS b
      FROM v_events e JOIN v_trials t ON t.id = e.trial ORDER BY a, e.step]] } do
    for _, row in ipairs(query(folder, sql)) do lines[#lines + 1] = row.a .. " " .. row.b end
  end
  return table.concat(lines, "\n")
end

t.test("pruning does not depend on the number of workers or on interruptions", function()
  local wanted
  in_folder(function(folder)
    t.eq(trials.run(folder, crossing), 0)
    wanted = outcome(folder)
    t.eq(status(folder), "done pruned done pruned done pruned")
  end)
  for _, jobs in ipairs { 3, 6 } do
    in_folder(function(folder)
      t.eq(trials.run(folder, crossing, {}, { jobs = jobs }), 0)
      t.eq(outcome(folder), wanted)
    end)
  end
  for _, jobs in ipairs { 1, 3 } do -- stopped in step 2 of the first trial to 7 of the last
    in_folder(function(folder)
      local code, runs = trials.run_stopped(folder, crossing, { "1-2", "2-3", "3-4", "4-5", "5-6",
        "6-7" }, 'c.quality .. "-" .. step', {}, { jobs = jobs })
      t.eq({ code, runs > 2 }, { 0, true })
      t.eq(outcome(folder), wanted)
    end)
  end
end)

t.test("trials after a killed trial are not judged without it", function()
  in_folder(function(folder)
    local wanted
    in_folder(function(other)
      trials.run(other, crossing)
      wanted = outcome(other)
    end)
    local deaths = folder .. "/deaths"
    core.sys.mkdir(deaths)
    for i = 1, 2 do t.write(deaths .. "/" .. i, "") end
    local text = crossing:gsub("t:log { loss", function(log)
      return ([[if c.quality == 1 and step == 2 and (os.remove("%s/1") or os.remove("%s/2")) then
        os.execute("kill -KILL $PPID") end %s]]):format(deaths, deaths, log)
    end)
    local code, said = trials.run(folder, text, {}, { jobs = 3 })
    t.eq(code, 1)
    t.ok(said:find "killed by signal 9.*trials after it are judged by its values", said)
    t.eq(trials.run(folder, text, {}, { jobs = 3 }), 0)
    t.eq(outcome(folder), wanted)
  end)
end)

t.test("a trial that waits for one on another device does not block a worker", function()
  in_folder(function(folder)
    local apart = core.sys.executable():gsub("[^/]*$", "") .. "tests/apart.so"
    local text = crossing:gsub("grid = ", ([[zip = { device = { "cpu", "%s", "cpu" },
      quality = { 1, 2, 3 } }, grid0 = ]]):format(apart)):gsub("grid0 = {[^}]*} },", "")
    t.eq(trials.run(folder, text), 0)
    t.eq(status(folder), "done pruned done")
  end)
end)

t.test("a worker whose coordinator has died begins no trial", function()
  in_folder(function(folder)
    local path = folder .. "/x.lua"
    t.write(path, (script:gsub("EXTRA", "")))
    local exp = experiment.load(path)
    local first = plan.trials(exp, { "steps=1" })[1]
    core.sys.mkdir(folder .. "/results/runs/one")
    t.write(folder .. "/in", wire.line("trial", wire.pack(first.config), worker.check(exp),
      "runs/one", 1, 0.0))
    t.eq({ os.execute(("'%s' worker '%s' --dir '%s/results' <'%s/in' 3>'%s/out'"):format(
      core.sys.executable(), path, folder, folder, folder)) }, { true, "exit", 0 })
    t.eq(core.sys.read_file(folder .. "/out"), "")
    t.eq({ journal.read(folder .. "/results/runs/one/events-1.jnl", 0) }, { {}, 0 })
  end)
end)

t.test("a trial has its budget of time, over all its attempts", function()
  in_folder(function(folder)
    local words = { "pause=0.03", "quality=1", "steps=200" }
    local code, said = run(folder, 'budget = { trial = "1s" },', words)
    t.eq(code, 1)
    t.ok(said:find "quality=1 failed: budget: the trial used its 1 seconds", said)
    t.eq(status(folder), "budget")
  end)
end)

t.test("the trials of a command share a budget; the next command has a new one", function()
  in_folder(function(folder)
    local words = { "pause=0.01", "quality=1,2,3" }
    local code, said = run(folder, 'budget = { total = "0.6s" },', words)
    t.eq(code, 3)
    t.ok(said:find "the trials used their 0.6 seconds; the same command continues", said)
    t.ok(status(folder):find "interrupted" or status(folder):find "queued")
    for i = 1, 99 do -- as many, and as long, as a busy machine needs
      if code == 3 then
        code = run(folder, ('budget = { total = "%.1fs" },'):format(0.6 * i), words)
      end
    end
    t.eq({ code, status(folder) }, { 0, "done done done" })
  end)
end)

t.test("memory is bounded", function()
  in_folder(function(folder)
    local code, said = run(folder, 'budget = { memory = "1M" },',
      { "quality=1,2", "take=1000000", "steps=2" })
    t.eq(code, 1)
    t.ok(said:find "budget: %d+ MB of memory used at step 1; the limit is 1", said)
    t.eq(status(folder), "budget budget")
  end)
end)

t.test("a trial that exceeds its memory does not reduce the memory of the next one", function()
  in_folder(function(folder)
    local text = script:gsub("EXTRA", 'budget = { memory = "1M" },'):gsub("c.take > 0",
      "c.quality == 2 and c.take > 0")
    local words = { "quality=1,2,3", "take=1000000", "steps=2" }
    for _ = 1, 2 do
      t.eq(trials.run(folder, text, words), 1)
      t.eq(status(folder), "done budget done")
    end
  end)
end)

t.test("a trial that takes too long is stopped, and the others continue", function()
  in_folder(function(folder)
    local slow = script:gsub("tl.sys.sleep%(c.pause%)",
      "if c.quality == 2 then while true do end end"):gsub("EXTRA", "")
    local code, said = trials.run(folder, slow, { "quality=1,2,3" }, { timeout = 2.5 })
    t.eq(code, 1)
    t.ok(said:find "quality=2 failed: took longer than 2.5 seconds", said)
    t.eq(status(folder), "done timeout done")
    slow = slow:gsub("c.quality == 2", "c.quality > 3")
    code, said = trials.run(folder, slow, { "quality=4,5" }, { timeout = 0.3 })
    t.eq(code, 1)
    t.ok(said:find "quality=5 failed: took longer than 0.3 seconds", said)
  end)
end)

t.test("with fail_fast the first failure stops the others, and is the exit code", function()
  in_folder(function(folder)
    local text = script:gsub("EXTRA", ""):gsub("tl.sys.sleep%(c.pause%)",
      'if c.quality == 2 then error "broken" end tl.sys.sleep(0.02)')
    local code, said = trials.run(folder, text, {}, { fail_fast = true, jobs = 2 })
    t.eq(code, 1)
    t.ok(said:find "quality=2 failed: .*broken", said)
    local list = status(folder)
    t.ok(list:find "^interrupted failed queued queued queued queued"
      or list:find "^done failed", list)
  end)
end)

t.done()
