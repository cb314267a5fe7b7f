-- train/cost.lua: measures the time and the memory of operators and training steps, and fits how
-- they grow.
local core = require "toeplab.core"
local line = require "toeplab.base.line"
local options = require "toeplab.base.options"
local suggest = require "toeplab.base.suggest"

local cost = {}

local field = options.field

local LEAST, MOST = 3, 1000 -- least and most timed calls

-- Returns the shortest time of a call of fn() in seconds. It makes at least three calls, and goes
-- on until they took `seconds` in all (default 0.2); two suffice if each takes longer than that. A
-- call ends when the GPU has finished.
function cost.seconds(fn, seconds)
  local best, total, calls, budget = math.huge, 0.0, 0, seconds or 0.2
  while calls < MOST and (total < budget or calls < LEAST) and not (calls >= 2 and best > budget) do
    core.synchronize()
    local began = core.sys.clock()
    fn()
    core.synchronize()
    local took = core.sys.clock() - began
    best, total, calls = math.min(best, took), total + took, calls + 1
  end
  return best
end

local Timer = {}
Timer.__index = Timer

local WARMING = 3 -- steps after a start, which make plans

-- Returns a timer of the steps of trial t. In its loop, timer:time(fn) calls fn() and returns its
-- results; after it, timer:rate() returns the steps per second, without the first three after each
-- start of the trial, which make plans; nil if there were no others.
function cost.timer(t) return setmetatable({ trial = t, spent = 0.0, count = 0 }, Timer) end

function Timer:time(fn)
  local began = core.sys.clock()
  local results = table.pack(fn())
  if self.trial.looping and self.trial.step > self.trial.first + WARMING then
    self.spent, self.count = self.spent + core.sys.clock() - began, self.count + 1
  end
  return table.unpack(results, 1, results.n)
end

function Timer:rate() return self.count > 0 and self.count / self.spent or nil end

-- Returns the peak bytes of tensors and scratch buffers while fn() runs, minus those in use before.
function cost.bytes(fn)
  collectgarbage()
  collectgarbage()
  local before = core.memory().live
  core.memory_reset_peak()
  fn()
  return core.memory().peak - before
end

local operator_spec = options.declare "tl.cost.operator" {
  { "backend", field { type = "string" }, "name of the backend" },
  { "options", field { type = "table", optional = true }, "options of the backend" },
  { "length", field { type = "int", min = 1 }, "positions" },
  { "dim", field { type = "int", min = 1 }, "channels" },
  { "batch", field { default = 1, min = 1 }, "sequences" },
  { "causal", false, "a causal operator" },
  { "budget", field { type = "number", min = 0, optional = true }, "seconds to spend on timing" },
}

-- Measures one forward application of a backend's operator with given coefficients: returns
-- {seconds=, bytes=}. The bytes include the plan, coefficients, input and output.
function cost.operator(given)
  local o = options.check("cost.operator", operator_spec, given)
  local shape, result = { o.batch, o.length, o.dim }, {}
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
        local guard <close> = operator:apply(coef, params, x)
      end, o.budget)
    end)
  end)
  return result
end

-- Returns ids [rows,n] of random tokens below vocab, the same at every call.
function cost.tokens(rows, n, vocab)
  local stream, ids = core.stream(1, "cost.tokens"), {}
  for r = 1, rows do
    ids[r] = {}
    for i = 1, n do ids[r][i] = stream:below(vocab) end
  end
  return core.ids(ids)
end

-- Measures training steps of several models in turns, so that other work on the machine slows all
-- of them alike. makers is a list of functions; each makes a model and returns a function that
-- makes one step of it. After two steps of each, which make plans, they go on until their steps
-- took `seconds` in all (default 1), and for at least three turns. A step ends when the GPU has
-- finished. Returns for each maker {seconds= (the median of its steps), bytes= (the peak with its
-- model, its gradients and the state of its optimiser)}.
function cost.in_turns(makers, seconds)
  local list, total, turns = {}, 0.0, 0
  for i, make in ipairs(makers) do
    local entry = { times = {} }
    entry.bytes = cost.bytes(function()
      entry.step = make()
      entry.step()
      entry.step()
      core.synchronize()
    end)
    list[i] = entry
  end
  while turns < MOST and (turns < LEAST or total < (seconds or 1)) do
    for _, entry in ipairs(list) do
      local began = core.sys.clock()
      entry.step()
      core.synchronize()
      local took = core.sys.clock() - began
      total = total + took
      table.insert(entry.times, took)
    end
    turns = turns + 1
  end
  local results = {}
  for i, entry in ipairs(list) do
    table.sort(entry.times)
    local half = (turns + 1) // 2
    results[i] = { bytes = entry.bytes,
      seconds = (entry.times[half] + entry.times[turns + 1 - half]) / 2 }
  end
  return results
end

-- Returns the FLOP of a training step of a model on `sequences` sequences of n positions, a float,
-- by the formulas of Module:cost: three times the forward pass, as a gradient takes two products
-- for each product of that pass. All sequences share the coefficients of Toeplitz operators, which
-- are computed once a step.
function cost.step_flop(model, n, sequences)
  local forward, shared, counted = model:cost(n), 0.0, {}
  for _, entry in ipairs(model:modules()) do -- an outer module comes before those in it
    local module = entry.module
    if module.coefficients_cost and not counted[module] then
      shared = shared + module:coefficients_cost(n)
      for _, part in ipairs(module:modules()) do counted[part.module] = true end
    end
  end
  return 3 * (sequences * forward - (sequences - 1) * shared)
end

-- Returns the exponent e of y ~ x^e, fitted by least squares on logarithms to the points with x at
-- least `least` (default 0), or nil for fewer than two points. Ignores values that are not above 0.
function cost.exponent(x, y, least)
  local u, v = {}, {}
  for i = 1, #x do
    if x[i] >= (least or 0) and x[i] > 0 and y[i] > 0 and y[i] < math.huge then
      u[#u + 1], v[#v + 1] = math.log(x[i]), math.log(y[i])
    end
  end
  return (line(u, v))
end

return suggest.strict("tl.cost", cost)
