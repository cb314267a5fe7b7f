-- runs/worker.lua: runs the trials that the coordinator sends, one at a time, and writes their
-- results to their journals.
--
-- It reads (lines of wire.lua)                         and writes
--   artifact KIND STEP PATH BYTES SHA256                 step STEP TOTAL TEXT   begin WHAT BYTES
--   trial CONFIG CHECK PATH ATTEMPT SECONDS DATA         say TEXT  note TEXT    part BYTES
--   go, prune   the answer to rung                       clear   read KEY ...
--   leave       the group of ranks, and end              warn TEXT
--   check CONFIG   see option_check.lua                  checking   checked WHY LATE
--                                                        rung STEP   asks whether to continue
--                                                        code SHA256   of the code it runs
--                                                        diverged TEXT   a value is not finite
--                                                        unfit CODE WHY   cannot run trials
--                                                        ended STATUS CODE WHY ENDED
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local cut = require("toeplab.base.characters").cut
local devices = require "toeplab.trials.devices"
local experiment = require "toeplab.trials.experiment"
local identity = require "toeplab.trials.identity"
local journal = require "toeplab.store.journal"
local launch = require "toeplab.runs.launch"
local option_check = require "toeplab.runs.option_check"
local provenance = require "toeplab.trials.provenance"
local rows_of_keys = require "toeplab.trials.rows"
local secrets = require "toeplab.base.secrets"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local team_trial = require "toeplab.runs.team_trial"
local trial = require "toeplab.trials.trial"
local trial_rows = require "toeplab.runs.trial_rows"
local wire = require "toeplab.base.wire"

local worker = {}

local LONGEST = 10000 -- bytes of a stored error message

local function send(...) core.sys.tell(wire.line(...)) end

-- ---- Progress ----------------------------------------------------------------------------------

-- Implements the methods of Progress (progress.lua) by messages that the coordinator displays.
local Remote = {}
Remote.__index = Remote

local function text(format, ...)
  return select("#", ...) > 0 and format:format(...) or format
end

for _, how in ipairs { "say", "note", "warn" } do
  Remote[how] = function(_, ...) send(how, text(...)) end
end

function Remote:clear() send("clear") end

function Remote:begin(what, total, unit) send("begin", what, total, unit) end

-- Limits messages to ten per second; a trial may log a thousand steps in that time.
local function is_due(self)
  local now = core.sys.clock()
  if now - (self.sent_at or 0) < 0.1 then return false end
  self.sent_at = now
  return true
end

function Remote:part(done)
  if is_due(self) then send("part", done) end
end

function Remote:update(step, total, values)
  if is_due(self) or step == total then send("step", step, total, values or "") end
end

-- ---- One trial --------------------------------------------------------------------------------

-- Returns the exit code of a failure that ends the whole run; nil if other trials continue. A
-- damaged file ends the run only if the trial was storing results; otherwise it may be a file that
-- the script reads.
local function fatal_code(why, storing)
  local signals = { [errors.INTERRUPT] = true, [errors.TERMINATE] = true, [errors.HANGUP] = true }
  if errors.is(why) and signals[why.code] then return why.code end
  local problem = errors.storage_problem(why)
  if problem == "full" or problem and storing then return errors.STORAGE end
end

-- Waits until all ranks have ended the trial. Returns ok and why, or false and the error that a
-- rank is lost.
local function end_together(self, ok, why)
  local missing = self.world and team_trial.close(self.world, ok)
  if not missing then return ok, why end
  self.lost = true
  return false, errors.new(errors.FAILED, "rank %d did not end the trial%s", missing,
    ok and "" or (", which had ended here: %s"):format(errors.text(why)))
end

-- Returns a function like pcall for the trial of a handle, inside which a signal may raise
-- anywhere.
local function protected(handle, handler)
  return function(fn)
    core.sys.on_signal(function() handle:check_signals(true) end)
    local ok, why = xpcall(function()
      fn()
      core.sys.on_signal(nil)
    end, function(e)
      core.sys.on_signal(nil)
      return handler(e)
    end)
    core.sys.on_signal(nil) -- without memory, Lua calls no handler
    return ok, why
  end
end

