-- prune.lua: ends trials that are behind the others of their run, at steps where that is decided.
--
--   asha    at the steps min_steps, min_steps eta, min_steps eta^2, ...: a trial goes on if its
--           value is among the best 1/eta of those that have come so far (Li et al. 2020); until
--           eta values are there, all go on
--   median  at the same steps with eta 2: a trial goes on if its value is no worse than the median
--           of the others'; until 3 of them are there, all go on
--
-- What is decided depends on which trials are ahead, thus on the workers' speed; every decision is
-- an event of its trial, and a pruned trial is not taken up again. A trial that goes on after a
-- kill is not judged again at the steps before its checkpoint; if it was to end, it is ended.
local prune = {}

local Pruner = {}
Pruner.__index = Pruner

-- spec: the experiment's field prune, checked (declared.lua); trials: of the run, with their ids.
function prune.new(spec, records, trials)
  return setmetatable({ spec = spec, records = records, trials = trials, next = {} }, Pruner)
end

-- The value of a trial's metric at the first step from step on, or nil; larger is worse.
local function value_at(self, id, step)
  local row = self.records:rows([[SELECT value FROM metrics
    WHERE trial = ? AND name = ? AND step >= ? ORDER BY step LIMIT 1]],
    { id, self.spec.metric, step })[1]
  if not row then return nil end
  if row.value == nil then return math.huge end -- it was not a number
  return self.spec.goal == "max" and -row.value or row.value
end

-- The values of all trials at that step, best first.
local function values_at(self, step)
  local list = {}
  for _, t in ipairs(self.trials) do
    list[#list + 1] = value_at(self, t.id, step)
  end
  table.sort(list)
  return list
end

local rules = {}

-- Whether value is good enough among the values at its step, and what it is compared with.
function rules.asha(spec, value, values)
  if #values < spec.eta then return true end
  local kept = math.max(1, math.tointeger(#values // spec.eta))
  return value <= values[kept], ("the best %d of %d"):format(kept, #values)
end

function rules.median(_, value, values)
  if #values < 4 then return true end
  local middle = #values // 2
  local median = #values % 2 == 1 and values[middle + 1]
    or 0.5 * (values[middle] + values[middle + 1])
  return value <= median, ("the better half of %d"):format(#values)
end

-- The step at which t is judged after it was at step.
local function later(self, step)
  local eta = self.spec.rule == "asha" and self.spec.eta or 2.0
  return math.max(step + 1, math.floor(step * eta))
end

-- The first step at which t is to be judged, that of its checkpoint being behind it; or what was
-- decided: {why, step}.
local function taken_up(self, t)
  local decided = self.records:rows([[SELECT text, step FROM events WHERE trial = ?
    AND kind = 'prune' ORDER BY id LIMIT 1]], { t.id })[1]
  if decided then return nil, { decided.text, decided.step } end
  local _, row = self.records:status(t.id)
  local step = self.spec.min_steps
  while row and row.step and step <= row.step do step = later(self, step) end
  return step
end

-- Why trial t is to be ended now, at which step, and whether that is an event already; nil: it goes
-- on.
function Pruner:judge(t)
  local spec, decided = self.spec, nil
  if not self.next[t] then self.next[t], decided = taken_up(self, t) end
  if decided then return decided[1], decided[2], true end
  while true do
    local step = self.next[t]
    local value = value_at(self, t.id, step)
    if not value then return nil end
    self.next[t] = later(self, step)
    local fine, bar = rules[spec.rule](spec, value, values_at(self, step))
    if not fine then
      local shown = spec.goal == "max" and -value or value
      local text = "%s is %.4g at step %d, not among %s"
      return text:format(spec.metric, shown, step, bar), step, false
    end
  end
end

return prune
