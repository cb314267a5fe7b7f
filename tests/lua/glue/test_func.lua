-- test_func.lua -- differentiable functions of the script, and gradients of chosen tensors alone.
local t = require "harness"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function leaf(...)
  return tl.stream_of("test"):normal(core.zeros(...), 0, 1):require_grad()
end

local function named(list)
  for i, x in ipairs(list) do list[i] = { name = "x" .. i, tensor = x } end
  return list
end

-- ---- tl.func ------------------------------------------------------------------------------------

local cube = tl.func { name = "cube",
  forward = function(saved, x)
    ok(not core.recording())
    saved.x = x
    return x * x * x
  end,
  backward = function(saved, dy)
    ok(not core.recording())
    return dy * saved.x * saved.x * 3
  end }

-- scaled(a, "times", b, k): k a b and a - b
local scaled = tl.func { name = "scaled",
  forward = function(saved, a, word, b, k)
    eq(word, "times")
    saved.a, saved.b, saved.k = a, b, k
    return a * b * k, a - b
  end,
  backward = function(saved, dproduct, ddifference)
    return dproduct * saved.b * saved.k + ddifference, nil,
      dproduct * saved.a * saved.k - ddifference, nil
  end }

test("func: gradients agree with differences", function()
  tl.seed(1)
  local a, b = leaf(2, 3), leaf(2, 3)
  for name, y in pairs {
    one = function() return cube(a) + b end,
    twice = function() return cube(cube(a)) * cube(b) end,
    both = function() local p, d = scaled(a, "times", b, 0.5) return p * d end,
    first = function() return (scaled(a, "times", b, 2)) end,
    second = function() return (select(2, scaled(a, "times", b, 2))) end,
    result = function() return cube(a * b):tanh() end,
  } do
    slopes.check(function() return slopes.probe(y()) end, named { a, b })
    ok(core.tape_length() == 0, name)
  end
  eq(cube(a), core.no_grad(cube, a))
  ok(cube(a):requires_grad() and not core.no_grad(cube, a):requires_grad())
  ok(not cube(core.ones(2)):requires_grad())
  core.tape_clear()
end)

test("func: of what is a result of nothing, an input, or an index", function()
  local x = core.tensor({ 3, 1, 2 }):require_grad()
  local same = tl.func { forward = function(_, v) return v, v, (v:argsort()) end,
    backward = function(_, dy, again, order)
      eq(order:shape(), { 3 })
      return dy + again * 10
    end }
  local y, again, order = same(x)
  eq({ order:type(), order:requires_grad() }, { "int32", false })
  eq(order, { 1, 2, 0 });
  (y + again * 2):sum():backward()
  eq(x:grad(), { 21, 21, 21 })
  local source = tl.func { forward = function() return core.ones(2) end, backward = ok }
  ok(not source():requires_grad())
end)

test("func: inside a module that is trained", function()
  tl.seed(2)
  local Cubic = tl.nn.class("Cubic", { dim = "int" }, { "dim" })
  function Cubic:build(o) self.linear = tl.nn.Linear(o.dim, o.dim) end
  function Cubic:forward(x) return cube(self.linear(x)) end
  local model, x = Cubic(3), core.ones(2, 3)
  slopes.check(function() return slopes.probe(model(x)) end, slopes.trained(model))
  local opt, first, last = tl.optim.adam(model, { lr = 0.05 }), nil, nil
  for _ = 1, 60 do
    local loss = core.square(model(x) - 0.5):mean()
    first, last = first or loss:item(), loss:item()
    model.linear.weight:set_grad(nil)
    model.linear.bias:set_grad(nil)
    loss:backward()
    opt:step()
  end
  ok(last < 0.1 * first, last)
end)

test("func: backward may record, and so compute an activation again", function()
  tl.seed(3)
  local layer, calls = tl.nn.Linear(3, 3), 0
  local function inner(x)
    calls = calls + 1
    return core.gelu(layer(x))
  end
  local again = tl.func { name = "again",
    forward = function(saved, x)
      saved.x = x
      return inner(x)
    end,
    backward = function(saved, dy)
      local x <close> = saved.x:clone():require_grad()
      core.recording(true)
      inner(x):backward(dy)
      return x:grad()
    end }
  local x = leaf(2, 3)
  local function gradients(f)
    for _, p in ipairs(layer:parameters()) do p.tensor:set_grad(nil) end
    x:set_grad(nil)
    slopes.probe(core.tanh(f(x * 2)) * x):backward()
    eq({ core.tape_length(), core.recording() }, { 0, true })
    return { x:grad():totable(), layer.weight:grad():totable() }
  end
  local want = gradients(inner)
  eq(gradients(again), want, 1e-6)
  eq(calls, 3)
end)

