-- verify/gradcheck.lua: compares gradients with central differences, for the user's own layers and
-- operators.
--
--   local worst, rows = tl.gradcheck(function() return layer(x) end, layer:parameters())
--   tl.gradcheck(function() return tl.silu(x) * x end, { x })
--
-- The loss is the result if it has one element, else the sum of the results times random numbers,
-- accumulated in float64. At a kink, such as relu at 0, gradient and difference differ.
local class = require "toeplab.nn.class"
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local options = require "toeplab.base.options"

local field = options.field

local spec = options.declare "tl.gradcheck" {
  { "step", field { default = 1e-2, min = 1e-6, max = 1 }, "step of the differences" },
  { "most", field { default = 32, min = 1 }, "elements tested per tensor" },
  { "seed", field { default = 1, min = 0 }, "seed of the chosen elements and random numbers" },
}

-- Returns {name=, tensor=} for each entry: a tensor or, as from module:parameters(), a table.
local function entries(list)
  if type(list) ~= "table" or #list == 0 then
    error("gradcheck: takes a list of tensors, or a module's parameters()", 3)
  end
  local all = {}
  for i, entry in ipairs(list) do
    local tensor = type(entry) == "table" and entry.tensor or entry
    if not class.istensor(tensor) or tensor:type() ~= "float32" then
      error(("gradcheck: entry %d is not a float32 tensor"):format(i), 3)
    end
    all[i] = { name = type(entry) == "table" and entry.name or "tensor " .. i, tensor = tensor }
  end
  return all
end

-- Returns the sum of y times weights, accumulated in float64.
local function loss(fn, weights)
  local y = core.no_grad(fn):reshape(-1):totable()
  local sum = 0.0
  for i, w in ipairs(weights) do sum = sum + w * y[i] end
  return sum
end

-- Returns the slopes of the loss by the elements of t at places (from 0). Restores each element,
-- even if fn raises an error.
local function differences(fn, weights, t, places, step)
  local list = {}
  for i, place in ipairs(places) do
    local element = t:view(place, { 1 })
    local was, sides = element:item(), {}
    local restore <close> = defer(function() element:fill(was) end)
    for s, sign in ipairs { 1, -1 } do
      element:fill(was + sign * step)
      sides[s] = { loss(fn, weights), element:item() }
    end
    list[i] = (sides[1][1] - sides[2][1]) / (sides[1][2] - sides[2][2])
  end
  return list
end

local function compare(name, got, want)
  local row = { name = name, checked = #want, error = 0.0 }
  local worst, largest, at = 0.0, 0.0, 1
  for i, slope in ipairs(want) do
    largest = math.max(largest, math.abs(slope), math.abs(got[i]))
    local apart = math.abs(got[i] - slope)
    if apart ~= apart or apart > worst then worst, at = apart, i end
  end
  if largest == 0 then largest = 1.0 end -- all slopes are 0 or NaN: the error is absolute
  row.error = worst / largest
  row.gradient, row.difference = got[at], want[at]
  return row
end

-- Backpropagates 1 through fn(), or random numbers if it has several elements.
local function backpropagate(fn, stream)
  local y = fn()
  if not class.istensor(y) then
    error("gradcheck: the function must return a tensor, got " .. type(y), 0)
  end
  local weights = core.ones(y:shape())
  if y:numel() > 1 then stream:normal(weights, 0, 1) end
  y:backward(weights)
  return weights:reshape(-1):totable()
end

-- Stores the gradients of the tensors in their entries, and restores the tensors' own gradients.
local function gradients(fn, all, stream)
  for _, entry in ipairs(all) do
    entry.needed, entry.had = entry.tensor:requires_grad(), entry.tensor:grad()
    entry.tensor:require_grad():set_grad(nil)
  end
  local ok, weights = pcall(backpropagate, fn, stream)
  for _, entry in ipairs(all) do
    entry.grad = entry.tensor:grad()
    entry.tensor:set_grad(entry.had)
    if not entry.needed then entry.tensor:require_grad(false) end
  end
  return ok and weights or error(weights, 0)
end

-- Checks the gradients of fn, a function without arguments whose result, a tensor, depends on the
-- tensors of list. given: step, most, seed. Returns the worst relative error, max |gradient -
-- difference| over the larger maximum of the two, and for each tensor {name=, error=, checked=,
-- gradient=, difference=}, the last two where they differ most.
return function(fn, list, given)
  local o = options.check("gradcheck", spec, given or {})
  local all, stream = entries(list), core.stream(o.seed, "gradcheck")
  if type(fn) ~= "function" then
    error("gradcheck: the first argument is a function, as in tl.gradcheck(function() "
      .. "return f(x) end, { x })", 2)
  end
  local weights = gradients(fn, all, stream)
  if loss(fn, weights) ~= loss(fn, weights) then
    error("gradcheck: two calls of the function differ: call eval() of a model with dropout", 2)
  end
  local rows, worst = {}, 0.0
  for k, entry in ipairs(all) do
    local count, places, got = entry.tensor:numel(), {}, {}
    local order = stream:permutation(count):totable()
    local flat = entry.grad and entry.grad:reshape(-1)
    for i = 1, math.min(o.most, count) do
      places[i] = order[i]
      got[i] = flat and flat:get(order[i] + 1) or 0.0
    end
    rows[k] = compare(entry.name, got, differences(fn, weights, entry.tensor, places, o.step))
    worst = math.max(worst, rows[k].error)
    if rows[k].error ~= rows[k].error then worst = rows[k].error end
  end
  return worst, rows
end
