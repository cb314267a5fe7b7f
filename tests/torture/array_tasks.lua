-- array_tasks.lua: simulates the tasks of an array job against one store: processes claim trials,
-- write their journals and die now and then, while the store takes over what they have written.
--   toeplab lua tests/torture/array_tasks.lua [TRIALS METRICS]
-- Checks that each trial is done once with all its rows, and prints the time of a takeover of all.
local claims = require "toeplab.store.claims"
local core = require "toeplab.core"
local harness = require "harness"
local journal = require "toeplab.store.journal"
local json = require "toeplab.base.json"
local records = require "toeplab.store.records"
local sweeps = require "toeplab.store.sweeps"
local takeover = require "toeplab.store.takeover"

local TRIALS, METRICS = tonumber(arg[1] or 1000) or 0, tonumber(arg[2] or 20)
local PROCESSES, PART = 8, 10 -- rows of a record
local PROVENANCE = json.encode { label = "x", host = "n", command = "toeplab run x.lua" }

local function id_of(i) return core.sha256("trial " .. i) end

-- ---- The tasks ---------------------------------------------------------------------------------

-- Writes the journal of an attempt; at: the rows after which the task dies, in the middle of one.
local function write_trial(root, id, attempt, seed, at)
  local path = "runs/" .. claims.short(id)
  core.sys.mkdir(root .. "/" .. path)
  local writer = journal.writer(root .. "/" .. journal.path(path, attempt))
  for from = 1, METRICS, PART do
    local lines = {}
    for step = from, math.min(METRICS, from + PART - 1) do
      lines[#lines + 1] = { "metric", step, "loss", seed + 1 / step, n = 4 }
    end
    if at and from > at then
      writer.file:write(journal.record(lines):sub(1, -10)) -- torn
      writer:close()
      return
    end
    writer:add(lines)
  end
  writer:add({ { "end", "done", nil, nil, 1.0, n = 5 } }, true)
  writer:close()
  claims.finish(root, id, attempt, "done", nil, nil, core.sys.now())
end

-- Waits until all processes have ended a round: then every attempt that has no end has died.
local function wait_for_all(root, round, number)
  core.sys.write_file(("%s/round-%d-%d"):format(root, round, number), "")
  for other = 0, PROCESSES - 1 do
    while not core.sys.exists(("%s/round-%d-%d"):format(root, round, other)) do
      core.sys.sleep(0.01)
    end
  end
end

-- Process `number` claims any trial that no other has, and those whose last attempt has died.
local function work(root, number)
  for round = 1, 4 do
    local list = claims.list(root)
    for k = 0, TRIALS - 1 do
      local i = (k + number * TRIALS // PROCESSES) % TRIALS + 1
      local id = id_of(i)
      local one = list[claims.short(id)]
      local dead = one and not one.ends[one.attempt] and one.attempt < round
      if not one and round == 1 or dead then
        local attempt = one and one.attempt + 1 or 1
        local by = { job = "1", task = number, restarts = 0, host = "n", pid = 2,
          started = core.sys.now(), code = "c", provenance = PROVENANCE }
        if claims.take(root, id, attempt, by) then
          local dies = attempt == 1 and i % 7 == 0 and METRICS // 2
          write_trial(root, id, attempt, i, dies or nil)
        end
      end
    end
    wait_for_all(root, round, number)
  end
end

if arg[1] == "task" then
  TRIALS, METRICS = tonumber(arg[4]), tonumber(arg[5])
  work(arg[2], tonumber(arg[3]))
  os.exit(true)
end

-- ---- The store ---------------------------------------------------------------------------------

local function enlist(store)
  local trials = {}
  for i = 1, TRIALS do
    local config = { seed = i }
    trials[i] = { id = id_of(i), experiment = "x", config = config, json = json.encode(config),
      seed = i, code_hash = "c", data_hash = "", label = "seed=" .. i }
  end
  local sweep = store:sweep { experiment = "x", script = "x.lua", source = "", sha256 = "s",
    command = "toeplab run x.lua", scale = "", plan = "{}" }
  store:enlist(sweep, sweeps.rows_of(trials))
end

local function take_over(root)
  local store <close> = records.open(root, "w")
  local began, cpu = core.sys.clock(), os.clock()
  takeover.run(store, function() return true end, error)
  return core.sys.clock() - began, os.clock() - cpu
end

local function number(store, sql) return store:rows(sql)[1].n end

local function check(root)
  local store <close> = records.open(root, "r")
  harness.eq(number(store, "SELECT count(*) AS n FROM v_trials WHERE status = 'done'"), TRIALS)
  harness.eq(number(store, "SELECT count(*) AS n FROM v_metrics"), TRIALS * METRICS)
  harness.eq(number(store, [[SELECT count(*) AS n FROM v_metrics m JOIN v_trials t ON t.id = m.trial
    WHERE m.value <> t.seed + 1.0 / m.step]]), 0)
  harness.eq(number(store, "SELECT count(*) AS n FROM v_trials WHERE attempt = 2"), TRIALS // 7)
end

harness.test(("%d tasks of %d rows lose none"):format(TRIALS, METRICS), function()
  harness.in_folder(function(root)
    do
      local store <close> = records.open(root, "w")
      enlist(store)
    end
    claims.make(root)
    local script, processes = arg[0], {}
    for i = 1, PROCESSES do
      processes[i] = core.sys.spawn({ core.sys.executable(), "lua", script, "task", root,
        tostring(i - 1), tostring(TRIALS), tostring(METRICS) }, root .. "/log")
    end
    local some, some_cpu = take_over(root) -- while they write
    for _, p in ipairs(processes) do harness.eq(p:wait(true), 0) end
    local all, all_cpu = take_over(root)
    check(root)
    take_over(root)
    check(root)
    print(("%d trials, %d rows: taken over in %.1f s (%.1f s of the processor)"):format(TRIALS,
      TRIALS * METRICS, some + all, some_cpu + all_cpu))
  end)
end)

arg[1] = nil -- the harness takes it for a pattern
harness.done()
