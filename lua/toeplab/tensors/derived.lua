-- tensors/derived.lua: functions of tensors that are composed of the engine's operators: sign,
-- clamp, var and std. They are also methods of tensors.

local core = require "toeplab.core"

local derived = {}

-- Returns 1, 0 or -1, and 0 for NaN; no gradient.
function derived.sign(x) return core.gt(x, 0) - core.lt(x, 0) end

-- Returns x clamped to low and high, numbers or tensors, one of which may be nil. NaN stays NaN,
-- and the gradient passes where low <= x <= high.
function derived.clamp(x, low, high)
  if low == nil and high == nil then
    error("clamp: give a lower bound, an upper one, or both", 2)
  end
  if low ~= nil then x = core.max(x, low) end
  return high == nil and x or core.min(x, high)
end

-- Returns the variance over axis (nil: all), with keep as in x:sum. Divides the sum of squares by
-- the count minus correction, 1 by default; NaN for too few elements.
function derived.var(x, axis, keep, correction)
  local count = axis and x:dim(axis) or x:numel()
  local squares = core.square(x - x:mean(axis, true)):sum(axis, keep)
  return core.affine(squares, 1 / math.max(count - (correction or 1), 0), 0)
end

-- Returns the standard deviation. Where the variance is 0 the gradient is 0, not NaN.
function derived.std(x, axis, keep, correction)
  local v = derived.var(x, axis, keep, correction)
  local spread = core.ne(v, 0)
  return core.sqrt(core.where(spread, v, 1)) * spread
end

local methods = debug.getregistry()["toeplab.tensor"].__index
for name, f in pairs(derived) do methods[name] = f end

return derived
