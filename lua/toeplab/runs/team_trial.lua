-- runs/team_trial.lua: runs a trial in this process, alone or together with other ranks
-- (docs/ranks.md).
--
-- Rank 0 has the coordinator and its worker, which writes the journal, the checkpoints and the log.
-- The other ranks receive from the worker the script, each trial with its configuration, and after
-- every step whether to continue. They run the same function of the script, and write nothing.
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local devices = require "toeplab.trials.devices"
local errors = require "toeplab.base.errors"
local experiment = require "toeplab.trials.experiment"
local identity = require "toeplab.trials.identity"
local launch = require "toeplab.runs.launch"
local own_code = require "toeplab.trials.own_code"
local provenance = require "toeplab.trials.provenance"
local ranks = require "toeplab.train.ranks"
local recorded = require "toeplab.tasks.recorded"
local streams = require "toeplab.base.streams"
local trial = require "toeplab.trials.trial"
local update = require "toeplab.train.update"
local watch = require "toeplab.base.watch"
local wire = require "toeplab.base.wire"

local team_trial = {}

local ENDED, ACKNOWLEDGED = 1, 2 -- tags of messages
-- How long to wait after an error here for the end of the trial on another rank, which usually
-- fails too.
local PATIENCE_SECONDS = 10

-- ---- Joining ------------------------------------------------------------------------------------

-- Returns the settings that ranks must share, because they decide the bits of the results. command:
-- the result of launch.digest.
local function describe(exp, device, command)
  local base = device:gsub(":%d+$", "")
  return { script = identity.script(exp), code = provenance.code_hash(base), device = base,
    command = command, threads = core.threads(), host = core.sys.hostname() }
end

local shown = { code = "build of Toeplab", threads = "number of threads" }

local function difference(theirs, own)
  for _, name in ipairs { "code", "command", "script", "threads" } do
    if theirs[name] ~= own[name] then
      return ("its %s differs from rank 0 on %s: start all ranks with the same build, script, keys "
        .. "and --threads"):format(shown[name] or name, theirs.host)
    end
  end
end

-- Raises on rank 0 if a rank has a problem, or differs from rank 0; the other ranks then wait until
-- rank 0 ends them. theirs: the description of rank 0.
local function compare(world, theirs, own, problem)
  problem = problem or difference(theirs, own)
  local flags = {}
  for i = 1, world:size() do flags[i] = 0 end
  flags[world:rank() + 1] = problem and 1 or 0
  local all = core.tensor(flags)
  world:sum(all)
  for i, flag in ipairs(all:totable()) do
    if flag > 0 then
      local why = world:text(i - 1, ("rank %d on %s: %s"):format(world:rank(),
        core.sys.hostname(), problem or ""))
      if world:rank() == 0 then errors.raise(errors.FAILED, "%s", why) end
      core.sys.sleep(60)
      os.exit(1, false)
    end
  end
end

-- Joins the other ranks as rank 0, for the experiment exp of the script at path. Returns the group.
function team_trial.gather(exp, path, device, command)
  local world = core.ranks_open()
  local about = describe(exp, device, command)
  about.path = path
  world:text(0, wire.pack(about))
  compare(world, about, about)
  return world
end

-- ---- The trial ----------------------------------------------------------------------------------

-- Calls the trial function of exp with the handle and the configuration c, on all ranks of world
-- (nil: in this process alone).
local function call(exp, world, handle, c)
  -- A key of the experiment with another meaning is a list.
  local count = type(c.micro_batches) ~= "table" and c.micro_batches or 1
  handle.team = world and ranks.team(world, c.sequence_ranks)
  local cut = ranks.with(handle.team, update.with, count, exp.trial, handle, c)
  -- A trial that was stopped during its evaluation resumes after its last step, without updates.
  local made_steps = not handle.first or handle.step > handle.first
  if made_steps and not cut then
    error(("micro_batches = %d: the trial makes no update that splits a batch"):format(count), 0)
  end
  if made_steps and world and not handle.team.passes then
    error("ranks: the trial makes no update, so all ranks would do the same work: run it with "
      .. "ranks=1", 0)
  end
  if world then handle.team:close() end
end