-- Returns the keys that a trial did not read, as words; nil if there are none.
local function unread(exp, t, reads)
  local list = {}
  rows_of_keys.add_reads(exp.rows, reads)
  for _, key in ipairs(sorted_keys(t.config)) do
    list[#list + 1] = not reads[key] and not exp.always[key] and key ~= "seed" and key or nil
  end
  return list[1] and table.concat(list, " ")
end

-- Runs a trial. Returns whether it is done, why not, its handle, and unread(...).
local function call(self, t, rows)
  local c, resumes = config.new(t.config), #rows:checkpoints() > 0
  local handle = trial.new {
    rows = rows, folder = self.folder, path = t.path, seed = c.seed, progress = self.progress,
    checkpoint = self.checkpoint, guard = self.exp.guard, prune = self.exp.prune,
    memory = self.exp.budget and self.exp.budget.memory,
    hear = function(seconds) return self:hear(seconds) end,
    ask = function(step) send("rung", step) end,
  }
  if self.world then
    self.world:text(0, wire.pack { config = t.config, data = t.data, path = t.path,
      folder = self.folder })
  end
  local ok, why = team_trial.run(self.exp, self.world, handle, t, c,
    protected(handle, self.exp:handler()))
  if handle.why_ended == "pruned" then ok = true end
  local stopped = handle:stopped() -- counts even if the script caught it or raised another error
  if stopped and (ok or not errors.storage_problem(why)) then ok, why = false, stopped end
  ok, why = end_together(self, ok, why)
  local reads = {}
  -- A resumed trial may not read the keys again that it read before its checkpoint.
  for key in pairs(resumes and t.config or {}) do reads[key] = true end
  config.add_reads(c, reads)
  send("read", table.unpack(sorted_keys(reads)))
  return ok, why, handle, unread(self.exp, t, reads)
end

local function perform(self, t, attempt, seconds)
  local path, log = self.folder .. "/" .. journal.path(t.path, attempt),
    self.folder .. "/" .. t.path .. "/log.txt"
  local coordinated
  local begun, writer = pcall(function()
    local new = journal.writer(path)
    -- If the coordinator has died, another one may already have started this trial in another
    -- process, because the journal was not locked yet.
    coordinated = self:take(0)
    if coordinated then new:add { { "code", self.code, core.sys.now() } } end
    return new
  end)
  if not begun then send("ended", "interrupted", errors.STORAGE, errors.text(writer)) end
  if not begun or not coordinated then return end
  send("code", self.code)
  core.sys.print_to(log)
  local rows = trial_rows.new(writer, self.artifacts, seconds, function(why)
    send("diverged", why)
  end)
  self.artifacts = {}
  local ok, problem, handle, unread_keys = call(self, t, rows)
  -- Whether it ended because it could not store results. The handler has added the script's line.
  local storing = not ok and handle.unstored ~= nil
    and errors.text(problem):find(errors.text(handle.unstored), 1, true) ~= nil
  if ok and writer.broken then ok, problem, storing = false, writer.broken, true end
  local exit = not ok and (self.lost and errors.FAILED or fatal_code(problem, storing)) or nil
  local status = ok and "done" or exit and "interrupted" or "failed"
  local why = not ok and secrets.text(tostring(problem)) or nil
  if why and #why > LONGEST then
    why = ("%s... (%d bytes)"):format(cut(why, LONGEST), #why)
  end
  local ended = (ok or status == "failed") and handle.why_ended or nil
  local used = seconds + core.sys.clock() - rows.began
  local lines = { { "end", status, why, ended, used, core.sys.now(), n = 6 } }
  -- A pruned trial never resumes from its checkpoint, so its step is the last one that it made.
  if ended == "pruned" then table.insert(lines, 1, { "step", handle.step, used }) end
  -- A later run that finds the trial done warns of these keys (summary.lua).
  if ok and unread_keys then
    table.insert(lines, 1, { "event", handle.step, "unread", unread_keys, core.sys.now() })
  end
  -- The trial is done only if this record is written; the disk may be full.
  local written, failure = pcall(writer.add, writer, lines, true)
  if ok and not written then
    status, exit, why, ended = "interrupted", errors.STORAGE, tostring(failure), nil
  end
  writer:close()
  io.stdout:flush()
  if core.sys.size(log) == 0 then core.sys.remove(log) end
  send("ended", status, exit, why, ended)
end

-- Returns a string that coordinator and worker compare: if the code of the script or of a file that
-- it loads, or TL_NUMERICS, differs, the results would not belong to the trial's id.
function worker.check(exp)
  return ("%s %d"):format(identity.script(exp), core.numerics)
end

-- Returns a function that builds the command line of a worker with `threads` threads for a device.
-- run: of the coordinator; path: of the script.
function worker.words(run, path, threads)
  return function(device)
    local words = { core.sys.executable(), "--threads", tostring(threads), "worker",
      "--dir=" .. run.folder, "--device=" .. device, run.digest and "--command=" .. run.digest }
    for _, name in ipairs { "steps", "seconds" } do
      local value = run.checkpoint[name]
      words[#words + 1] = value and ("--checkpoint-%s=%.17g"):format(name, value)
    end
    return table.move({ "--", path }, 1, 2, #words + 1, words)
  end
end

-- ---- The process ------------------------------------------------------------------------------

-- Reads the lines that the coordinator has sent; waits up to `seconds`. Returns false if the
-- coordinator has died.
function worker:take(seconds)
  local heard = core.sys.hear(seconds)
  if not heard then return false end
  for _, line in ipairs(self.read(heard)) do self.lines[#self.lines + 1] = line end
  return true
end

-- Returns the next order to a running trial: "go" or "prune" as the answer to "rung", "gone" if the
-- coordinator has died, nil if nothing arrived within `seconds`.
function worker:hear(seconds)
  if not self:take(seconds) then return "gone" end
  local line = table.remove(self.lines, 1)
  return line and line[1]
end

-- Reports to the coordinator that this process cannot run trials, and exits. A rank exits without
-- leaving its group, which would wait for ranks that may never come.
local function refuse_trials(e)
  send("unfit", errors.is(e) and e.code or errors.FAILED, errors.text(e))
  if not launch.ours() then error(e, 0) end
  io.stderr:write(errors.text(e), "\n")
  os.exit(1, false)
end

-- Returns a worker of the script at path that has joined the other ranks, if there are any.
local function prepare(path, o, remote, say)
  local exp = experiment.load(path, { print = say })
  return setmetatable({ exp = exp, check = worker.check(exp), folder = o.dir,
    code = provenance.code_hash(o.device), artifacts = {}, lines = {}, progress = remote,
    read = wire.reader(), checkpoint = { steps = o.steps, seconds = o.seconds },
    world = launch.ours() and team_trial.gather(exp, path, o.device, o.command) or nil },
    { __index = worker })
end

-- Handlers of the lines that the coordinator sends between trials.
local orders = {}

function orders.artifact(self, kind, step, path, bytes, sha256)
  table.insert(self.artifacts, { kind = kind, step = step, path = path, bytes = bytes,
    sha256 = sha256 })
end

function orders.check(self, config_text)
  if not self.check_options then
    send "checking"
    self.check_options = option_check.checker(self.exp)
  end
  send("checked", self.check_options(wire.unpack(config_text)))
end

function orders.leave(self) self.leaves = true end

function orders.trial(self, config_text, check, path, attempt, seconds, data)
  if check ~= self.check then
    refuse_trials(errors.new(errors.FAILED, "%s or code that it loads has changed during the run",
      self.exp.file))
  end
  perform(self, { config = wire.unpack(config_text), path = path,
    data = data and wire.unpack(data) or {} }, attempt, seconds)
  -- Returns the memory of the trial's tensors to the system, because other processes may share the
  -- GPU while this one waits. Not if a rank is lost: the GPU may wait for it.
  collectgarbage()
  if not self.lost then core.memory_trim() end
end

-- Runs trials of the experiment in the script at path until the coordinator closes the pipe.
-- options: dir, steps and seconds between checkpoints, device.
function worker.main(path, options)
  core.sys.end_with_parent()
  core.sys.catch_signals()
  devices.use(options.device)
  local remote = setmetatable({}, Remote)
  io.stdout:setvbuf "line" -- so that a kill loses no lines
  local function say(...) -- the script's print: to the user, like t:say, and to the trial's log
    local words = table.pack(...)
    for i = 1, words.n do words[i] = tostring(words[i]) end
    local text = table.concat(words, "\t")
    remote:say("%s", text)
    io.stdout:write(text, "\n")
  end
  local ready, self = pcall(prepare, path, options, remote, say)
  if not ready then refuse_trials(self) end
  while self:take(60) do
    while #self.lines > 0 do
      local line = table.remove(self.lines, 1)
      local act = orders[line[1]]
      if act then act(self, table.unpack(line, 2, line.n)) end
    end
    if errors.signal() or self.lost or self.leaves then break end
  end
  if self.lost then os.exit(1, false) end -- leaving the group would wait for the lost rank
  if self.world then
    self.world:text(0, "") -- ends the other ranks
    self.world:close()
  end
  return errors.DONE
end

return worker
