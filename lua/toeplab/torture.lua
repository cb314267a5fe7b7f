-- torture.lua: kills a sweep again and again, on the disk that is to be trusted, and compares what
-- is left with the sweep that nothing disturbed.
--
-- The sweep is a small one of its own. It notes beside the store, in files of its own, each metric
-- that t:log has returned from: those must all be in the store at the end.
local core = require "toeplab.core"
local records = require "toeplab.records"
local stop = require "toeplab.stop"

local torture = {}

local script = [[
local tl = require "toeplab"
return tl.experiment "torture" {
  fixed = { steps = 30, pause = 0.004, acknowledged = "" },
  grid = { rate = { 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8 } },
  seeds = 3,
  checkpoint = { steps = 7 },
  trial = function(t, c)
    local x = tl.zeros(256)
    local part = { state = function() return { x = x } end,
      load = function(_, state) x:copy(state.x) end }
    local noise = tl.stream_of "noise"
    local note <close> = assert(io.open(c.acknowledged .. "/" .. c.rate .. "-" .. t.seed, "a"))
    note:setvbuf "no"
    for step in t:steps(c.steps, part, part) do
      x:copy(x * c.rate + noise:normal(tl.zeros(256), 0, 1))
      local loss = (x * x):mean():item()
      t:log { loss = loss }
      note:write(("%d %a\n"):format(step, loss))
      tl.sys.sleep(c.pause)
    end
    t:text("note", "the sum is " .. x:sum():item())
    t:log { final = x:sum():item() }
  end,
  report = { rows = "rate", columns = { "loss", "final" } },
}
]]

local function write(path, text)
  local ok, why = core.sys.write_file(path, text)
  if not ok then stop.raise(stop.STORAGE, "%s", why) end
end

local function start(folder, name, jobs)
  local command = { core.sys.executable(), "--threads", "1", "run", folder .. "/torture.lua",
    "-q", "-j", tostring(jobs), "-C", folder .. "/" .. name,
    "acknowledged=" .. folder .. "/acknowledged" }
  local process, why = core.sys.spawn(command, folder .. "/" .. name .. ".log")
  if not process then stop.raise(stop.FAILED, "%s", why) end
  return process
end

local function log_of(folder, name)
  return core.sys.read_file(folder .. "/" .. name .. ".log") or ""
end

