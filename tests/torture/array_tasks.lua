-- array_tasks.lua: simulates the tasks of an array job in one results folder: processes begin
-- trials as runs do, write their journals, copy them into the store, and are killed now and then.
--   toeplab lua tests/torture/array_tasks.lua [TRIALS METRICS]
-- Checks that each trial is done once with all its rows, and prints the time of all.
local core = require "toeplab.core"
local harness = require "harness"
local journal = require "toeplab.store.journal"
local json = require "toeplab.base.json"
local rebuild = require "toeplab.store.rebuild"
local records = require "toeplab.store.records"
local sweeps = require "toeplab.store.sweeps"

local TRIALS, METRICS = tonumber(arg[1] or 1000) or 0, tonumber(arg[2] or 20)
local PROCESSES, PART = 8, 10 -- rows of a record

local function trial(i)
  local config, id = { seed = i }, core.sha256("trial " .. i)
  return { id = id, path = "runs/" .. id:sub(1, 12), experiment = "x", config = config, data = {},
    json = json.encode(config), seed = i, code_hash = "c", data_hash = "", label = "seed=" .. i,
    provenance = { host = core.sys.hostname(), command = "toeplab run x.lua" } }
end

-- ---- The tasks ---------------------------------------------------------------------------------

-- Writes the journal of the attempt that has begun; at: the rows after which this process is
-- killed, in the middle of one.
local function write_trial(root, t, at)
  local writer = journal.writer(root .. "/" .. journal.path(t.path, t.attempt))
  for from = 1, METRICS, PART do
    local lines = {}
    for step = from, math.min(METRICS, from + PART - 1) do
      lines[#lines + 1] = { "metric", step, "loss", t.seed + 1 / step, n = 4 }
    end
    if at and from > at then
      writer.file:write(journal.record(lines):sub(1, -10)) -- torn
      writer.file:flush()
      core.sys.kill(core.sys.getpid())
    end
    writer:add(lines)
  end
  writer:add({ { "end", "done", nil, nil, 1.0, n = 5 } }, true)
  writer:close()
end

-- Process `number` runs any trial that no other has, also those whose last attempt has died, until
-- all are done.
local function work(root, number)
  local store <close> = records.open(root, "w")
  local left
  repeat
    left = 0
    for k = 0, TRIALS - 1 do
      local t = trial((k + number * TRIALS // PROCESSES) % TRIALS + 1)
      local _, row = store:status(t.id)
      if row.status ~= "done" then
        left, t.attempt = left + 1, row.attempt
        if not row.busy and store:begin(t, core.sys.getpid()) then
          write_trial(root, t, t.attempt == 1 and t.seed % 7 == 0 and METRICS // 2 or nil)
          store:take(t)
          store:end_journal(t)
        end
      end
    end
  until left == 0
end

if arg[1] == "task" then
  TRIALS, METRICS = tonumber(arg[4]), tonumber(arg[5])
  work(arg[2], tonumber(arg[3]))
  os.exit(true, true)
end

-- ---- The store ---------------------------------------------------------------------------------

local function enlist(root)
  local store <close>, trials = records.open(root, "w"), {}
  for i = 1, TRIALS do trials[i] = trial(i) end
  local sweep = store:sweep { experiment = "x", script = "x.lua", source = "", sha256 = "s",
    command = "toeplab run x.lua", scale = "", plan = "{}" }
  store:enlist(sweep, sweeps.rows_of(trials))
end

local function number(store, sql) return store:rows(sql)[1].n end

-- Runs the tasks, and starts one that was killed again, as Slurm does. Returns how many were.
local function run_all(root, script)
  local processes, killed = {}, 0
  local function start(i)
    processes[i] = core.sys.spawn({ core.sys.executable(), "lua", script, "task", root,
      tostring(i), tostring(TRIALS), tostring(METRICS) }, root .. "/log")
  end
  for i = 0, PROCESSES - 1 do start(i) end
  while next(processes) do
    for i, process in pairs(processes) do
      local code, signal = process:wait()
      if signal then
        killed = killed + 1
        start(i)
      elseif code then
        harness.eq({ code, code ~= 0 and harness.read(root .. "/log") or "" }, { 0, "" })
        processes[i] = nil
      end
    end
    core.sys.sleep(0.02)
    local store <close> = records.open(root, "r") -- commands read meanwhile
    harness.ok(number(store, "SELECT count(*) AS n FROM v_metrics") <= TRIALS * METRICS)
  end
  return killed
end

local function check(root)
  local store <close> = records.open(root, "r")
  harness.eq(number(store, "SELECT count(*) AS n FROM v_trials WHERE status = 'done'"), TRIALS)
  harness.eq(number(store, "SELECT count(*) AS n FROM v_metrics"), TRIALS * METRICS)
  harness.eq(number(store, [[SELECT count(*) AS n FROM v_metrics m JOIN v_trials t ON t.id = m.trial
    WHERE m.value <> t.seed + 1.0 / m.step]]), 0)
  harness.eq(number(store, "SELECT count(*) AS n FROM v_trials WHERE attempt = 2"), TRIALS // 7)
  harness.eq(number(store, "SELECT max(attempt) AS n FROM v_trials"), TRIALS >= 7 and 2 or 1)
  for _, name in ipairs(core.sys.list(root .. "/at-work")) do -- what killed tasks have left
    harness.eq(journal.in_use(root .. "/at-work/" .. name), false)
  end
end

harness.test(("%d tasks of %d rows lose none"):format(TRIALS, METRICS), function()
  harness.in_folder(function(root)
    enlist(root)
    local began = core.sys.clock()
    harness.eq(run_all(root, arg[0]), TRIALS // 7)
    print(("%d trials, %d rows: stored in %.1f s"):format(TRIALS, TRIALS * METRICS,
      core.sys.clock() - began))
    check(root)
    rebuild.set_aside(root) -- what the files say is the same
    check(root)
  end)
end)

arg[1] = nil -- the harness takes it for a pattern
harness.done()