test("func: errors name the function", function()
  local x, y = core.ones(2):require_grad(), core.ones(2):require_grad()
  local function of(forward, backward)
    return tl.func { name = "mine", forward = forward, backward = backward }
  end
  local function double(_, v) return v * 2 end
  for message, results in pairs {
    ["mine: backward returns 0 values for 2 inputs"] = {},
    ["mine: backward returns 1 values for 2 inputs"] = { core.ones(2) },
    ["mine: backward returns 3 values for 2 inputs"] = { core.ones(2), core.ones(2), x },
    ["mine: value 2 of backward is a string, not a tensor or nil"] = { core.ones(2), "x" },
    ["mine: the gradient of input 1 is %[3%], the input %[2%]"] = { core.ones(3), core.ones(2) },
    ["mine: the gradient of input 2 is not float32"] = { core.ones(2), core.ids { 1, 2 } },
  } do
    local f = of(double, function() return table.unpack(results) end)
    raises(function() f(x, y):sum():backward() end, message)
    eq(core.tape_length(), 0)
  end
  raises(of(function() end, double), "mine: forward returns no tensor")
  raises(of(function() return 1 end, double), "mine: value 1 of forward is a number")
  for message, spec in pairs { ["forward is a nil, not a function"] = { backward = ok },
    ["backward is a table"] = { forward = ok, backward = {} }, ["unknown option 'back'"] = {
      forward = ok, back = ok }, ["name is a boolean"] = { name = true } } do
    raises(tl.func, message, spec)
  end
end)

test("func: an error inside backward arrives as it was raised", function()
  local x, object = core.ones(2):require_grad(), {}
  local f = tl.func { forward = function(_, v) return v * 1 end,
    backward = function() error(object) end }
  local function fail(g) g(x):sum():backward() end
  for _, run in ipairs { pcall, coroutine.wrap(pcall) } do
    local fine, e = run(fail, f)
    ok(not fine and e == object)
  end
  raises(fail, "test_func.lua:%d+: by hand", tl.func { forward = function(_, v) return v * 1 end,
    backward = function() error("by hand") end })
  raises(fail, "matmul: a is %[2%]", tl.func { forward = function(_, v) return v * 1 end,
    backward = function(_, dy) return core.matmul(dy, dy) end })
  raises(fail, "attempt to yield", tl.func { forward = function(_, v) return v * 1 end,
    backward = coroutine.yield })
  cube(x):sum():backward() -- and nothing of them is left
  eq(x:grad(), { 3, 3 })
end)

test("func: the tape is used once, and what was saved must not change", function()
  local x = core.ones(2):require_grad()
  local y = cube(x)
  y:sum():backward()
  raises(function() return y * 2 end, "tape is gone")
  local z = core.ones(2)
  local f = tl.func { forward = function(saved, v) saved.z = z return v * z end,
    backward = function(saved, dy) return dy * saved.z end }
  local product = f(x)
  z:fill(2)
  raises(function() product:sum():backward() end, "changed in place")
end)

test("func: an error that is nil is raised as nil", function()
  local x = core.ones(2):require_grad()
  local f = tl.func { forward = function(_, v) return v * 1 end,
    backward = function() error(nil) end }
  eq({ pcall(function() f(x):sum():backward() end) }, { false })
end)

test("func: backward must not write to the gradients that it is given", function()
  local x = core.ones(2):require_grad()
  local f = tl.func { name = "mine", forward = function(_, v) return v * 2 end,
    backward = function(_, dy) dy:fill(100) return dy end }
  raises(function() (x * 1 + f(x)):sum():backward() end,
    "mine: backward changed a gradient in place that it was given")
end)

test("func: backward may close any tensor", function()
  for _, kind in ipairs { "leaf", "result" } do
    local x, y = core.ones(2):require_grad(), nil
    local chosen = kind == "leaf" and x or x * 2
    local f = tl.func { forward = function(_, v) return v * 3 end,
      backward = function(_, dy)
        local dx = dy * 3
        chosen:close()
        y:close()
        dy:close()
        return dx
      end }
    y = f(chosen):sum()
    eq(tl.grad(y, { chosen }), { { 3, 3 } })
  end
end)

