-- runs/claimed.lua: takes the place of the store's records (store/records.lua) in the coordinator
-- of a task of an array job, which must not write to the store. What the coordinator records about
-- a trial goes to a claim (store/claims.lua), what the trial logs to its journal, and
-- store/takeover.lua copies both into the store later.
local claims = require "toeplab.store.claims"
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local journal = require "toeplab.store.journal"
local json = require "toeplab.base.json"
local process = require "toeplab.base.process"
local trial_files = require "toeplab.store.trial_files"

local claimed = {}

local CHECK_SECONDS = 5 -- between two looks whether another process has taken a trial over

local Claimed = {}
Claimed.__index = Claimed

-- Makes the records of the trials of list ({id=, path= (its folder in the results folder), label=,
-- data=, code=, provenance=, attempt=, step=, seconds=, artifacts=} each, as the store knows them)
-- in folder, which claims a trial when it begins, or earlier by Claimed:claim. by: {job=, task=,
-- restarts=} of claims.take. Its field moved says whether any trial has got further than it was.
function claimed.new(folder, list, by)
  local self = setmetatable({ folder = folder, known = {}, held = {}, by = by,
    moved = false }, Claimed)
  for _, t in ipairs(list) do self.known[t.id] = t end
  return self
end

-- Returns what is known of trial t before the given attempt: {artifacts=, step=, seconds=}, and
-- status, why and ended if the attempt before it has ended the trial. The attempt that the store
-- knew when the plan was written may have gone on if it was open, so its journal is applied again.
local function known_before(self, t, attempt)
  local state = { artifacts = table.move(t.artifacts, 1, #t.artifacts, 1, {}), step = t.step,
    seconds = t.seconds or 0.0 }
  return claims.replay(self.folder, t.path, t.open and t.attempt or t.attempt + 1, attempt - 1,
    state)
end

-- Claims attempt `attempt` at trial t. Returns false if another process was faster, or if it turns
-- out that the trial has ended: the one before it was killed after the last record of its journal.
function Claimed:claim(t, attempt)
  local p = config.copy(t.provenance)
  p.label, p.data = t.label, next(t.data) and t.data or nil
  local pid, started = core.sys.getpid(), core.sys.now()
  p.process_start, p.key = process.start(pid), t.key ~= t.id and t.key or nil
  local got = claims.take(self.folder, t.id, attempt, { job = self.by.job, task = self.by.task,
    restarts = self.by.restarts, host = p.host, pid = pid, started = started, code = t.code,
    provenance = json.encode(p), process_start = p.process_start })
  if not got then return false end
  trial_files.make(self.folder, "runs")
  trial_files.make(self.folder, t.path)
  if not journal.create(self.folder .. "/" .. journal.path(t.path, attempt), { "begin", attempt,
      started, pid, t.code, json.encode(p), n = 6 }) then
    t.taken = true -- by a run that is no task of an array job
    claims.drop(self.folder, t.id, attempt)
    return false
  end
  local state = known_before(self, t, attempt)
  local held = { attempt = attempt, state = state, first = state.step or 0, offset = 0,
    checked = core.sys.clock() }
  if state.status == "done" then
    claims.finish(self.folder, t.id, attempt, state.status, state.why, state.ended,
      core.sys.now())
    return false
  end
  state.status = nil
  self.held[t.id] = held
  return true
end

-- ---- The methods that the coordinator calls -----------------------------------------------------

-- Returns what Records:begin returns; nil if another process has the trial or has ended it. Claims
-- a trial that is not claimed yet, and once more one whose worker has died.
function Claimed:begin(t)
  local held = self.held[t.id]
  if not held or held.begun then
    if not self:claim(t, (held or t).attempt + 1) then return nil end
    held = self.held[t.id]
  end
  held.begun = true
  return held.attempt, held.state.seconds, held.state.artifacts
end

-- Raises if another task has taken over a trial that runs here, or its claim was removed. This
-- happens when Slurm gave this node up, perhaps restarted the task elsewhere, and the task here
-- went on.
local function check_held(self, id, held)
  held.checked = core.sys.clock()
  if claims.holds(self.folder, id, held.attempt) then return end
  self.held[id] = nil
  errors.raise(errors.LOCKED, "trial %s was taken over by another task, or its task was given up",
    id:sub(1, 12))
end

-- Checks the trials that run here from time to time. Once an attempt has ended, another process
-- may make the next one.
function Claimed:check()
  local now = core.sys.clock()
  for id, held in pairs(self.held) do
    if not held.over and now - held.checked > CHECK_SECONDS then check_held(self, id, held) end
  end
end

-- Reads what is new in the journal of trial t; read (or nil) is called with each list of lines.
function Claimed:take(t, _, read)
  local held, damage = self.held[t.id], nil
  if not held then return false end
  local file, lines = self.folder .. "/" .. journal.path(t.path, held.attempt), nil
  repeat
    lines, held.offset, damage = journal.read(file, held.offset)
    for _, line in ipairs(lines) do claims.apply(held.state, line) end
    if read and #lines > 0 then read(lines) end
    if held.state.step and held.state.step > held.first then self.moved = true end
  until #lines == 0 or damage
  return held.state.status ~= nil, damage
end

function Claimed:outcome(id)
  local s = self.held[id] and self.held[id].state or {}
  return { status = s.status or "running", error = s.why, ended = s.ended }
end

function Claimed:finish(t, status, why, ended)
  local s = self.held[t.id].state
  s.status, s.why, s.ended = status, why, ended
end

-- Records the end of the attempt, which the journal has if the trial wrote it, beside its claim.
-- Raises if the claim is lost: nobody then reads the journal any more (takeover.clear).
function Claimed:end_journal(t)
  local held = self.held[t.id]
  check_held(self, t.id, held)
  local s = held.state
  claims.finish(self.folder, t.id, held.attempt, s.status, s.why, s.ended, core.sys.now())
  held.over = true -- until begin makes a new entry
  if s.status ~= "interrupted" then self.moved = true end
end

-- Raises unless a worker runs the code that the sweep was begun with.
function Claimed:check_code(id, code)
  if code == self.known[id].code then return end
  errors.raise(errors.FAILED, "%s: toeplab here is another build (code %s) than the one that "
    .. "began the sweep (%s): install one build on all nodes, and give the sweep's command again",
    core.sys.hostname(), code:sub(1, 12), self.known[id].code:sub(1, 12))
end

return claimed
