-- train/cost.lua: what an operator costs, in seconds and bytes, and how that grows.
local core = require "toeplab.core"
local suggest = require "toeplab.base.suggest"

local cost = {}

local LEAST, MOST = 3, 1000 -- calls

-- The shortest time that fn() takes, over at least three calls and until they took seconds in all
-- (default 0.2); over two once a call takes longer than that.
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

-- The most bytes of tensors and scratch in use at once while fn() runs, beyond those before.
function cost.bytes(fn)
  collectgarbage()
  collectgarbage()
  local before = core.memory().live
  core.memory_reset_peak()
  fn()
  return core.memory().peak - before
end

-- What applying a backend's operator once costs, its coefficients given and without gradients:
-- {seconds=, bytes=}; the bytes are those of the plan, coefficients, input and output. o: backend,
-- options, length, dim, batch (1), causal, budget (seconds for the timing).
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

-- The exponent e of y ~ x^e by least squares on logarithms, over the points with x at least least
-- (default 0); nil for fewer than two. What is not above 0 is left out.
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
