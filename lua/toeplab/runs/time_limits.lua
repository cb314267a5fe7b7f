-- runs/time_limits.lua: stops trials that exceed their time limit, and runs that exceed their
-- budget.
local errors = require "toeplab.base.errors"

local time_limits = {}

-- Returns a message that the time of w's trial is up, and the reason for the store; nil if it is
-- not.
local function overdue(pool, w, now)
  local limit, elapsed = pool.run.timeout, now - w.began
  if limit and elapsed > limit then
    return ("took longer than %g seconds"):format(limit), "timeout"
  end
  if pool.limit and w.seconds + elapsed > pool.limit then
    return ("budget: the trial used its %g seconds"):format(pool.limit), "budget"
  end
end

-- Asks a trial that exceeds its time to stop, and kills its worker if it does not.
local function check_trial(pool, w, now)
  if not w.trial then return end
  if not w.late and not w.rung then
    w.late, w.late_for = overdue(pool, w, now)
    if w.late then
      w.closed = true -- the worker ends after this trial
      w:ask_to_stop "TERM"
    end
  end
  w:kill_if_overdue(now)
end

-- Winds the run down when its trials have used its budget.
local function check_budget(pool, now)
  if not pool.total or pool.fate then return end
  local used = pool.run.used
  for _, w in ipairs(pool.workers) do
    if w.trial then used = used + (w.rung and w.waits_since or now) - w.began end
  end
  if used <= pool.total then return end
  pool.fate = { code = errors.BUDGET, label = "budget",
    why = ("the trials used their %g seconds"):format(pool.total) }
  pool:wind_down "TERM"
end

-- Checks all running trials of a coordinator.
function time_limits.check(pool, now)
  for _, w in ipairs(pool.workers) do check_trial(pool, w, now) end
  check_budget(pool, now)
end

return time_limits
