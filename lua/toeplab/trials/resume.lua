-- trials/resume.lua: collects the state of a trial for a checkpoint, and resumes a trial from its
-- last good checkpoint.
local average = require "toeplab.train.average"
local checkpoint = require "toeplab.models.files.checkpoint"
local core = require "toeplab.core"
local streams = require "toeplab.base.streams"

local resume = {}

-- Returns the state of a trial for a checkpoint: its parts and the random streams.
function resume.state(self)
  local state = { step = self.step, streams = {}, best = self.lowest, left = self.left }
  for name, part in pairs(self.parts) do state[name] = part:state() end
  average.exchange(state)
  if self.guard then state.guard = self.guard:state() end
  if self.rungs then state.rungs = self.rungs:state() end
  for _, s in ipairs(streams.list()) do
    local key, offset = s.stream:state()
    state.streams[s.name] = { key = key, offset = offset }
  end
  state.threads = core.threads()
  local _, about = core.device()
  if about ~= "" then state.device = about end -- the CPU leaves no mark in checkpoints
  return state
end

local function apply(self, state)
  average.exchange(state)
  for name, part in pairs(self.parts) do
    if state[name] == nil then error(("it lacks the state of '%s'"):format(name), 0) end
    part:load(state[name])
  end
  for name, s in pairs(state.streams or {}) do streams.get(name):set_state(s.key, s.offset) end
  if self.guard and state.guard then self.guard:load(state.guard) end
  if self.rungs and state.rungs then self.rungs:load(state.rungs) end
end

-- Returns the state in a checkpoint's file (only: just this part); nil and the reason if the file
-- is missing or damaged. Raises if the system cannot read the file, because it may be intact, and
-- skipping it could lose days of training.
function resume.read(self, row, only)
  local file = self.folder .. "/" .. row.path
  local ok, hash = pcall(core.sha256_file, file)
  if not ok and hash.status == "ENOTFOUND" then return nil, "is missing" end
  if not ok then error(hash, 0) end
  if hash ~= row.sha256 then
    return nil, "is damaged (its sha256 is not the one it was stored with)"
  end
  local good, state = pcall(checkpoint.read, file, only)
  if good then return state end
  if type(state) ~= "table" or state.status ~= "ECORRUPT" then error(state, 0) end
  return nil, "cannot be read: " .. tostring(state)
end

-- Returns the state in the checkpoint of a row; nil and the reason if the trial cannot resume from
-- it, e.g. because its best checkpoint is lost: t:load_best would then load a different one.
local function usable(self, row, rows)
  local state, why = resume.read(self, row)
  if not state or not state.best or not state.best.step then return state, why end
  why = "is not there"
  for _, other in ipairs(rows) do
    if other.kind == "best" and other.step == state.best.step then
      local good, problem = resume.read(self, other, "best")
      if good then return state end
      why = problem
    end
  end
  return nil, ("cannot be used: the best checkpoint, of step %d, %s"):format(state.best.step, why)
end

-- Warns if the number of threads has changed, because results then differ in their last bits.
local function compare_threads(self, state)
  if not state.threads or state.threads == core.threads() then return end
  self.progress:warn("the checkpoint was made with %d thread%s, but this run has %d: the results "
    .. "will differ in their last bits from an uninterrupted run; use --threads %d to avoid this",
    state.threads, state.threads == 1 and "" or "s", core.threads(), state.threads)
end

-- Warns if the GPU, its driver or its libraries have changed, which has the same effect.
local function compare_devices(self, state)
  local _, about = core.device()
  if (state.device or "") == about then return end
  self.progress:warn("the checkpoint was made on another device, %s: the results will differ in "
    .. "their last bits from an uninterrupted run", state.device or "the CPU")
end

-- Returns a function that returns whether a rollback may go back to a step: a multiple of
-- guard.every, or the step of the best checkpoint.
function resume.anchors(self)
  local best
  for _, row in ipairs(self.rows:checkpoints()) do
    if row.kind == "best" then best = math.max(best or 0, row.step) end
  end
  return function(step) return step == best or self.guard:anchors(step) end
end

-- Loads the last checkpoint that a rollback may use into model, optimiser and streams. Returns its
-- step, or nil if there is none. Raises if the checkpoint is damaged: an earlier one would change
-- the result, whereas a rerun of the trial resumes from before it and repeats the same rollback.
function resume.go_back(self)
  local rows, anchor = self.rows:checkpoints(), resume.anchors(self)
  for _, row in ipairs(rows) do
    if anchor(row.step) then
      local state, why = usable(self, row, rows)
      self.rows:forget_after(state and row.step or row.step - 1)
      if not state then
        error(("guard: checkpoint %s/%s %s; run the same command to train again from an earlier "
          .. "checkpoint"):format(self.folder, row.path, why), 0)
      end
      apply(self, state)
      self.lowest = state.best
      return row.step
    end
  end
end

-- Loads the last usable checkpoint into model, optimiser and streams. Returns its step, 0 if there
-- is none. Drops the rows of unusable newer checkpoints, and all rows of later steps.
function resume.restore(self)
  local found, rows = 0, self.rows:checkpoints()
  for i, row in ipairs(rows) do
    local state, why = usable(self, row, rows)
    if state then
      apply(self, state)
      compare_threads(self, state)
      compare_devices(self, state)
      found, self.lowest, self.left = state.step, state.best, state.left
      break
    end
    self.progress:warn("checkpoint %s/%s %s; %s", self.folder, row.path, why,
      rows[i + 1] and "trying the one before it" or "starting over from step 1")
    self.rows:drop_artifact(row)
  end
  self.rows:forget_after(found)
  return found
end

return resume
