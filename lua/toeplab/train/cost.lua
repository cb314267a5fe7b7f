-- train/cost.lua: measures the time and the memory of an operator, and fits how they grow.
local core = require "toeplab.core"
local suggest = require "toeplab.base.suggest"

local cost = {}

local LEAST, MOST = 3, 1000 -- numbers of calls that are timed

-- Returns the shortest time of a call of fn() in seconds. It makes at least three calls, and goes
-- on until they took `seconds` in all (default 0.2); two suffice if each takes longer than that.
function cost.seconds(fn, seconds)
  local best, total, calls, budget = math.huge, 0.0, 0, seconds or 0.2
  while calls < MOST and (total < budget or calls < LEAST) and not (calls >= 2 and best > budget) do
    local began = core.sys.clock()
    fn()
    local took = core.sys.clock() - began
    best, total, calls = math.min(best, took), total + took, calls + 1
  end
  return best
end

-- Returns the peak bytes of tensors and scratch buffers while fn() runs, minus those in use before.
function cost.bytes(fn)
  collectgarbage()
  collectgarbage()
  local before = core.memory().live
  core.memory_reset_peak()
  fn()
  return core.memory().peak - before
end

-- Measures one forward application of a backend's operator with given coefficients: returns
-- {seconds=, bytes=}. The bytes include the plan, coefficients, input and output. o holds backend,
-- options, length, dim, batch (default 1), causal, and budget, the seconds to spend on timing.
function cost.operator(o)
  local shape, result = { o.batch or 1, o.length, o.dim }, {}
  core.no_grad(function()
    result.bytes = cost.bytes(function()
      local operator <close> = core.tno(o.backend, o.length, o.dim, o.causal, o.options)
      local stream, params = core.stream(1, "cost"), {}
      local points = operator:points():dim(1)
      local coef = stream:normal(core.zeros(points, operator:width() * o.dim), 0, 1)
      local x = stream:normal(core.zeros(shape), 0, 1)
      for i, p in ipairs(operator:params()) do
        params[i] = stream:normal(core.zeros(p.shape), 0, 1)
      end
      result.seconds = cost.seconds(function()
        local y <close> = operator:apply(coef, params, x)
      end, o.budget)
    end)
  end)
  return result
end

-- Returns the exponent e of y ~ x^e, fitted by least squares on logarithms to the points with x at
-- least `least` (default 0), or nil for fewer than two points. Values that are not above 0 are left
-- out.
function cost.exponent(x, y, least)
  local n, sx, sy, sxx, sxy = 0, 0, 0, 0, 0
  for i = 1, #x do
    if x[i] >= (least or 0) and x[i] > 0 and y[i] > 0 and y[i] < math.huge then
      local u, v = math.log(x[i]), math.log(y[i])
      n, sx, sy, sxx, sxy = n + 1, sx + u, sy + v, sxx + u * u, sxy + u * v
    end
  end
  local spread = n * sxx - sx * sx
  return n >= 2 and spread > 0 and (n * sxy - sx * sy) / spread or nil
end

return suggest.strict("tl.cost", cost)
