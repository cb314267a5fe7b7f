-- runs/trial_rows.lua: holds the rows of the trial that a worker runs, and appends new ones to the
-- journal of the attempt. Indexes artifacts by kind and step: a trial may log a tensor at every
-- step.
local core = require "toeplab.core"
local secrets = require "toeplab.base.secrets"

local trial_rows = {}

local Rows = {}
Rows.__index = Rows

-- journal: the writer of this attempt; artifacts, seconds: of earlier attempts; on_diverged: a
-- function that is called once with the reason if the trial diverges.
function trial_rows.new(journal, artifacts, seconds, on_diverged)
  local self = setmetatable({ journal = journal, of = {}, events = {}, seconds = seconds,
    began = core.sys.clock(), on_diverged = on_diverged }, Rows)
  for _, a in ipairs(artifacts) do self:put(a) end
  return self
end

local function metric_lines(list)
  local lines = {}
  for i, m in ipairs(list) do lines[i] = { "metric", m.step, m.name, m.value, m.at } end
  return lines
end

local function artifact_line(a)
  return { "artifact", a.kind, a.step, a.path, a.bytes, a.sha256, core.sys.now() }
end

local function report_diverged(self, text)
  if not self.diverged then self.on_diverged(text) end
  self.diverged = true
end

function Rows:add_metrics(list)
  self.journal:add(metric_lines(list))
  for _, m in ipairs(list) do
    if m.value - m.value ~= 0 then
      local value = m.value ~= m.value and "nan" or ("%g"):format(m.value)
      return report_diverged(self, ("%s is %s at step %d"):format(m.name, value, m.at or m.step))
    end
  end
end

-- Adds an artifact; replaces the one of the same kind and step.
function Rows:put(a)
  self.of[a.kind] = self.of[a.kind] or {}
  self.of[a.kind][a.step] = a
end

function Rows:add_artifact(a)
  self.journal:add({ artifact_line(a) }, true)
  self:put(a)
end

function Rows:drop_artifact(a)
  self.journal:add({ { "drop", a.path } })
  self.of[a.kind][a.step] = nil
end

-- Returns the trial's artifact of this kind and step (nil: any step); nil if there is none.
function Rows:artifact(kind, step)
  local steps = self.of[kind] or {}
  if step then return steps[step] end
  return select(2, next(steps))
end

-- Returns the trial's checkpoints of both kinds, newest first; at equal steps, kind "best" comes
-- last.
function Rows:checkpoints()
  local list = {}
  for _, kind in ipairs { "checkpoint", "best" } do
    for _, a in pairs(self.of[kind] or {}) do list[#list + 1] = a end
  end
  table.sort(list, function(a, b)
    if a.step ~= b.step then return a.step > b.step end
    return a.kind > b.kind
  end)
  return list
end

-- Records a checkpoint, and drops others of its kind. Keeps the newest `keep`, including the new
-- one, and the newest one for which anchor(step) holds (nil: none). Returns the dropped rows, whose
-- files the caller may now remove, because the record is on disk.
function Rows:add_checkpoint(a, keep, anchor)
  local seconds = self.seconds + core.sys.clock() - self.began
  local lines, old, gone, same = { artifact_line(a), { "step", a.step, seconds } }, {}, {}, 1
  local anchored = not anchor or anchor(a.step)
  table.move(self.events, 1, #self.events, 3, lines)
  self.events = {}
  for _, row in ipairs(self:checkpoints()) do
    if row.kind == a.kind then
      if row.step ~= a.step then same = same + 1 end
      local stays = row.step ~= a.step and (same <= keep or not anchored and anchor(row.step))
      anchored = anchored or anchor(row.step)
      if not stays then gone[#gone + 1] = row end
      -- A row with the same path belongs to the new file.
      if not stays and row.path ~= a.path then old[#old + 1] = row end
    end
  end
  for _, row in ipairs(old) do lines[#lines + 1] = { "drop", row.path } end
  self.journal:add(lines, true)
  for _, row in ipairs(gone) do self.of[row.kind][row.step] = nil end
  self:put(a)
  return old
end

-- Forgets metrics and artifacts after the step from which a trial resumes.
function Rows:forget_after(step)
  self.journal:add { { "forget", step } }
  for _, steps in pairs(self.of) do
    for at in pairs(steps) do
      if at > step then steps[at] = nil end
    end
  end
end

-- Queues an event of the trial, e.g. of kind "rollback". The next checkpoint records it: a kill
-- between two separate records would repeat the event.
function Rows:event(step, kind, why)
  table.insert(self.events, { "event", step, kind, secrets.text(why), core.sys.now() })
  if kind == "rollback" then report_diverged(self, why) end
end

return trial_rows
