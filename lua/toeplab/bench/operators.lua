-- bench/operators.lua: defines the benchmarks of single operators: the work of each, its FLOP, and
-- its minimal memory traffic, which reads or writes every array once per pass.
local core = require "toeplab.core"

local operators = { names = {} }
local list = {}

local FLOAT = 4 -- bytes

-- Registers an operator. make(p, normal, stream) returns {forward=, leaves=}; normal(...) returns
-- random numbers. forward, backward: functions of p that return the FLOP and the number of floats
-- moved; without backward the operator has no gradients.
local function add(name, make, forward, backward)
  list[name] = { make = make, forward = forward, backward = backward }
  operators.names[#operators.names + 1] = name
end

local function size(p) return p.b * p.n * p.dim end
local function rows(p) return p.b * p.n end

-- Counts traffic only: `times` times the size of x.
local function passes(times)
  return function(p) return 0, times * size(p) end
end

-- Makes the work f(x) for a single input x [b,n,dim].
local function on_x(f)
  return function(p, normal)
    local x = normal(p.b, p.n, p.dim):require_grad()
    return { forward = function() return f(x, p) end, leaves = { x } }
  end
end

-- ---- Elementwise -------------------------------------------------------------------------------

add("copy", on_x(function(x) return x:clone() end), passes(2))

add("add", function(p, normal)
  local a, b = normal(p.b, p.n, p.dim), normal(p.b, p.n, p.dim)
  return { forward = function() return a + b end }
end, passes(3))

add("add-row", function(p, normal)
  local a, b = normal(p.b, p.n, p.dim), normal(p.dim)
  return { forward = function() return a + b end }
end, passes(2))

add("silu", on_x(function(x) return core.silu(x) end), passes(2), passes(3))

add("gate", function(p, normal)
  local a, b = normal(p.b, p.n, p.dim):require_grad(), normal(p.b, p.n, p.dim):require_grad()
  return { forward = function() return core.gate("silu", a, b) end, leaves = { a, b } }
end, passes(3), passes(5))

add("dropout", function(p, normal, stream)
  local x = normal(p.b, p.n, p.dim):require_grad()
  return { forward = function() return stream:dropout(x, 0.1) end, leaves = { x } }
end, passes(2), passes(2))

add("normal", function(p, _, stream)
  local x = core.zeros(p.b, p.n, p.dim)
  return { forward = function() return stream:normal(x, 0, 1) end }
end, passes(1))

-- ---- Sums and shapes ----------------------------------------------------------------------------

add("sum-of-rows", function(p, normal)
  local x = normal(rows(p), p.dim):require_grad()
  return { forward = function() return x:sum(1) end, leaves = { x } }
end, passes(1), passes(1))

add("sum-along-rows", on_x(function(x) return x:sum(-1) end), passes(1), passes(1))

add("cumsum", on_x(function(x) return x:cumsum(2) end), passes(2), passes(2))

add("transpose", on_x(function(x) return x:transpose(2, 3) end), passes(2), passes(2))

add("concat", function(p, normal)
  local a, b = normal(rows(p), p.dim):require_grad(), normal(rows(p), p.dim):require_grad()
  return { forward = function() return core.concat({ a, b }, 2) end, leaves = { a, b } }
end, passes(4), passes(4))

add("gather", function(p, normal, stream)
  local table_, ids = normal(p.vocab, p.dim):require_grad(), {}
  for i = 1, rows(p) do ids[i] = stream:below(p.vocab) end
  ids = core.ids(ids)
  return { forward = function() return table_:gather(ids) end, leaves = { table_ } }
end, passes(2), function(p) return 0, size(p) + p.vocab * p.dim end)

-- ---- Rows ---------------------------------------------------------------------------------------

add("softmax", on_x(function(x) return core.softmax(x) end), passes(2), passes(3))

local norms = {
  ["layer-norm"] = function(x) return core.layer_norm(x, nil, nil, 1e-5) end,
  ["simple-rms-norm"] = function(x) return core.simple_rms_norm(x, 1e-8) end,
}
for _, name in ipairs { "layer-norm", "simple-rms-norm" } do
  add(name, on_x(norms[name]), passes(2), passes(3))
end

add("batch-norm", function(p, normal)
  local x, w, b = normal(rows(p), p.dim):require_grad(), core.ones(p.dim), core.zeros(p.dim)
  local mean, var = core.zeros(p.dim), core.ones(p.dim)
  return { leaves = { x }, forward = function()
    return core.batch_norm(x, w, b, mean, var, true, 0.1, 1e-5)
  end }
end, passes(2), passes(3))

local function logits(p) return math.max(1, size(p) // p.vocab) end

-- Returns random targets for `count` rows.
local function targets(p, stream, count)
  local ids = {}
  for i = 1, count do ids[i] = stream:below(p.vocab) end
  return core.ids(ids)
end

add("cross-entropy", function(p, normal, stream)
  local x, want = normal(logits(p), p.vocab):require_grad(), targets(p, stream, logits(p))
  return { forward = function() return core.cross_entropy(x, want) end, leaves = { x } }
end, function(p) return 0, logits(p) * p.vocab end,
function(p) return 0, 2 * logits(p) * p.vocab end)

-- ---- Products and transforms --------------------------------------------------------------------

add("linear", function(p, normal)
  local x, w = normal(rows(p), p.dim):require_grad(), normal(p.dim, p.dim):require_grad()
  return { forward = function() return core.linear(x, w) end, leaves = { x, w } }
end, function(p) return 2 * size(p) * p.dim, 2 * size(p) + p.dim ^ 2 end,
function(p) return 4 * size(p) * p.dim, 3 * size(p) + 2 * p.dim ^ 2 end)

add("linear-cross-entropy", function(p, normal, stream)
  local x, w = normal(rows(p), p.dim):require_grad(), normal(p.vocab, p.dim):require_grad()
  local want = targets(p, stream, rows(p))
  return { leaves = { x, w }, forward = function()
    return core.linear_cross_entropy(x, w, nil, want)
  end }
end, function(p) return 2 * size(p) * p.vocab, size(p) + p.vocab * p.dim end,
function(p) return 4 * size(p) * p.vocab, 2 * size(p) + 2 * p.vocab * p.dim end)

local TAPS = 4

add("depthwise-conv", function(p, normal)
  local x, taps = normal(p.b, p.n, p.dim):require_grad(), normal(TAPS, p.dim):require_grad()
  return { forward = function() return core.depthwise_conv(x, taps, 0) end, leaves = { x, taps } }
end, function(p) return 2 * TAPS * size(p), 2 * size(p) end,
function(p) return 4 * TAPS * size(p), 3 * size(p) end)

local STATE, HEAD = 16, 64 -- numbers of a channel's state; channels of a head

-- The exponential counts as one operation.
add("selective-scan", function(p, normal)
  local leaves = { normal(p.b, p.n, p.dim), core.softplus(normal(p.b, p.n, p.dim)),
    -core.exp(normal(p.dim, STATE)), normal(p.b, p.n, STATE), normal(p.b, p.n, STATE) }
  for i, t in ipairs(leaves) do leaves[i] = t:require_grad() end
  return { forward = function() return core.selective_scan(table.unpack(leaves)) end,
    leaves = leaves }
end, function(p) return 7 * STATE * size(p), 3 * size(p) + 2 * STATE * rows(p) end,
function(p) return 18 * STATE * size(p), 5 * size(p) + 4 * STATE * rows(p) end)

-- Returns the channels of a head.
local function width_of(p) return p.dim // math.max(1, p.dim // HEAD) end

add("linear-recurrence", function(p, normal)
  local width, leaves = width_of(p), {}
  local heads = p.dim // width
  for i = 1, 3 do leaves[i] = normal(p.b, p.n, heads, width) end
  leaves[4] = -core.softplus(normal(p.b, p.n, heads, width))
  for i, t in ipairs(leaves) do leaves[i] = t:require_grad() end
  return { forward = function() return core.linear_recurrence(table.unpack(leaves)) end,
    leaves = leaves }
end, function(p) return 5 * width_of(p) * size(p), 5 * size(p) end,
function(p) return 14 * width_of(p) * size(p), 9 * size(p) end)

-- Causal: of n x n scores, half are computed; backward computes them again.
add("attention", function(p, normal)
  local width, leaves = width_of(p), {}
  for i = 1, 3 do leaves[i] = normal(p.b, p.dim // width, p.n, width):require_grad() end
  local o = { scale = width ^ -0.5, causal = true }
  return { leaves = leaves, forward = function()
    return core.attention(leaves[1], leaves[2], leaves[3], o)
  end }
end, function(p) return 2 * p.n * size(p), 4 * size(p) end,
function(p) return 5 * p.n * size(p), 8 * size(p) end)

local function transform(p) return 2.5 * size(p) * math.log(p.n, 2), 2 * size(p) end

add("rfft", on_x(function(x) return core.rfft(x, 2) end), transform, transform)

add("decay", function(p, normal)
  local coef, gamma = normal(rows(p), p.dim):require_grad(), core.full({ p.dim }, 0.99)
  local lags = core.range(0, rows(p) - 1)
  return { forward = function() return core.decay(coef, lags, gamma) end, leaves = { coef } }
end, passes(2), passes(2))

-- ---- Optimisers ---------------------------------------------------------------------------------

local TENSORS = 64 -- about a model's number

local function parts(p, make)
  local each, tensors = math.max(1, size(p) // TENSORS), {}
  for i = 1, TENSORS do tensors[i] = make(each) end
  return tensors
end

add("adam", function(p, normal)
  local w, g = parts(p, function(n) return normal(n):require_grad() end), nil
  local m, v = parts(p, core.zeros), parts(p, core.zeros)
  for _, t in ipairs(w) do
    g = g or normal(t:numel())
    t:set_grad(g:clone())
  end
  local step = { kind = "adam", lr = 1e-6, beta1 = 0.9, beta2 = 0.98, eps = 1e-8,
    weight_decay = 0, step = 1 }
  return { forward = function() core.adam_step(w, m, v, step) end }
end, passes(7))

add("norm-of-gradients", function(p, normal)
  local w = parts(p, function(n)
    local t = core.zeros(n):require_grad()
    t:set_grad(normal(n))
    return t
  end)
  return { forward = function() core.grad_norm(w) end }
end, passes(1))

-- ---- Access ------------------------------------------------------------------------------------

-- Returns whether the operator has gradients.
function operators.has_gradient(name) return list[name].backward ~= nil end

-- Returns the work of p.op: {forward=, leaves=}.
function operators.make(p, stream)
  return list[p.op].make(p, function(...) return stream:normal(core.zeros(...), 0, 1) end, stream)
end

-- Returns the FLOP and bytes of a pass.
function operators.count(p)
  local flop, floats = list[p.op].forward(p)
  if p.pass ~= "fwd" then
    local more, others = list[p.op].backward(p)
    flop, floats = flop + more, floats + others
  end
  return flop, FLOAT * floats
end

return operators