-- Runs trial t = {config=, data=} of exp with its handle and its configuration c, on all ranks of
-- world (nil: in this process alone). protected: a function like pcall, whose results it returns.
function team_trial.run(exp, world, handle, t, c, protected)
  math.randomseed(c.seed)
  watch.progress = handle.progress
  recorded.begin(t.config, t.data)
  collectgarbage() -- so that the peak excludes tensors of an earlier trial
  core.memory_reset_peak()
  local open_modules = own_code.close()
  core.precision(c.precision)
  local ok, why = protected(function()
    devices.expect(c.device)
    streams.with(c.seed, handle.with_backends, handle, call, exp, world, handle, c)
  end)
  core.precision "float32"
  open_modules()
  core.tape_clear()
  return ok, why
end

-- Returns the message of rank `from`; after an error here (failed), nil if none comes in time.
local function wait_for(world, from, tag, failed)
  local began = core.sys.clock()
  repeat
    local word = world:take_word(from, tag)
    if word then return word end
    core.sys.sleep(0.01)
  until failed and core.sys.clock() - began > PATIENCE_SECONDS
end

-- Announces to the other ranks that the trial has ended on rank 0 (ok: without an error), and waits
-- for them. Returns the first rank that does not answer; nil: all have ended.
function team_trial.close(world, ok)
  for rank = 1, world:size() - 1 do world:send_word(rank, ENDED, 1) end
  for rank = 1, world:size() - 1 do
    if not wait_for(world, rank, ACKNOWLEDGED, not ok) then return rank end
  end
end

local function nothing() end

-- Stand in for the rows and the progress of a trial, which only rank 0 has.
local function silent_rows()
  return { artifacts = {}, began = 0, add_metrics = nothing, add_artifact = nothing,
    drop_artifact = nothing, forget_after = nothing, event = nothing, artifact = nothing,
    checkpoints = function(self) return self.artifacts end }
end

local function silent_progress()
  return { say = nothing, note = nothing, warn = nothing, clear = nothing, begin = nothing,
    part = nothing, update = nothing }
end

-- Runs a trial as a rank other than 0: order = {config=, data=, path=, folder=}.
local function follow_trial(world, exp, order)
  local c = config.new(order.config)
  local handle = trial.new { rows = silent_rows(), folder = order.folder, path = order.path,
    seed = c.seed, progress = silent_progress(), checkpoint = {}, guard = exp.guard }
  handle.follows = true
  local ok, why = team_trial.run(exp, world, handle, order, c, pcall)
  -- Rank 0 reports its own error. An error of this rank alone ends all ranks.
  if not wait_for(world, 0, ENDED, not ok) then
    io.stderr:write(("toeplab: rank %d on %s: %s\n"):format(world:rank(), core.sys.hostname(),
      errors.text(why)))
    world:end_all(1)
  end
  world:send_word(0, ACKNOWLEDGED, 1)
end

-- Selects the device of this rank and loads the script at path without output. Each rank of a
-- machine takes its own GPU; srun may show each process only one, which then has the number 0.
local function load(path, device)
  if device ~= "cpu" then
    local gpus = core.look_at_device(device) or 1 -- devices.use raises if there is none
    device = ("%s:%d"):format(device, launch.ours().place % gpus)
  end
  devices.use(device)
  return experiment.load(path, { print = nothing })
end

-- Joins the other ranks as a rank other than 0, and runs the trials that rank 0 sends. words: the
-- command line, which must equal that of rank 0.
function team_trial.follow(words)
  core.sys.catch_signals() -- rank 0 decides when to stop
  local world <close> = core.ranks_open()
  local order = world:text(0, "")
  if order == "" then return errors.DONE end
  local about = wire.unpack(order)
  local ready, exp = pcall(load, about.path, about.device)
  local own = ready and describe(exp, about.device, launch.digest(words)) or nil
  compare(world, about, own, not ready and errors.text(exp) or nil)
  while true do
    order = world:text(0, "")
    if order == "" then return errors.DONE end
    follow_trial(world, exp, wire.unpack(order))
    collectgarbage() -- as rank 0 does in worker.lua
    core.memory_trim()
  end
end

return team_trial