test("func: backward must not detach a tensor whose gradient is computed", function()
  local x = core.ones(2):require_grad()
  local f = tl.func { forward = function(_, v) return v * 3 end,
    backward = function(_, dy) x:require_grad(false) return dy end }
  raises(function() tl.grad(f(x):sum(), x) end, "the gradient of %[2%] is being computed")
end)

test("func: keeps what it saved as long as the tape needs it", function()
  local x, before = core.ones(1000):require_grad(), nil
  local f = tl.func { forward = function(saved, v) saved.list = { v * 1, v * 2 } return v * 3 end,
    backward = function(_, dy) return dy end }
  local function count() collectgarbage() collectgarbage() return core.memory().tensors end
  before = count()
  local y = f(x)
  ok(count() >= before + 3)
  core.tape_clear()
  y:close()
  eq(count(), before)
end)

-- ---- tl.grad ------------------------------------------------------------------------------------

test("grad: of leaves and results, without touching any gradient", function()
  tl.seed(4)
  local a, b, other = leaf(2, 3), leaf(3), leaf(2, 3)
  a:set_grad(core.full({ 2, 3 }, 7))
  local function loss()
    local product = a * b
    return slopes.probe(core.tanh(product) * other), product
  end
  for _, p in ipairs { b, other } do p:set_grad(nil) end
  local y, product = loss()
  local list = tl.grad(y, { a, product, b, a })
  eq({ a:grad():totable()[1], b:grad(), other:grad() }, { { 7, 7, 7 } })
  eq(core.tape_length(), 0)
  a:set_grad(nil)
  loss():backward()
  eq({ list[1], list[3], list[4] }, { a:grad(), b:grad(), a:grad() })
  eq((list[2] * b), a:grad(), 1e-6)
  eq((list[2] * a):sum(1), b:grad(), 1e-6)
  list[1]:fill(0)
  eq(list[4], a:grad()) -- a tensor of its own
  eq(tl.grad((loss()), b), b:grad())
end)

test("grad: zeros where the loss does not depend on a tensor; of the loss, one", function()
  local a, b = core.ones(2):require_grad(), core.ones(3):require_grad()
  local y = core.square(a):sum()
  eq(tl.grad(y, { b, y, a }), { { 0, 0, 0 }, 1, { 2, 2 } })
  local z = a * 3
  eq(tl.grad(core.max(z, 5):sum(), z), { 0, 0 })
  eq(tl.grad(core.square(a):sum(), {}), {})
  eq({ a:grad(), b:grad() }, {})
end)

test("grad: through functions of the script, and a penalty on a gradient", function()
  local x = core.tensor({ 1, 2 }):require_grad()
  eq(tl.grad(cube(x):sum(), x), { 3, 12 })
  local p, d = scaled(x, "times", core.ones(2), 2)
  eq(tl.grad((p + d):sum(), x), { 3, 3 })
  eq(x:grad(), nil)
end)

test("grad: inside the backward of a function that grad goes through", function()
  local x = core.tensor({ 1, 2 }):require_grad()
  local w, z = core.ones(2):require_grad(), nil
  local function through(of)
    local f = tl.func { forward = function(_, v) return v * v end,
      backward = function(_, dy)
        core.recording(true)
        return tl.grad((z * z * w * dy):sum(), of())
      end }
    z = x * 3
    return tl.grad(f(z):sum(), { z, x })
  end
  eq(through(function() return z end), { { 6, 12 }, { 18, 36 } }) -- dz of both passes is 2 z
  eq(through(function() return w end), { { 9, 36 }, { 27, 108 } }) -- z^2, whatever dz is inside
end)

test("grad: refuses what it cannot differentiate, and leaves the tape for another try", function()
  local x = core.ones(2):require_grad()
  local y = x * x
  raises(tl.grad, "the loss is %[2%], not one number", y, x)
  raises(tl.grad, "tensor 2, %[3%], requires no gradient", y:sum(), { x, core.ones(3) })
  raises(tl.grad, "tensor expected, got nil", y:sum())
  raises(tl.grad, "loss was not recorded", core.ones(1), x)
  y:sum():backward()
  eq(x:grad(), { 2, 2 })
  raises(tl.grad, "tensor 1, %[2%], is a result whose tape is gone", x:sum(), y)
  core.tape_clear()
end)

t.done()
