-- trials/prune.lua: ends trials whose metric falls behind other trials of their run at fixed steps,
-- the rungs.
--
--   asha    the first rung is min_steps, each other one eta times the one before, rounded down. A
--           trial continues if its value is among the best 1/eta of its own and those of earlier
--           trials; all continue until there are eta values. (After Li et al. 2020, who take trials
--           in the order of arrival.)
--   median  the same with eta 2: a trial continues if its value is not worse than the median of its
--           own and those of earlier trials; all continue until there are 4 values
--
-- A trial waits at a rung until all earlier trials have reached the rung or have ended, so that the
-- decision depends only on the values, not on the speed of workers or on interruptions. A value
-- that is not finite always ends its trial, and is the worst value for the others. Each decision is
-- made once and stored as an event of its trial, with the value.
local json = require "toeplab.base.json"

local prune = {}

-- Returns the next rung after `step`.
local function next_rung(spec, step)
  local eta = spec.rule == "asha" and spec.eta or 2.0
  return math.max(step + 1, math.floor(step * eta))
end

-- ---- In the trial -----------------------------------------------------------------------------

local Rungs = {}
Rungs.__index = Rungs

-- Returns the rungs of a trial, whose state is part of its checkpoints. spec: the experiment's
-- field `prune`, as checked by declared.lua.
function prune.rungs(spec)
  return setmetatable({ spec = spec, next = spec.min_steps, due = false }, Rungs)
end

-- Receives the name of each value logged at a step. Sets self.due if the trial must be judged now.
function Rungs:logged(name, step)
  self.due = self.due or name == self.spec.metric and step >= self.next
end

-- If trial t must be judged after this step, waits for the coordinator's decision. Returns nil if
-- the trial continues, else the coordinator's order. Raises if a signal stops the trial.
function Rungs:wait(t)
  while self.due do
    local word
    t.ask(self.next)
    repeat
      t:check_signals()
      word = t.hear(0.1)
    until word
    if word ~= "go" then return word end
    self.next = next_rung(self.spec, self.next)
    self.due = t.step >= self.next
  end
end

function Rungs:state() return { next = self.next, due = self.due } end

function Rungs:load(state) self.next, self.due = state.next, state.due end

-- ---- In the coordinator -----------------------------------------------------------------------

local Pruner = {}
Pruner.__index = Pruner

-- trials: all trials of the experiment in order, each with its id and, if it will not run again,
-- its status. list: the trials of this run; it does not wait for others.
function prune.new(spec, records, trials, list)
  local self = setmetatable({ spec = spec, records = records, trials = {} }, Pruner)
  local to_do = {}
  for _, t in ipairs(list) do to_do[t] = true end
  for _, t in ipairs(trials) do
    if t.status or to_do[t] then table.insert(self.trials, t) end
  end
  return self
end

-- Returns the stored decision on a trial at a step: {kind = "judged" or "prune", text=}; nil if
-- there is none.
local function decided(self, id, step)
  return self.records:rows([[SELECT kind, text FROM v_events WHERE trial = ? AND step = ?
    AND kind IN ('judged', 'prune') ORDER BY created LIMIT 1]], { id, step })[1]
end

local function finite(value) return value and value - value == 0 end

local function worse_is_larger(spec, value)
  if not finite(value) then return math.huge end -- inf and NaN count as worst
  return spec.goal == "max" and -value or value
end

local over = { done = true, pruned = true, failed = true } -- an interrupted trial goes on

-- Returns the values of earlier trials than t at a step, with the sign changed so that less is
-- better; nil if some are not known yet. Trials that ended before the step have no value.
local function values_before(self, t, step)
  local list = {}
  for _, other in ipairs(self.trials) do
    if other == t then return list end
    local event = decided(self, other.id, step)
    if not event and not over[other.status] then return nil end
    if event then
      list[#list + 1] = worse_is_larger(self.spec, tonumber(event.text:match " is (%S+) at step "))
    end
  end
  return list
end

local rules = {}

-- Each rule takes a value and the sorted values at its step, including the value; less is better.
-- It returns whether the value is good enough, and a description of the threshold.
function rules.asha(spec, value, values)
  if #values < spec.eta then return true, ("the first %d"):format(#values) end
  local kept = math.max(1, math.tointeger(#values // spec.eta))
  return value <= values[kept], ("the best %d of %d"):format(kept, #values)
end

function rules.median(_, value, values)
  if #values < 4 then return true, ("the first %d"):format(#values) end
  local middle = #values // 2
  local median = #values % 2 == 1 and values[middle + 1]
    or 0.5 * (values[middle] + values[middle + 1])
  return value <= median, ("the better half of %d"):format(#values)
end

-- Decides whether trial t continues after the rung `step`: "go" or "prune", and why; nil while
-- earlier trials have not reached the rung.
function Pruner:judge(t, step)
  local spec, event = self.spec, decided(self, t.id, step)
  if event then return event.kind == "judged" and "go" or "prune", event.text end
  local values = values_before(self, t, step)
  if not values then return nil end
  local row = self.records:rows([[SELECT value FROM v_metrics WHERE trial = ? AND name = ?
    AND step >= ? ORDER BY step LIMIT 1]], { t.id, spec.metric, step })[1]
  local logged = row and row.value
  local value = worse_is_larger(spec, logged)
  values[#values + 1] = value
  table.sort(values)
  local fine, bar = rules[spec.rule](spec, value, values)
  fine = fine and finite(logged)
  local why = ("%s is %s at step %d, %s%s"):format(spec.metric,
    finite(logged) and json.number(logged) or json.named(logged or 0 / 0), step,
    fine and "among " or "not among ", finite(logged) and bar or "finite numbers")
  self.records:event(t.id, step, fine and "judged" or "prune", why)
  return fine and "go" or "prune", why
end

return prune
