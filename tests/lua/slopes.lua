-- slopes.lua: gradients against central differences.
local harness = require "harness"
local core = require "toeplab.core"

local slopes = {}

local STEP = 1e-2

-- The number sum(w * y), w fixed, so that every element of y matters.
function slopes.probe(y)
  return (y * core.stream(99, "probe"):normal(core.zeros(y:shape()), 0, 1)):sum()
end

local function compare(loss, p, grad, largest, i, tolerance)
  local one = p.tensor:view(i - 1, { 1 })
  local before = one:item()
  local function at(value)
    one:fill(value)
    return core.no_grad(loss):item()
  end
  local numeric = (at(before + STEP) - at(before - STEP)) / (2 * STEP)
  one:fill(before)
  if not (math.abs(numeric - grad) <= tolerance * largest) then
    error(("%s element %d: gradient %g, by differences %g"):format(p.name, i, grad, numeric), 4)
  end
end

-- Compares the gradients of loss(), a number, in tensors, a list of {name=, tensor=} of which each
-- must have one, with central differences in some elements of each; the tolerance (2e-2) is
-- relative to the largest gradient of the tensor.
function slopes.check(loss, tensors, tolerance)
  local count = 0
  for _, p in ipairs(tensors) do p.tensor:set_grad(nil) end
  loss():backward()
  for _, p in ipairs(tensors) do
    local grad, largest = p.tensor:grad(), 1e-2
    harness.ok(grad, p.name .. " has no gradient")
    local flat = grad:reshape(-1):totable()
    for _, g in ipairs(flat) do largest = math.max(largest, math.abs(g)) end
    for i = 1, #flat, math.max(1, #flat // 7) do
      compare(loss, p, flat[i], largest, i, tolerance or 2e-2)
      count = count + 1
    end
  end
  harness.ok(count > 0, "no element was compared")
end

-- The trained parameters of a module.
function slopes.trained(module)
  local tensors = {}
  for _, p in ipairs(module:parameters()) do
    if p.tensor:requires_grad() then tensors[#tensors + 1] = p end
  end
  return tensors
end

return slopes
