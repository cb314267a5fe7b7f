-- runs/coordinator.lua: assigns the trials of a run to worker processes and copies their journals
-- into the store. Several coordinators may share a results folder: each begins the trials that no
-- other process has begun.
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local estimate = require "toeplab.runs.estimate"
local launch = require "toeplab.runs.launch"
local summary = require "toeplab.runs.summary"
local worker_process = require "toeplab.runs.worker_process"
local prune = require "toeplab.trials.prune"
local tuning = require "toeplab.trials.tuning"
local trial_files = require "toeplab.store.trial_files"
local errors = require "toeplab.base.errors"
local time_limits = require "toeplab.runs.time_limits"
local wire = require "toeplab.base.wire"
local worker = require "toeplab.runs.worker"

local coordinator = {}

local TAKE_SECONDS, DEATHS = 0.2, 2
local HURRY_SECONDS = 2 -- from a second SIGINT until the workers are killed

local Pool = {}
Pool.__index = Pool

-- run: records, folder, progress, trials, exp, worker (a function that returns the command line of
-- a worker), jobs, turns (devices.lua), alert (alert.lua), timeout (seconds, or nil), fail_fast,
-- used (seconds that its trials have already used), whole (whether its trials can be run and
-- stopped only together), follow (an observer of trials, e.g. live/tensorboard.lua, or nil), grace
-- (seconds to save after SIGUSR1: array_task.lua).
function coordinator.new(run)
  local budget = run.exp.budget or {}
  return setmetatable({ run = run, workers = {}, queue = {}, reads = {}, taken = core.sys.clock(),
    check = worker.check(run.exp), deaths = {}, halted = {}, started = 0, total = budget.total,
    limit = budget.trial,
    counts = { done = 0, failed = 0, pruned = 0, stopped = 0, removed = 0 },
    left = estimate.of_run(run.records, run.exp.name, run.jobs) }, Pool)
end

-- ---- Trials -----------------------------------------------------------------------------------

-- Kills the process of worker w, frees its device and removes the worker from the pool.
local function dismiss(self, w)
  w:kill()
  for i, other in ipairs(self.workers) do
    if other == w then
      self.run.turns:give(w.place)
      table.remove(self.workers, i)
      return
    end
  end
end

-- Skips a trial that another process has begun or removed since this run began.
local function skip(self, t, why)
  local run = self.run
  t.passed = true
  if why == "removed" then
    self.counts.removed = self.counts.removed + 1
    return run.progress:note("%s: was removed", t.label)
  end
  if run.whole then
    errors.raise(errors.LOCKED, "%s: another process runs it, but this run needs all its trials: "
      .. "run this command again later", t.label)
  end
  t.taken = true
  run.progress:note("%s: another process has taken it", t.label)
end

-- Starts trial t on worker w: marks it as running, then sends its configuration and artifacts. A
-- trial that another process has taken is skipped.
local function assign(self, w, t)
  local run = self.run
  t.provenance = config.copy(t.provenance)
  t.provenance.device = w.place.about
  t.code_hash = w.code or t.code_hash
  t.provenance.whole = run.whole
  local attempt, seconds, artifacts = run.records:begin(t, w.process:pid())
  if not attempt then return skip(self, t, seconds) end -- the worker waits for the next trial
  trial_files.clean(run.folder, t.path, artifacts)
  local lines = {}
  for i, a in ipairs(artifacts) do
    lines[i] = wire.line("artifact", a.kind, a.step, a.path, a.bytes, a.sha256)
  end
  lines[#lines + 1] = wire.line("trial", wire.pack(t.config), self.check, t.path, attempt,
    seconds, wire.pack(t.data or {}))
  w.trial, w.began, w.seconds, w.step, w.text = t, core.sys.clock(), seconds, nil, nil
  w.process:send(table.concat(lines)) -- if the worker has died, `listen` notices it soon
  w.trial_log = ("%s/%s/log.txt"):format(run.folder, t.path)
  run.progress:began(w, t)
  if run.follow then run.follow:began(run, t) end
