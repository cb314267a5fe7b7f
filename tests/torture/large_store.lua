-- large_store.lua: measures how long the program takes to answer from a store of 100,000 trials and
-- 10,000,000 metrics.
--   toeplab lua tests/torture/large_store.lua FOLDER [TRIALS]
-- Makes the store in FOLDER unless it exists, asks each question a few times, and fails if the
-- fastest answer takes too much processor time (which other processes do not prolong) or too much
-- memory. FOLDER is kept for the next run.
local core = require "toeplab.core"
local records = require "toeplab.store.records"

local folder, trials = arg[1], tonumber(arg[2] or "100000")
local STEPS, NAMES, TIMES, MOST_MB = 50, { "loss", "val_ppl" }, 5, 200

-- {words of the command line, seconds}; the widest questions may take longer.
local questions = {
  { "ls", 0.1 },
  { "ls sweep3", 0.2 },
  { "ls @last:20", 0.1 },
  { "ls --limit 1000 --csv", 0.2 },
  { "ls status=failed", 1 },
  { "ls 'lr<0.0002' decay=0.99", 1 },
  { "ls 'val_ppl<20.5' --sort val_ppl --columns lr,decay,val_ppl", 2 },
  { "show @best:val_ppl", 2 },
  { "ls --failures sweep3", 2 },
  { "status", 1 },
  { "table sweep3", 0.5 },
  { "table all", 1 },
  { "table all decay=0.99 --csv", 1 },
}

-- Asks one question in this process and prints the time it took.
local function ask()
  local words = table.move(arg, 2, #arg, 1, {})
  local commands = require "toeplab.commands"
  local code = commands.main(words)
  local status = core.sys.read_file "/proc/self/status" or ""
  io.stdout:flush()
  io.stderr:write(("\n%d %s %.3f\n"):format(code, status:match "VmHWM:%s*(%d+)" or 0, os.clock()))
  os.exit(true)
end

-- ---- Making it --------------------------------------------------------------------------------

local counter = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1) "

local provenance = ([[{"build":{"blas":"%s"},"command":"toeplab run x.lua","label":"]])
  :format(("x"):rep(400))

local function make_trials(store)
  store:rows(counter .. [[INSERT INTO sweeps (experiment, script, sha256, source, command)
    SELECT 'sweep' || i, 'x.lua', printf('%064x', i), '', 'toeplab run x.lua' FROM n]], { 10 })
  store:rows(counter .. [[INSERT INTO trials (id, sweep, experiment, config, seed, status, attempt,
      step, started, finished, seconds, host, pid, command, provenance, error)
    SELECT printf('%08x%056x', i * 2654435761 % 4294967296, i),
      i * 10 / ?1 + 1, 'sweep' || (i * 10 / ?1), json_object('batch', 16, 'corpus', 'wikitext-2',
      'decay', json_extract('[0.9,0.99,0.999,"learnable"]', printf('$[%d]', i % 4)), 'dim', 64,
      'layers', 2, 'length', 128, 'lr', 0.0001 * (1 + i % 100), 'seed', i % 3, 'steps', 50),
      i % 3, CASE WHEN i % 50 = 7 THEN 'failed' ELSE 'done' END, 1, 50, 1e9 + i, 1e9 + i + 60, 60.0,
      'node', 1, 'toeplab run x.lua', ?2 || 'decay=' || (i % 4) || ' seed=' || (i % 3) || '"}',
      CASE WHEN i % 50 = 7 THEN 'loss is nan at step ' || i END FROM n]], { trials, provenance })
  store:rows("INSERT INTO members SELECT sweep, row_number() OVER (ORDER BY rowid), id FROM trials")
end

-- The table `last` is filled at once.
local function make_metrics(store)
  for k, name in ipairs(NAMES) do
    store:rows([[WITH RECURSIVE
      s(step) AS (SELECT 1 UNION ALL SELECT step + 1 FROM s WHERE step < ?1)
      INSERT INTO metrics (trial, name, step, value)
      SELECT id, ?2, step, 20.0 * ?3 + (t.rowid % 1000) * 0.01 + 10.0 / step
      FROM (SELECT id, rowid FROM trials ORDER BY id) t CROSS JOIN s]], { STEPS, name, k })
  end
  store:rows("INSERT INTO last SELECT trial, name, step, value FROM metrics WHERE step = ?",
    { STEPS })
end

-- A sweep of all trials: 400 settings with three seeds each, repeated.
local function make_all(store)
  local plan = '{"axes":["decay","lr"],"columns":["loss","val_ppl"],"rows":"decay"}'
  store:rows("UPDATE sweeps SET plan = ?", { plan })
  store:rows([[INSERT INTO sweeps (experiment, script, sha256, source, command, plan)
    VALUES ('all', 'x.lua', 'all', '', 'toeplab run x.lua', ?)]], { plan })
  store:rows "INSERT INTO members SELECT (SELECT max(id) FROM sweeps), rowid, id FROM trials"
end

local function make()
  local began = core.sys.clock()
  local store <close> = records.open(folder, "w")
  store:transaction(function()
    make_trials(store)
    make_metrics(store)
    make_all(store)
  end)
  print(("made %d trials and %d metrics in %.0f s"):format(trials, trials * STEPS * #NAMES,
    core.sys.clock() - began))
end

-- ---- Asking -----------------------------------------------------------------------------------

-- Returns the processor seconds of the fastest answer, its megabytes, and its seconds by the clock.
local function measure(words)
  local best, memory, waited = math.huge, 0, math.huge
  for _ = 1, TIMES do
    local began = core.sys.clock()
    local pipe = io.popen(("exec '%s' lua '%s' --ask %s -C '%s' 2>&1 >/dev/null"):format(
      core.sys.executable(), arg[0], words, folder))
    local text = pipe:read "a"
    pipe:close()
    waited = math.min(waited, core.sys.clock() - began)
    local code, kilobytes, seconds = text:match "\n(%d+) (%d+) (%S+)\n$"
    if code ~= "0" then error(words .. ": " .. text) end
    memory = math.max(memory, tonumber(kilobytes) / 1000)
    best = math.min(best, tonumber(seconds))
  end
  return best, memory, waited
end

-- Whether the store exists, as this version of the file makes it.
local function made()
  if not core.sys.exists(folder .. "/runs.db") then return false end
  local store <close> = records.open(folder, "r")
  return #store:rows "SELECT 1 FROM sweeps WHERE experiment = 'all'" > 0
end

if folder == "--ask" then ask() end
if not made() then
  for _, name in ipairs { "runs.db", "runs.db-wal", "runs.db-shm" } do
    core.sys.remove(folder .. "/" .. name)
  end
  make()
end
local fine = true
for _, question in ipairs(questions) do
  local seconds, memory, waited = measure(question[1])
  local good = seconds <= question[2] and memory <= MOST_MB
  fine = fine and good
  print(("%-6s %-60s %6.3f s (%g), %6.3f by the clock  %3.0f MB"):format(good and "ok" or "not ok",
    question[1], seconds, question[2], waited, memory))
end
os.exit(fine)
