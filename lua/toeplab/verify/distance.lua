-- verify/distance.lua: measures how far a tensor is from the expected one.

local core = require "toeplab.core"

local distance = {}

-- Returns the largest magnitude in t; infinity if t contains a NaN.
local function largest(t)
  local sum = core.abs(t):sum():item()
  if sum ~= sum then return math.huge end
  return core.abs(t):amax():item()
end

-- Returns max |got - want| / max |want|, or only the numerator if the expected values are all 0.
function distance.distance(got, want)
  return core.no_grad(function()
    local size = largest(want)
    local error_ = largest(got:reshape(-1) - want:reshape(-1))
    return size > 0 and error_ / size or error_
  end)
end

return distance