end

-- Assigns each idle worker the next trial for its device, and dismisses the worker if there is
-- none. With pruning, trials start strictly in order, because each waits for the values of earlier
-- ones.
local function assign_free(self)
  for _, w in ipairs(table.move(self.workers, 1, #self.workers, 1, {})) do
    if not w.trial and not w.closed and #self.queue > 0 then
      local i = 1
      while not self.pruner and self.queue[i] and self.queue[i].config.device ~= w.device do
        i = i + 1
      end
      if self.queue[i] and self.queue[i].config.device == w.device then
        assign(self, w, table.remove(self.queue, i))
      else
        dismiss(self, w)
      end
    end
  end
end

-- Starts workers for queued trials up to the number of jobs; a trial whose GPUs are all full waits.
local function assign_all(self)
  assign_free(self)
  local open, i, full = 0, 1, {}
  for _, w in ipairs(self.workers) do open = open + (w.closed and 0 or 1) end
  while open < self.run.jobs and self.queue[i] do
    local device = self.queue[i].config.device
    local place = not full[device] and self.run.turns:take(device)
    if place then
      self.started = self.started + 1 -- stays unique when workers have ended
      local w = worker_process.start(self.run, self.started, device, place)
      table.insert(self.workers, w)
      assign(self, w, table.remove(self.queue, i))
      open = open + 1
    else
      full[device], i = true, i + 1
    end
  end
  if #self.queue > 0 and #self.workers == 0 then -- nothing runs, so no device will become free
    local t = self.queue[1]
    errors.usage("%s: device '%s' takes no trial: it has no GPU here", t.label, t.config.device)
  end
end

-- Copies the new records of the worker's journal into the store; some: at most about a megabyte.
-- Raises if the journal cannot be read, because results would otherwise be lost silently.
local function copy_journal(self, w, some)
  local follow = self.run.follow
  local _, damage = self.run.records:take(w.trial, some, follow
    and function(list) follow:read(w.trial, list) end)
  if damage then
    errors.raise(errors.STORAGE, "%s: its journal in %s/%s cannot be read: %s", w.trial.label,
      self.run.folder, w.trial.path, damage)
  end
end

-- Returns how the trial of w ended according to its journal: {status=, error=, ended=}; nil if the
-- journal records no end.
local function journal_end(self, w)
  copy_journal(self, w)
  local row = self.run.records:outcome(w.trial.id)
  if not row then
    errors.raise(errors.LOCKED, "%s: the trial was removed while it ran", w.trial.label)
  end
  return row.status ~= "running" and row or nil
end

-- Ends the run early, and raises fate after all workers have ended: {code=, why=, label= (of the
-- cause; a signal takes the label of the first trial that it stops), lasts= (whether the same
-- command would fail again)}.
local function end_run(self, fate)
  self.fate = self.fate or fate
  self:wind_down "TERM"
end

-- Ends a small sweep as soon as its finished trials show that they do not log the metric by which
-- it chooses.
local function check_metric(self, t)
  local run = self.run
  if not run.exp.searches or self.fate or self.chooses then return end
  local results = run.records:results(t.id)
  self.logged = self.logged or {}
  self.logged[#self.logged + 1] = results
  self.chooses = results[run.exp.searches.metric] ~= nil
  local why = tuning.no_metric(run.exp, self.logged)
  if why then
    end_run(self, { code = errors.FAILED, why = why, label = t.label, lasts = true })
  end
end

-- Records the end of the worker's trial with status "done", "failed" or "interrupted". Returns the
-- final status: a trial that exceeded its time has failed, and a trial is done only if its journal
-- says so.
local function end_trial(self, w, status, why, ended)
  local run, t = self.run, w.trial
  local said = journal_end(self, w)
  if status == "done" and not (said and said.status == "done") then
    errors.raise(errors.STORAGE, "%s: its worker has reported its end, but its journal in %s/%s "
      .. "has no such record", t.label, run.folder, t.path)
  end
  run.records:check()
  if w.late and status ~= "done" then status, why, ended = "failed", w.late, w.late_for end
  if not said or w.late then run.records:finish(t, status, why, ended) end
  run.records:end_journal(t)
  w.trial, t.status = nil, ended == "pruned" and ended or status
  if run.follow then run.follow:ended(t, t.status) end
  run.used = run.used + core.sys.clock() - w.began
  run.progress:ended(w, t, t.status, core.sys.clock() - w.began)
  if status == "done" then
    if not self.checked then summary.warn_axes(run, self.reads) end
    self.checked = true
    check_metric(self, t)
  end
  if status == "interrupted" and self.signal and not w.stopped then
    self.halted[t] = math.tointeger(tostring(why):match "at step (%d+)") or w.step or 0
  end
  if w.stopped and status == "interrupted" then
    t.status = "stopped"
    run.progress:note("%s: %s; the same command continues", t.label, why)
  end
  if self.counts[t.status] then self.counts[t.status] = self.counts[t.status] + 1 end
  if status == "failed" then
    local last = w.place.gpu and launch.ours() -- see handlers.ended
    run.progress:say("%s failed: %s%s", t.label, errors.shown(tostring(why),
      "toeplab show " .. t.id:sub(1, 12)), last and #self.queue > 0
      and "; ranks cannot continue after a failure on a GPU: run this command again" or "")
    if not t.diverged then run.alert:trial(ended == "guard" and "diverged" or "failed", t, why) end
    if run.fail_fast or last then
      self.failed_fast = true
      self:wind_down("TERM")
    end
  end
  return status
end

-- ---- Messages of workers (worker.lua lists them) ----------------------------------------------

local handlers = {}

function handlers.step(_, w, step, total, text) w.step, w.total, w.text = step, total, text end

for _, how in ipairs { "say", "note", "warn" } do
  handlers[how] = function(self, w, text) self.run.progress:from(w, how, text) end
end

-- The trial has logged a value that is not finite, or its guard rolled it back.
function handlers.diverged(self, w, text)
  local t = w.trial
  if t and not t.diverged then self.run.alert:trial("diverged", t, text) end
  if t then t.diverged = true end -- do not alert again when it ends
end

function handlers.clear(self, w) self.run.progress:clear(w) end

function handlers.begin(self, w, what, total, unit)
  self.run.progress:begin(what, total, unit, w)
end

function handlers.part(self, w, done) self.run.progress:part(done, w) end

function handlers.read(self, _, ...)
  for _, key in ipairs { ... } do self.reads[key] = true end
end

-- The trial has reached a rung and waits for judge_all.
function handlers.rung(self, w, step)
  copy_journal(self, w)
  w.rung, w.waits_since = step, core.sys.clock()
end

-- The worker reports the hash of the code that runs its trial, because the files of the program may
-- have changed since this run was started.
function handlers.code(_, w, hash) w.code = hash end

function handlers.unfit(_, w, code, why) w.unfit = { code = code, why = why, lasts = true } end

-- Returns why a trial ended with the signal of the user, in whose place its worker got a SIGTERM.
local function with_name(self, why)
  return self.named and why and why:gsub("^stopped by SIG%w+", errors.stop_text(self.named)) or why
end

function handlers.ended(self, w, status, code, why, ended)
  local label = w.trial.label
  why = with_name(self, why)
  local asked = w.late or w.stopped
  w.closed = asked ~= nil -- a worker that was asked to stop takes no other trial
  status = end_trial(self, w, status, why, ended)
  -- The CUDA context of its process may be broken. A new process replaces it; a rank cannot be
  -- replaced, so its run ends.
  if status == "failed" and w.place.gpu and not launch.ours() then dismiss(self, w) end
  local fate = code and { code = code, label = label, why = ("%s: %s"):format(label, why) }
  local known = self.fate
  if code == errors.STORAGE then
    self.fate = nil
    end_run(self, fate)
  elseif code and not asked and not (known and known.label)
    and not (self.failed_fast and not self.user) then
    if known then known.label, known.why = label, fate.why else end_run(self, fate) end
  end
end

-- ---- Exits -------------------------------------------------------------------------------------

-- Handles the exit of a worker's process. If the journal has the end of its trial, that counts.
-- Otherwise a trial whose worker was killed by a signal continues from its checkpoint in another
-- worker, once; the second time, or if the worker exited by itself, it has failed. It is
-- interrupted if the run winds down, or if the worker reported that it cannot run trials, which
-- ends the run.
local function handle_exit(self, w)
  local why, signal = w:cause()
  why = w.late or with_name(self, why)
  dismiss(self, w)
  local t = w.trial
  if not t then return end
  local said = journal_end(self, w)
  if said then -- the trial had ended, but the worker could not report it
    return end_trial(self, w, said.status, said.error, said.ended)
  end
  self.deaths[t] = (self.deaths[t] or 0) + 1
  if self.winding or w.late or w.stopped then
    end_trial(self, w, "interrupted", why)
  elseif launch.ours() then -- a rank cannot be replaced
    end_trial(self, w, "interrupted", why)
    end_run(self, w.unfit or { code = errors.FAILED, why = "rank 0: " .. why })
    self.fate.label = t.label
  elseif signal and self.deaths[t] < DEATHS then
    end_trial(self, w, "interrupted", why)
    self.run.progress:warn("%s: %s; it continues in another process", t.label, why)
    t.status, self.halted[t] = nil, nil
    table.insert(self.queue, 1, t)
  elseif w.unfit then
    end_trial(self, w, "interrupted", w.unfit.why)
    w.unfit.label = t.label
    end_run(self, w.unfit)
  else
    end_trial(self, w, "failed", why)
    -- Later trials are judged by values that a killed trial never reports; a rerun may report them.
    if signal and self.pruner then
      end_run(self, { code = errors.FAILED, label = t.label,
        why = ("%s: %s, and the trials after it are judged by its values"):format(t.label, why) })
    end
  end
end

-- Starts no further trials and asks the running ones to save and stop.
function Pool:wind_down(signal, seconds)
  local first = not self.winding
  self.waiting, self.queue, self.winding = self.waiting or #self.queue, {}, true
  for _, w in ipairs(self.workers) do
    -- A worker that is saving would give up its step after a second SIGINT.
    local saving = first and w.stopped
    if w.trial and not saving then w:ask_to_stop(signal, seconds) end
  end
end

-- Forwards the user's signals to the workers. After a second SIGINT they do not finish their step.
local function check_signals(self)
  local count, name = core.sys.interrupted()
  if count == (self.seen or 0) and (not name or self.named) then return end
  local what, code = errors.signal()
  if not self.fate then
    self.fate = { code = code, why = errors.stop_text(what), by_signal = true }
  end
  self.user, self.seen, self.named = true, count, name
  self.signal = what
  self:wind_down(name and "TERM" or "INT", count > 1 and HURRY_SECONDS
    or name == "USR1" and self.run.grace or nil)
end

-- Returns why the run ends early: the cause, or how many trials a signal of the user stopped.
local function fate_text(self, fate)
  local count, least, most = 0, math.huge, 0
  for _, step in pairs(self.halted) do
    count, least, most = count + 1, math.min(least, step), math.max(most, step)
  end
  if not fate.by_signal or count < 2 then return fate.why end
  local steps = least < most and ("steps %d to %d"):format(least, most) or "step " .. most
  return ("%d trials %s%s%s"):format(count, errors.stop_text(self.signal),
    most > 0 and (" (at %s)"):format(steps) or "",
    self.waiting > 0 and (", %d queued"):format(self.waiting) or "")
end

-- ---- The loop ---------------------------------------------------------------------------------

local function listen(self, w)
  local text = w.process:receive()
  for _, line in ipairs(w.read(text or "")) do
    local act = handlers[line[1]]
    if act then act(self, w, table.unpack(line, 2, line.n)) end
  end
  if not text then handle_exit(self, w) end
end

-- Decides which trials that wait at a rung continue, and does not count their waiting time. The
-- trials of a small sweep (trials/tuning.lua) have no pruner and all continue, because the choice
-- compares their final values.
local function judge_all(self, now)
  if self.winding then return end
  for _, w in ipairs(self.workers) do
    local word, why
    if w.trial and w.rung then
      word = "go"
      if self.pruner then word, why = self.pruner:judge(w.trial, w.rung) end
    end
    if word then
      if word == "prune" then self.run.progress:note("%s: pruned: %s", w.trial.label, why) end
      w.began, w.rung = w.began + now - w.waits_since, nil
      w.process:send(wire.line(word))
    end
  end
end

local function busy(self)
  local count = 0
  for _, w in ipairs(self.workers) do count = count + (w.trial and 1 or 0) end
  return count
end

-- Calls fn. Returns false if another process holds the lock of the store for too long.
local function unless_locked(fn, ...)
  local ok, why = pcall(fn, ...)
  if not ok and not (errors.is(why) and why.code == errors.LOCKED) then error(why, 0) end
  return ok
end

-- Copies the new records of the journals. Stops trials that a user has asked to stop or that
-- another process has begun again.
local function take_all(self, now)
  if now - self.taken < TAKE_SECONDS then return end
  self.taken = now
  local records = self.run.records
  if not unless_locked(function() records:check() end) then return end
  for _, w in ipairs(self.workers) do
    if w.trial and not unless_locked(copy_journal, self, w, true) then return end
    local signal = w.trial and not w.stopped and records:stop_signal(w.trial)
    if signal then
      w.stopped, w.closed = true, true -- the worker ends after this trial
      w:ask_to_stop(signal)
    end
  end
end

local function turn(self)
  assign_all(self)
  local processes = {}
  for i, w in ipairs(self.workers) do processes[i] = w.process end
  core.sys.poll(processes, 0.1)
  for _, w in ipairs(table.move(self.workers, 1, #self.workers, 1, {})) do listen(self, w) end
  local now = core.sys.clock()
  time_limits.check(self, now)
  take_all(self, now)
  judge_all(self, now)
  check_signals(self)
  self.run.progress:show(self.workers, self.counts, function()
    return self.left(self.queue, self.workers)
  end)
end

-- Lets the worker of rank 0 leave the group of ranks, which a process must do before it ends.
local function leave(self)
  for _, w in ipairs(self.workers) do
    local deadline = core.sys.clock() + worker_process.GRACE_SECONDS
    w.process:send(wire.line "leave")
    repeat core.sys.poll({ w.process }, 0.1)
    until not w.process:receive() or core.sys.clock() > deadline
  end
end

-- Runs the trials of list and, when all have ended, the trials that more() returns (nil: none),
-- until it returns an empty list. Returns counts {done=, failed=, pruned=, stopped=, removed=} and
-- the set of keys that trials have read; sets `taken` of trials that another process has begun.
-- Raises if the run ends early. In either case all workers have ended.
function Pool:go(list, more)
  local spec = self.run.exp.prune
  self.queue = table.move(list, 1, #list, 1, {})
  self.pruner = spec and prune.new(spec, self.run.records, self.run.trials, list)
  local ok, why = pcall(function()
    repeat
      while #self.queue > 0 or busy(self) > 0 do turn(self) end
      local next_list = more and not self.winding and more(self.counts) or {}
      table.move(next_list, 1, #next_list, 1, self.queue)
    until #self.queue == 0
  end)
  if launch.ours() then leave(self) end
  for _, w in ipairs(self.workers) do w:kill() end
  self.run.progress:clear()
  if not ok and not (errors.is(why) and why.code == errors.STORAGE) then error(why, 0) end
  local fate = not ok and { code = errors.STORAGE, why = why.message } or self.fate
  if fate and fate.code == errors.STORAGE then errors.storage(fate.why) end
  if fate then
    errors.raise(fate.code, "%s%s", fate_text(self, fate),
      fate.lasts and "" or "; the same command continues")
  end
  return self.counts, self.reads
end

return coordinator
