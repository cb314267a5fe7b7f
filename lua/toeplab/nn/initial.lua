-- nn/initial.lua: creates parameters and draws their initial values from the random stream "init",
-- which tl.seed restarts.

local defer = require "toeplab.base.defer"
local streams = require "toeplab.base.streams"
local suggest = require "toeplab.base.suggest"

local init = {}
local drawing = true

-- Makes t require a gradient, unless trained is false, and returns it.
local function parameter(t, trained)
  if trained == false then return t end
  return t:require_grad(true)
end

-- Calls fn(...) with all random initial values left at 0, which is faster for a model that is only
-- described, not trained.
local function without_init(fn, ...)
  local before = drawing
  local restore <close> = defer(function() drawing = before end)
  drawing = false
  return fn(...)
end

-- The two initialisers below fill t and return it. They do nothing within without_init.
function init.uniform(t, low, high)
  return drawing and streams.get("init"):uniform(t, low, high) or t
end

function init.normal(t, mean, deviation)
  return drawing and streams.get("init"):normal(t, mean, deviation) or t
end

-- PyTorch's default for a linear map with k inputs: weight and bias ~ U(-1/sqrt k, 1/sqrt k).
local function torch(weight, bias)
  local bound = 1 / math.sqrt(math.max(weight:dim(-1), 1))
  init.uniform(weight, -bound, bound)
  if bias then init.uniform(bias, -bound, bound) end
end

-- Weight and bias ~ N(0, 0.02^2), as the maps u, v and o of a GTU start in layout B.
local function normal(weight, bias)
  init.normal(weight, 0, 0.02)
  if bias then init.normal(bias, 0, 0.02) end
end

-- Weight ~ N(0, 0.02^2) and bias 0, as in BERT.
local function bert(weight, bias)
  init.normal(weight, 0, 0.02)
  if bias then bias:fill(0) end
end

-- Weight ~ U(-a, a) with a = sqrt(6 / (inputs + outputs)) and bias 0 (Glorot & Bengio 2010), as
-- fairseq starts the output map of attention.
local function xavier(weight, bias)
  local bound = math.sqrt(6 / (weight:dim(1) + weight:dim(2)))
  init.uniform(weight, -bound, bound)
  if bias then bias:fill(0) end
end

-- Weight as in xavier, divided by sqrt 2, and bias as in torch, as fairseq starts the maps of
-- queries, keys and values.
local function xavier_input(weight, bias)
  torch(weight, bias)
  local bound = math.sqrt(3 / (weight:dim(1) + weight:dim(2)))
  init.uniform(weight, -bound, bound)
end

-- The initialisers of linear maps by name: functions of (weight [outputs,inputs], bias [outputs] or
-- nil).
init.linear = suggest.strict("nn.init.linear", {
  torch = torch, normal = normal, bert = bert, xavier = xavier, xavier_input = xavier_input,
})

return { init = init, parameter = parameter, without_init = without_init }
