-- test_ski.lua -- the backend ski from Lua: its options, its points, a layer that trains with it.

local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function random(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1)
end

local function listed()
  for _, backend in ipairs(core.backends()) do
    if backend.name == "ski" then return backend end
  end
end

test("its options are listed, with their defaults", function()
  local defaults = {}
  for _, o in ipairs(listed().options) do
    defaults[o.name] = o.default
    ok(#o.help > 0)
  end
  eq(defaults, { inducing = "64", taps = "32", interpolation = "linear", lambda = "0.99",
    span = "n-1", zero = "plus", parts = "both", as_published = "0", masking = "interval" })
end)

test("options are checked", function()
  raises(core.tno, "inducing is '1'", "ski", 8, 2, false, { inducing = 1 })
  raises(core.tno, "zero is 'minus', not one of plus literal mean", "ski", 8, 2, false,
    { zero = "minus" })
  raises(core.tno, "did you mean 'lambda'", "ski", 8, 2, false, { lamda = 0.9 })
  raises(core.tno, "lambda 0 puts every lag at 0", "ski", 8, 2, false, { lambda = 0 })
  raises(core.tno, "has no causal", "ski", 8, 2, true, { as_published = true })
end)

test("points, parameters and warning", function()
  local o = core.tno("ski", 9, 4, false, { inducing = 5, taps = 3, lambda = 0.5, zero = "mean" })
  eq(o:domain(), "warp")
  eq(o:points(), { -2 ^ -8, -2 ^ -6, -2 ^ -4, -0.25, -1, 1, 0.25, 2 ^ -4, 2 ^ -6, 2 ^ -8 }, 1e-7)
  eq(o:params(), { { name = "taps", init = "normal", shape = { 3, 4 } } })
  ok(o:warning():find "lambda 0.5" and o:warning():find "exp%(%-1/h%) = 0.607")
  eq(core.tno("ski", 9, 4, false):warning(), nil)
  eq(core.tno("ski", 9, 4, false, { parts = "low-rank" }):params()[1].shape, { 0, 4 })
  eq(core.tno("ski", 9, 4, true, { parts = "sparse" }):points():dim(1), 1)
end)

-- The sum of y dy moves with each input as its gradient says.
local function check_gradients(o, coef, taps, x, dy)
  local inputs = { coef, taps, x }
  local function value()
    return core.no_grad(function() return (o:apply(coef, { taps }, x) * dy):sum():item() end)
  end
  for _, input in ipairs(inputs) do input:require_grad() end
  local loss = (o:apply(coef, { taps }, x) * dy):sum()
  loss:backward()
  for _, input in ipairs(inputs) do
    local gradient, direction, size = input:grad():clone(), random(input:shape()), 0.5
    local slope = (gradient * direction):sum():item()
    local kept = input:clone()
    local function at(step)
      core.no_grad(function() input:copy(kept + direction * step) end)
      return value()
    end
    eq((at(size) - at(-size)) / (2 * size), slope, 1e-4 * math.max(1, math.abs(slope)))
    core.no_grad(function() input:copy(kept) end)
  end
end

test("gradients agree with slopes", function()
  for _, causal in ipairs { false, true } do
    for _, interpolation in ipairs { "linear", "cubic" } do
      local o = core.tno("ski", 70, 3, causal, { inducing = 9, taps = 4,
        interpolation = interpolation })
      local coef, taps = random(o:points():dim(1), 3), random(4, 3)
      check_gradients(o, coef, taps, random(2, 70, 3), random(2, 70, 3))
    end
  end
end)

test("both forms of causal masking are the same operator", function()
  local x, coef, taps = random(2, 100, 3), random(12, 3), random(4, 3)
  local function y(masking)
    local o = core.tno("ski", 100, 3, true, { inducing = 12, taps = 4, masking = masking })
    return o:apply(coef, { taps }, x)
  end
  eq(y "token", y "interval", 1e-4)
end)

-- A layer whose kernel is a straight line of the warped lag, at any length.
test("a layer applies, trains and takes any length", function()
  local slope = core.ones(1, 4):require_grad()
  local layer = nn.TNO(4, { causal = false, backend = "ski", decay = "none",
    backend_options = { inducing = 8, taps = 5 },
    encoder = function(points) return core.matmul(points:reshape(-1, 1), slope) end })
  for _, n in ipairs { 1, 2, 7, 64 } do
    local x = random(2, n, 4)
    eq(layer(x):shape(), { 2, n, 4 })
  end
  local x = random(2, 33, 4);
  (layer(x) * layer(x)):sum():backward()
  local taps = layer:parameters()[1]
  eq(taps.tensor:shape(), { 5, 4 })
  ok(core.abs(taps.tensor:grad()):amax():item() > 0)
  ok(core.abs(slope:grad()):amax():item() > 0)
  eq(layer:dense(16):shape(), { 4, 16, 16 })
end)

test("equal layers share a plan; a different last digit of lambda makes another", function()
  local function operator(lambda)
    local layer = nn.TNO(2, { causal = true, backend = "ski", decay = "none",
      backend_options = { inducing = 4, lambda = lambda } })
    return layer, layer:plan(20).operator
  end
  local a, of_a = operator(0.9)
  local b, of_b = operator(0.9)
  local c, of_c = operator(0.9 + 2 ^ -53)
  ok(a ~= b and rawequal(of_a, of_b))
  ok(a ~= c and not rawequal(of_a, of_c))
end)

test("a layer without taps has an empty parameter and trains", function()
  local layer = nn.TNO(2, { causal = true, backend = "ski", decay = "none",
    backend_options = { inducing = 4, parts = "low-rank" },
    encoder = function(points) return core.concat({ points:reshape(-1, 1),
      points:reshape(-1, 1) }, 2) end })
  eq(layer:count(), 0)
  local x = random(1, 20, 2):require_grad()
  layer(x):sum():backward()
  ok(core.abs(x:grad()):amax():item() > 0)
end)

t.done()
