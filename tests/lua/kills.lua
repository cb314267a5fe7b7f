-- kills.lua: kills a sweep again and again, on the disk that is to be trusted, and compares
-- what is left with the sweep that nothing disturbed.
--
-- The sweep is a small one of its own. It notes beside the store, in files of its own, each metric
-- that t:log has returned from: those must all be in the store at the end. Its trials take a moment
-- each, so that kills come as dense as can be; or some seconds, so that its time can be compared
-- with that of the undisturbed one. They sleep most of it: other work on the machine hardly counts.
local core = require "toeplab.core"
local records = require "toeplab.store.records"
local errors = require "toeplab.base.errors"

local kills = {}

local STEP, SAVE = 0.02, 0.5 -- seconds of a step, and between checkpoints, where trials take some

local script = [[
local tl = require "toeplab"
return tl.experiment "torture" {
  fixed = { steps = 30, pause = 0.004, acknowledged = "" },
  grid = { rate = { 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8 } },
  seeds = 3,
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
      t:log { loss = loss, state = step % 10 == 0 and x or nil }
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
  if not ok then errors.raise(errors.STORAGE, "%s", why) end
end

local function start(o, name)
  local folder = o.folder
  local command = { core.sys.executable(), "--threads", "1", "run", folder .. "/torture.lua",
    "-q", "-j", tostring(o.jobs), "-C", folder .. "/" .. name,
    "--checkpoint-steps", tostring(o.every), "steps=" .. o.steps, "pause=" .. o.pause,
    "acknowledged=" .. folder .. "/acknowledged" }
  local process, why = core.sys.spawn(command, folder .. "/" .. name .. ".log")
  if not process then errors.raise(errors.FAILED, "%s", why) end
  return process
end

local function log_of(folder, name)
  return core.sys.read_file(folder .. "/" .. name .. ".log") or ""
end

-- All that a sweep left: its metrics, texts, tensors and last checkpoints, as lines.
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
  add([[SELECT trial, kind, step, sha256 FROM v_artifacts WHERE kind GLOB 'tensor:*'
    ORDER BY trial, kind, step]], "tensor %s %s %d %s", "trial", "kind", "step", "sha256")
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

-- The process of a running trial, as the store knows it, or nil. The store may be of an earlier
-- moment, and the number another process's by now.
local function some_worker(o, name)
  local ok, pids = pcall(function()
    local store <close> = records.open(o.folder .. "/" .. name, "r")
    return store:rows "SELECT pid FROM trials WHERE status = 'running'"
  end)
  if not ok or #pids == 0 then return nil end
  local pid = pids[1 + o.stream:below(#pids)].pid
  local words = core.sys.read_file(("/proc/%d/cmdline"):format(pid))
  return words and words:find(o.folder, 1, true) and pid or nil
end

-- Kills the coordinator of the sweep name, a worker, or first the one and then the other. Returns
-- how many, and whether the coordinator is among them.
local function strike(o, name, process)
  local whom, killed = o.stream:below(3), 0
  if whom > 0 then
    local pid = some_worker(o, name)
    if pid and core.sys.kill(pid) then killed = 1 end
    if whom == 1 and killed == 1 then return 1, false end
    core.sys.sleep(0.1 * o.stream:unit())
  end
  process:kill()
  return killed + 1, true
end

-- Waits until the moment of the clock, or forever; returns the exit code of a process that has
-- ended before, or the negative number of the signal that it died of.
local function wait(process, moment)
  local code, signal
  while not code and not signal and (not moment or core.sys.clock() < moment) do
    code, signal = process:wait(not moment)
    core.sys.sleep(code and 0 or 0.005)
  end
  return code or signal and -signal
end

-- Runs the sweep name to its end, again after each end by a kill; gap() says in how many seconds
-- the next one comes, nil: no more do. Trials whose workers are killed twice fail and are repeated;
-- one that fails though nothing was killed since the start is a finding.
local function finish(o, name, gap, each)
  local began, process, struck = core.sys.clock(), start(o, name), false
  while true do
    local seconds = gap and gap()
    local code, gone = wait(process, seconds and core.sys.clock() + seconds), nil
    if code == errors.DONE then return core.sys.clock() - began end
    if code and (code ~= errors.FAILED or not struck) then
      errors.raise(errors.CHECK, "the sweep ended with exit code %s: %s", tostring(code),
        log_of(o.folder, name))
    end
    if not code then
      local killed
      killed, gone = strike(o, name, process)
      struck = true
      each(killed)
    end
    if code or gone then process, struck = start(o, name), false end
  end
end

-- The table that the same command prints once all is done.
local function table_of(o, name)
  core.sys.remove(("%s/%s.log"):format(o.folder, name))
  finish(o, name)
  return log_of(o.folder, name)
end

-- How long it is until the next kill: with seconds for a trial so that count kills, which are
-- 4/3 of the strikes, come at random moments of four fifths of alone, the sweep's own time.
local function gaps(o, told, seconds, count)
  local mean = 0.8 * told.alone / (count * 3 / 4)
  return function()
    if told.kills >= count then return nil end
    return seconds and -mean * math.log(1 - o.stream:unit()) or 0.05 + 0.5 * o.stream:unit()
  end
end

local function steps_of(seconds)
  if not seconds then return 30, 0.004, 7 end
  local steps = math.max(1, seconds // STEP)
  return math.tointeger(steps), seconds / steps, math.tointeger(SAVE // STEP)
end

-- Kills a scratch sweep below folder until count processes were killed in all; as often as one
-- comes to its end, a new one is begun. o: jobs (workers), seed (of the moments), seconds (of a
-- trial; nil: a moment), each (called with the number of kills after every one). Returns {kills=,
-- sweeps=, acknowledged=, lost=, different=, alone=, spent=}: the metrics that were acknowledged
-- and those of them that are not there, sweeps that differ from the undisturbed one in their rows
-- or the text of their table, its seconds, and those of all others.
function kills.run(folder, count, options)
  local o = { folder = folder, jobs = options.jobs, stream = core.stream(options.seed, "torture") }
  local told = { kills = 0, sweeps = 0, acknowledged = 0, lost = 0, different = 0, spent = 0.0 }
  o.steps, o.pause, o.every = steps_of(options.seconds)
  assert(core.sys.mkdir(folder .. "/acknowledged"))
  write(folder .. "/torture.lua", script)
  told.alone = finish(o, "undisturbed")
  local wanted = result(folder, "undisturbed") .. table_of(o, "undisturbed")
  while told.kills < count do
    for _, file in ipairs(core.sys.list(folder .. "/acknowledged")) do
      core.sys.remove(folder .. "/acknowledged/" .. file)
    end
    local name = "killed-" .. told.sweeps + 1
    local spent = finish(o, name, gaps(o, told, options.seconds, count), function(killed)
      told.kills = told.kills + killed
      options.each(told.kills)
    end)
    local missing, all = lost(folder, name)
    told.sweeps, told.acknowledged = told.sweeps + 1, told.acknowledged + all
    told.lost, told.spent = told.lost + missing, told.spent + spent
    local left = result(folder, name) .. table_of(o, name)
    if left ~= wanted then told.different = told.different + 1 end
  end
  return told
end

return kills
