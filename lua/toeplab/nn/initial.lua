-- nn/initial.lua: parameters and their initial values, drawn from the stream "init" (tl.seed).

local defer = require "toeplab.base.defer"
local streams = require "toeplab.base.streams"
local suggest = require "toeplab.base.suggest"

local init = {}
local drawing = true

-- A tensor made a parameter: it requires a gradient. trained = false: a fixed one.
local function parameter(t, trained)
  if trained == false then return t end
  return t:require_grad(true)
end

-- Runs fn with all random parameters left at 0, which is quicker: for looking at a model, not for
-- training it.
local function without_init(fn, ...)
  local before = drawing
  local restore <close> = defer(function() drawing = before end)
  drawing = false
  return fn(...)
end

-- Fills t with U(low, high).
function init.uniform(t, low, high)
  return drawing and streams.get("init"):uniform(t, low, high) or t
end

-- Fills t with N(mean, deviation^2).
function init.normal(t, mean, deviation)
  return drawing and streams.get("init"):normal(t, mean, deviation) or t
end

-- The torch default of a linear map with k inputs: weight and bias U(-1/sqrt k, 1/sqrt k).
local function torch(weight, bias)
  local bound = 1 / math.sqrt(math.max(weight:dim(-1), 1))
  init.uniform(weight, -bound, bound)
  if bias then init.uniform(bias, -bound, bound) end
end

-- Weight and bias N(0, 0.02^2): u, v, o of layout B.
local function normal(weight, bias)
  init.normal(weight, 0, 0.02)
  if bias then init.normal(bias, 0, 0.02) end
end

-- Weight N(0, 0.02^2), bias 0: BERT.
local function bert(weight, bias)
  init.normal(weight, 0, 0.02)
  if bias then bias:fill(0) end
end

-- Initialisers of linear maps by name: functions of (weight [o,k], bias [o] or nil).
init.linear = suggest.strict("nn.init.linear", { torch = torch, normal = normal, bert = bert })

return { init = init, parameter = parameter, without_init = without_init }
