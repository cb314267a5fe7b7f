-- test_sums.lua: the sums behind one number, or a few, are taken in float64.
local core = require "toeplab.core"
local t = require "harness"
local ok, test = t.ok, t.test

test("a product with a vector adds long sums in float64", function()
  local k, stream = 100000, core.stream(4, "long")
  local function positive(...) return stream:uniform(core.zeros(...), 0, 2) end
  for _, size in ipairs { { 1, 1 }, { 1, 3 }, { 3, 1 } } do
    local a, b = positive(size[1], k), positive(k, size[2])
    local want = (a * b:transpose(1, 2)):sum(2):reshape(size[1], size[2])
    local ta, tb = a:transpose(1, 2), b:transpose(1, 2)
    for _, y in ipairs { core.matmul(a, b), core.matmul(ta, b, true),
      core.matmul(a, tb, false, true), core.matmul(ta, tb, true, true) } do
      local off = core.abs(y / want - 1):amax():item()
      ok(off < 5e-7, ("%dx%d: %.2g"):format(size[1], size[2], off))
    end
  end
end)

-- Returns the sum of the products of all elements of two tensors, in float64.
local function dot(a, b)
  local x, y, sum = a:reshape(-1):totable(), b:reshape(-1):totable(), 0.0
  for i, value in ipairs(x) do sum = sum + value * y[i] end
  return sum
end

test("the gradient of a weight of one number keeps its digits where its terms cancel", function()
  local function by_norm(norm)
    return function(a, w) return norm(a, w, 1e-5) end
  end
  for _, norm in ipairs { by_norm(core.rms_norm), by_norm(core.scale_norm) } do
    local stream, w = core.stream(5, "cancel"), core.ones(1):require_grad()
    local a, dy = stream:normal(core.zeros(10, 64), 0, 1), stream:normal(core.zeros(10, 64), 0, 1)
    local z = core.no_grad(norm, a, w)
    local first = dy:view(0, { 1 })
    first:fill(first:item() - dot(dy, z) / z:view(0, { 1 }):item() * (1 - 1e-4));
    (norm(a, w) * dy):sum():backward()
    local want = dot(dy, z)
    local got = w:grad():item()
    ok(math.abs(got / want - 1) < 1e-6, ("%.9g, not %.9g"):format(got, want))
  end
end)

test("the gradient of a bias of the loss is summed in float64", function()
  local n, stream = 16384, core.stream(6, "bias")
  local x3, targets = stream:normal(core.zeros(n, 1), 0, 1), {}
  for i = 1, n do targets[i] = 1 end
  local bias = core.zeros(2):require_grad()
  core.linear_cross_entropy(x3, core.tensor { { 1 }, { -1 } }, bias, core.ids(targets)):backward()
  local want = 0.0
  for _, row in ipairs(x3:totable()) do
    want = want + 1 / (1 + math.exp(-2 * row[1])) / n
  end
  ok(math.abs(bias:grad():totable()[1] - want) < 6e-8, bias:grad():totable()[1] - want)
end)

test("the gradient of a row that many indices select is summed in float64", function()
  local n, stream, ids = 1000000, core.stream(7, "row"), {}
  for i = 1, n do ids[i] = i % 2 end
  local dy = stream:uniform(core.zeros(n, 1), 0, 2)
  local rows = core.zeros(2, 1):require_grad();
  (rows:gather(core.ids(ids)) * dy):sum():backward()
  local got, want = rows:grad():sum():item(), dy:sum():item()
  ok(math.abs(got / want - 1) < 3e-7, got / want - 1)
end)

t.done()