-- All that a sweep left: its metrics, its texts and its last checkpoints, as lines.
local function result(folder, name)
  local store <close> = records.open(folder .. "/" .. name, "r")
  local lines = {}
  local function add(sql, format, ...)
    for _, row in ipairs(store:rows(sql)) do
      local values = {}
      for i, key in ipairs { ... } do values[i] = row[key] end
      lines[#lines + 1] = format:format(table.unpack(values))
    end
  end
  add("SELECT id, status, step FROM v_trials ORDER BY id", "trial %s %s %d", "id", "status", "step")
  add("SELECT trial, name, step, value FROM v_metrics ORDER BY trial, name, step",
    "metric %s %s %d %a", "trial", "name", "step", "value")
  add([[SELECT trial, kind, max(step) AS step, sha256 FROM v_artifacts
    GROUP BY trial, kind ORDER BY trial, kind]],
    "artifact %s %s %d %s", "trial", "kind", "step", "sha256")
  return table.concat(lines, "\n")
end

-- How many of the acknowledged metrics are not in the store as they were, and how many there are.
local function lost(folder, name)
  local store <close> = records.open(folder .. "/" .. name, "r")
  local count, missing, known = 0, 0, {}
  for _, row in ipairs(store:rows [[SELECT json_extract(t.config, '$.rate') AS rate, t.seed,
      m.step, m.value FROM v_metrics m JOIN v_trials t ON t.id = m.trial
      WHERE m.name = 'loss']]) do
    known[("%s-%d %d %a"):format(row.rate, row.seed, row.step, row.value)] = true
  end
  for _, file in ipairs(core.sys.list(folder .. "/acknowledged") or {}) do
    local text = core.sys.read_file(folder .. "/acknowledged/" .. file) or ""
    for line in text:gmatch("([^\n]+)\n") do
      count = count + 1
      if not known[file .. " " .. line] then missing = missing + 1 end
    end
  end
  return missing, count
end

-- The process of a running trial, as the store knows it, or nil.
local function some_worker(folder, name, stream)
  local ok, pids = pcall(function()
    local store <close> = records.open(folder .. "/" .. name, "r")
    return store:rows "SELECT pid FROM trials WHERE status = 'running'"
  end)
  if ok and #pids > 0 then return pids[1 + stream:below(#pids)].pid end
end

-- Starts the sweep name and, after a while, kills it, or one of its workers and then it. Returns
-- the exit code if it ended by itself, and how many were killed.
local function strike(folder, name, jobs, stream)
  local process = start(folder, name, jobs)
  local began, wait = core.sys.clock(), 0.05 + 0.5 * stream:unit()
  while core.sys.clock() - began < wait do
    local code = process:wait()
    if code then return code, false end
    core.sys.sleep(0.01)
  end
  if stream:below(2) == 0 then
    local pid = some_worker(folder, name, stream)
    local killed = pid ~= nil and core.sys.kill(pid)
    core.sys.sleep(0.1 * stream:unit())
    process:kill()
    return nil, killed and 2 or 1
  end
  process:kill()
  return nil, 1
end

local function finish(folder, name, jobs)
  local began = core.sys.clock()
  local process = start(folder, name, jobs)
  local code = process:wait(true)
  if code ~= 0 then
    stop.raise(stop.CHECK, "the sweep ended with exit code %s: %s", tostring(code),
      log_of(folder, name))
  end
  return core.sys.clock() - began
end

-- The table that the same command prints once all is done.
local function table_of(folder, name, jobs)
  core.sys.remove(("%s/%s.log"):format(folder, name))
  finish(folder, name, jobs)
  return log_of(folder, name)
end

-- Kills a scratch sweep below folder until it was killed count times in all; as often as one comes
-- to its end by itself, a new one is begun. jobs: workers; seed: of the moments; each(kills):
-- called after every kill. Returns {kills=, sweeps=, acknowledged=, lost=, different=, alone=,
-- cost=}: the metrics that were acknowledged and those of them that are not there, sweeps that
-- differ from the undisturbed one in their rows or the text of their table, its seconds, and those
-- that a kill lost.
function torture.run(folder, count, jobs, seed, each)
  local stream = core.stream(seed, "torture")
  local told = { kills = 0, sweeps = 0, acknowledged = 0, lost = 0, different = 0 }
  local spent = 0.0
  assert(core.sys.mkdir(folder .. "/acknowledged"))
  write(folder .. "/torture.lua", script)
  local alone = finish(folder, "undisturbed", jobs)
  local wanted = result(folder, "undisturbed") .. table_of(folder, "undisturbed", jobs)
  while told.kills < count do
    for _, file in ipairs(core.sys.list(folder .. "/acknowledged")) do
      core.sys.remove(folder .. "/acknowledged/" .. file)
    end
    local name, began = "killed-" .. told.sweeps + 1, core.sys.clock()
    repeat
      local code, killed = strike(folder, name, jobs, stream)
      told.kills = told.kills + (killed or 0)
      if killed then each(told.kills) end
    until code or told.kills >= count
    finish(folder, name, jobs)
    spent = spent + core.sys.clock() - began
    local missing, all = lost(folder, name)
    told.sweeps, told.acknowledged = told.sweeps + 1, told.acknowledged + all
    told.lost = told.lost + missing
    local left = result(folder, name) .. table_of(folder, name, jobs)
    if left ~= wanted then told.different = told.different + 1 end
  end
  told.alone, told.cost = alone, (spent - told.sweeps * alone) / told.kills
  return told
end

return torture
