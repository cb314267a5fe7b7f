-- slopes.lua: gradients against central differences.
local harness = require "harness"
local core = require "toeplab.core"

local slopes = {}

-- A step, and the least slope that a difference of that step still tells from rounding: of a loss
-- about 1 it is off by 6e-6 and 1e-6. The longer step is for tensors of smaller slopes.
local STEPS = { { 1e-2, 1e-3 }, { 5e-2, 1e-4 } }

-- The number sum(w * y), w fixed, so that every element of y matters.
function slopes.probe(y)
  return (y * core.stream(99, "probe"):normal(core.zeros(y:shape()), 0, 1)):sum()
end

-- The derivative of loss() by element i of a tensor, by a central difference.
local function slope(loss, tensor, i, step)
  local one = tensor:view(i - 1, { 1 })
  local before = one:item()
  local function at(value)
    one:fill(value)
    return core.no_grad(loss):item()
  end
  local numeric = (at(before + step) - at(before - step)) / (2 * step)
  one:fill(before)
  return numeric
end

-- The numbers of the elements that are compared: some from all over the tensor, and that of the
-- largest gradient, because a loss may depend on few.
local function chosen(grad)
  local list, at = {}, 1
  for i, g in ipairs(grad) do at = math.abs(g) > math.abs(grad[at]) and i or at end
  for i = 1, #grad, math.max(1, #grad // 7) do list[#list + 1] = i end
  list[#list + 1] = at
  return list
end

-- Returns the slopes of those elements of a tensor (number -> slope), the largest of them, and the
-- least that can be told from rounding.
local function measure(loss, tensor, elements)
  local list, largest, least
  for _, row in ipairs(STEPS) do
    list, largest, least = {}, 0.0, row[2]
    for _, i in ipairs(elements) do
      list[i] = slope(loss, tensor, i, row[1])
      largest = math.max(largest, math.abs(list[i]))
    end
    if largest >= least then break end
  end
  return list, largest, least
end

-- Compares loss()'s gradient in one tensor with slopes. What is near depends on the slopes alone:
-- by the gradients, one that is wrong and large, or 0 where the slopes are small, would be near.
local function compare(loss, p, tolerance, flat)
  local grad = harness.ok(p.tensor:grad(), p.name .. " has no gradient"):reshape(-1):totable()
  local list, largest, least = measure(loss, p.tensor, chosen(grad))
  if (largest < least) ~= flat then
    error(("%s has slopes of at most %g, of which %g can be told from 0"):format(p.name, largest,
      least), 3)
  end
  local near = flat and least or tolerance * largest
  for i, numeric in pairs(list) do
    if not (math.abs(numeric - grad[i]) <= near) then
      error(("%s element %d: gradient %g, by differences %g"):format(p.name, i, grad[i], numeric),
        3)
    end
  end
end

-- Compares the gradients of loss(), a number, in tensors, a list of {name=, tensor=} of which each
-- must have one, with central differences in some elements of each; the tolerance (2e-2) is
-- relative to the largest of these. flat: how the names of tensors end, as a list, on which the
-- loss does not depend; it must depend on all others.
function slopes.check(loss, tensors, tolerance, flat)
  harness.ok(#tensors > 0, "there is no tensor to compare")
  for _, p in ipairs(tensors) do p.tensor:set_grad(nil) end
  loss():backward()
  for _, p in ipairs(tensors) do
    local is_flat = false
    for _, ending in ipairs(flat or {}) do
      is_flat = is_flat or p.name:sub(-#ending) == ending
    end
    compare(loss, p, tolerance or 2e-2, is_flat)
  end
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
