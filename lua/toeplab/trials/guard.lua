-- trials/guard.lua: watches a metric of a trial for spikes and for values that are not finite, and
-- the gradient for a norm that is not finite. Then ends the trial or rolls it back at a lower
-- learning rate.
--
-- A rollback returns to the last multiple of `every` steps, or to the best checkpoint if that is
-- later. It cannot use the last checkpoint, whose step depends on the clock and on interruptions:
-- results must not. A value is a spike if it is worse than the mean of the last `window` values (at
-- least 8) by more than `zscore` standard deviations. Each intervention is stored as an event of
-- the trial.
local guard = {}

local Guard = {}
Guard.__index = Guard

local LEAST = 8
local ROUNDING = 2.0 ^ -46 -- of the mean, by which equal values may differ from it

-- spec: the field `guard` of the experiment, as checked by declared.lua.
function guard.new(spec)
  return setmetatable({ spec = spec, values = {}, used = 0 }, Guard)
end

local function spike(self, value)
  local count = #self.values
  if not self.spec.zscore or count < LEAST then return nil end
  local mean, square = 0.0, 0.0
  for _, v in ipairs(self.values) do mean = mean + v / count end
  for _, v in ipairs(self.values) do square = square + (v - mean) ^ 2 / (count - 1) end
  local worse = self.spec.goal == "max" and mean - value or value - mean
  local z = worse / math.max(math.sqrt(square), ROUNDING * math.abs(mean), 1e-300)
  return z > self.spec.zscore and ("%s is %.4g, %.1f deviations %s its mean %.4g"):format(
    self.spec.metric, value, z, value > mean and "above" or "below", mean) or nil
end

-- Returns "nan", "inf" or "-inf" for a number that is not finite, else nil.
function guard.not_finite(value)
  if value - value == 0 then return nil end
  return value ~= value and "nan" or tostring(value)
end

-- Receives each logged value. If it is bad, sets self.alarm to a message, and self.not_finite if it
-- is not finite.
function Guard:logged(name, value)
  if name ~= self.spec.metric then return end
  local wrong = guard.not_finite(value)
  self.alarm = wrong and ("%s is %s"):format(name, wrong) or spike(self, value)
  self.not_finite = wrong ~= nil
  if self.alarm then return end
  table.insert(self.values, value)
  if #self.values > self.spec.window then table.remove(self.values, 1) end
end

-- Returns a message about a value of this step that is not finite, or nil.
function Guard:found_not_finite() return self.not_finite and self.alarm or nil end

-- The guard's state is part of checkpoints, so that a resumed trial is judged like an uninterrupted
-- one.
function Guard:state() return { values = self.values, used = self.used } end

function Guard:load(state) self.values, self.used = state.values, state.used end

-- Returns whether the guard may roll the trial back.
function Guard:rolls_back()
  local spec = self.spec
  return spec.retries > 0 and (spec.nan == "rollback" or spec.zscore ~= nil)
end

-- Returns whether a checkpoint must be written at this step for a later rollback.
function Guard:anchors(step) return self:rolls_back() and step % self.spec.every == 0 end

-- Judges a step. gradient: a message if its gradient was not finite, or nil. Returns nil if the
-- step is fine, else "stop" or "rollback", and why: "rollback" for a spike, the field `nan` for a
-- value that is not finite, and "stop" when `retries` rollbacks are used up.
function Guard:verdict(gradient)
  local why, not_finite = self.alarm, self.not_finite
  self.alarm, self.not_finite = nil, false
  if gradient and not not_finite then why, not_finite = gradient, true end
  if not why then return nil end
  if (not not_finite or self.spec.nan == "rollback") and self.used < self.spec.retries then
    return "rollback", why
  end
  local after = self.used > 0 and (" after %d rollback%s"):format(self.used,
    self.used == 1 and "" or "s") or ""
  return "stop", why .. after
end

return guard
