-- prune.lua: ends trials that are behind the others of their run, at steps where that is decided.
--
--   asha    at the steps min_steps, min_steps eta, min_steps eta^2, ...: a trial goes on if its
--           value is among the best 1/eta of those that have come so far (Li et al. 2020); until
--           eta values are there, all go on
--   median  at the same steps with eta 2: a trial goes on if its value is no worse than the median
--           of the others'; until 3 of them are there, all go on
--
-- What is decided depends on which trials are ahead, thus on the workers' speed; every decision is
-- an event of its trial, and a pruned trial is not taken up again.
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

-- Why trial t is to be ended now, and at which step; nil: it goes on.
function Pruner:judge(t)
  local spec = self.spec
  local eta = spec.rule == "asha" and spec.eta or 2.0
  while true do
    local step = self.next[t] or spec.min_steps
    local value = value_at(self, t.id, step)
    if not value then return nil end
    self.next[t] = math.max(step + 1, math.floor(step * eta))
    local fine, bar = rules[spec.rule](spec, value, values_at(self, step))
    if not fine then
      local shown = spec.goal == "max" and -value or value
      return ("%s is %.4g at step %d, not among %s"):format(spec.metric, shown, step, bar), step
    end
  end
end

return prune
