-- test_core_ops.lua: the glue of operators: that each one is reached with its arguments in order,
-- and says what is wrong. The numbers of the operators themselves are tested in C.
local core = require "toeplab.core"
local t = require "harness"
local eq, ok, raises, test = t.eq, t.ok, t.raises, t.test

local x = { { 1, 2, 3 }, { 4, 5, 6 } }
local function m() return core.tensor(x) end

-- ---- Elementwise --------------------------------------------------------------------------------

test("arithmetic", function()
  local a, b = core.tensor { 1, 2, 4 }, core.tensor { 2, 0.5, -4 }
  eq(a + b, { 3, 2.5, 0 })
  eq(a - b, { -1, 1.5, 8 })
  eq(a * b, { 2, 1, -16 })
  eq(a / b, { 0.5, 4, -1 })
  eq(-a, { -1, -2, -4 })
  eq(a + 1, { 2, 3, 5 })
  eq(1 + a, { 2, 3, 5 })
  eq(a - 1, { 0, 1, 3 })
  eq(1 - a, { 0, -1, -3 })
  eq(a * 3, { 3, 6, 12 })
  eq(3 * a, { 3, 6, 12 })
  eq(a / 4, { 0.25, 0.5, 1 })
  eq(4 / a, { 4, 2, 1 })
  eq(core.max(a, b), { 2, 2, 4 })
  eq(core.min(a, b), { 1, 0.5, -4 })
  eq(core.max(a, 2), { 2, 2, 4 })
  eq(core.min(2, a), { 1, 2, 2 })
  eq(m() + core.tensor { 10, 20, 30 }, { { 11, 22, 33 }, { 14, 25, 36 } })
  eq(m() * core.tensor { { 1 }, { 2 } }, { { 1, 2, 3 }, { 8, 10, 12 } })
  raises(function() return a + core.ones(2) end, "%[3%].*%[2%]")
  raises(function() return a + "x" end, "bad argument #2")
  raises(function() return {} * a end, "bad argument #1")
  raises(core.max, "bad argument #2 to '.*max'", 1, 2)
  raises(core.min, "bad argument #2 to '.*min'", a)
end)

test("gradients of arithmetic with numbers", function()
  local cases = {
    { function(a) return 3 - a end, -1 }, { function(a) return a - 3 end, 1 },
      { function(a) return a * 3 end, 3 },
    { function(a) return a / 4 end, 0.25 }, { function(a) return 8 / a end, -2 },
      { function(a) return -a end, -1 },
    { function(a) return core.max(a, 1) end, 1 }, { function(a) return core.min(1, a) end, 0 },
  }
  for i, case in ipairs(cases) do
    local a = core.full({ 1 }, 2):require_grad()
    case[1](a):sum():backward()
    ok(a:grad():item() == case[2], "case " .. i)
  end
end)

-- Shapes of x and of what is added to it. On a GPU these sums take different ways: by threads or
-- blocks, in parts or not, with dimensions that merge or do not.
local STRETCHED = {
  { { 3, 50, 40 }, { 40 } }, { { 3, 50, 40 }, { 50, 1 } }, { { 3, 50, 40 }, { 3, 1, 1 } },
  { { 3, 50, 40 }, { 3, 1, 40 } }, { { 3, 50, 40 }, {} }, { { 9000 }, { 1 } },
  { { 9000, 2 }, { 2 } }, { { 2, 9000 }, { 2, 1 } }, { { 2, 30, 3, 40 }, { 30, 1, 40 } },
  { { 2, 30, 3, 40 }, { 2, 1, 3, 1 } }, { { 4, 1, 5, 1, 6 }, { 5, 1, 6 } }, { { 2000, 3 }, { 3 } },
  { { 3, 1100 }, { 1100 } }, { { 40, 1100 }, { 1100 } }, { { 1100, 3 }, { 1100, 1 } },
}

test("the gradient of what is broadcast is a sum", function()
  for _, case in ipairs(STRETCHED) do
    local x, y = case[1], core.zeros(table.unpack(case[2])):require_grad()
    local total, long = 1, {}
    for i = 1, #x do total, long[i] = total * x[i], case[2][i - #x + #case[2]] or 1 end
    local sums, dy = {}, {}
    for at = 0, total - 1 do
      local rest, place, step = at, 0, 1
      for i = #x, 1, -1 do
        if long[i] > 1 then place, step = place + rest % x[i] * step, step * x[i] end
        rest = rest // x[i]
      end
      dy[at + 1] = at * 7 % 11 - 4
      sums[place + 1] = (sums[place + 1] or 0) + dy[at + 1]
    end
    local given = core.tensor(dy):reshape(table.unpack(x))
    for _ = 1, 2 do (core.zeros(table.unpack(x)) + y):backward(given) end
    for i, v in ipairs(sums) do sums[i] = 2 * v end
    eq(y:grad():reshape(#sums), sums)
  end
end)

test("unary functions", function()
  local a = core.tensor { -1, 0.25, 4 }
  local want = {
    identity = function(v) return v end, neg = function(v) return -v end, abs = math.abs,
    square = function(v) return v * v end, exp = math.exp, sin = math.sin, cos = math.cos,
    relu = function(v) return math.max(v, 0) end,
      sigmoid = function(v) return 1 / (1 + math.exp(-v)) end,
    silu = function(v) return v / (1 + math.exp(-v)) end,
      softplus = function(v) return math.log(1 + math.exp(v)) end,
    elu1 = function(v) return v > 0 and 1 + v or math.exp(v) end,
      elu2 = function(v) return v > 0 and 2 + v or 1 + math.exp(v) end,
  }
  for name, f in pairs(want) do
    local y = {}
    for i, v in ipairs(a:totable()) do y[i] = f(v) end
    eq(core[name](a), y, 1e-5)
    eq(a[name](a), y, 1e-5)
    eq(core.unary(name, a), y, 1e-5)
  end
  eq(#core.unary_names(), 23)
  eq(core.tensor({ 4, 0.25 }):sqrt(), { 2, 0.5 })
  eq(core.tensor({ 4, 0.25 }):rsqrt(), { 0.5, 2 }, 1e-6)
  eq(core.tensor({ 4, 0.25 }):reciprocal(), { 0.25, 4 })
  eq(core.tensor({ 1 }):log(), { 0 })
  raises(core.unary, "bad argument #1 to '.*unary' %(no function 'silo'", "silo", a)
  raises(core.unary, "bad argument #2 to '.*unary'", "silu", 3)
  raises(core.relu, "relu: x is int32", core.ids { 1 })
end)

test("gate and affine", function()
  eq(core.gate("relu", core.tensor { -1, 2 }, core.tensor { 3, 4 }), { 0, 8 })
  eq(core.affine(core.tensor { 1, 2 }, 2, -1), { 1, 3 })
  raises(core.gate, "bad argument #1 to '.*gate'", "no", core.ones(1), core.ones(1))
  raises(core.gate, "%[2%].*%[1%]", "relu", core.ones(2), core.ones(1))
  raises(core.affine, "bad argument #3 to '.*affine'", core.ones(1), 2)
end)

-- ---- Products and reductions --------------------------------------------------------------------

test("matmul and linear", function()
  local a, b = m(), core.tensor { { 1, 0 }, { 0, 1 }, { 1, 1 } }
  eq(core.matmul(a, b), { { 4, 5 }, { 10, 11 } })
  eq(core.matmul(a, a, false, true), { { 14, 32 }, { 32, 77 } })
  eq(core.matmul(a, a, true), { { 17, 22, 27 }, { 22, 29, 36 }, { 27, 36, 45 } })
  eq(core.linear(a, core.tensor { { 1, 0, 1 } }, core.tensor { 10 }), { { 14 }, { 20 } })
  eq(core.linear(a, core.tensor { { 1, 0, 1 } }), { { 4 }, { 10 } })
  raises(core.matmul, "matmul: .*%[2,3%].*%[2,3%]", a, a)
  raises(core.linear, "bad argument #3 to '.*linear'", a, b, 3)
end)

test("reductions", function()
  eq(m():sum():item(), 21)
  eq(m():sum(1), { 5, 7, 9 })
  eq(m():sum(-1), { 6, 15 })
  eq(m():sum(2, true), { { 6 }, { 15 } })
  eq(m():mean(2), { 2, 5 })
  eq(m():mean():shape(), {})
  eq(m():amax(1), { 4, 5, 6 })
  eq(core.tensor({ { 1, 9, 9 }, { 3, 2, 1 } }):argmax(), { 1, 0 })
  eq(m():argmax():type(), "int32")
  eq(m():argmax():eq(core.ids({ 2, 0 })), { 1, 0 })
  eq(core.lt(core.ids({ 2, 0 }), 1), { 0, 1 })
  eq(core.ids({ 2, -3 }):float(), { 2, -3 })
  local same = m()
  eq(same:float() == same, true)
  eq(m():cumsum(1), { { 1, 2, 3 }, { 5, 7, 9 } })
  eq(m():cumsum(2), { { 1, 3, 6 }, { 4, 9, 15 } })
  raises(function() m():sum(3) end,
    "bad argument #1 to '.*sum' %(no axis 3: the axes are 1 to 2, or %-1 for the last%)")
  raises(function() m():sum(1, 1) end,
    "bad argument #2 to '.*sum' %(keep must be true or false, got 1%)")
  raises(function() m():argmax(1) end, "bad argument #1 to '.*argmax' %(one argument too many%)")
  raises(function() m():argsort(1) end, "bad argument #1 to '.*argsort' %(one argument too many%)")
  raises(core.softmax, "bad argument #2 to .*%(causal must be true or false, got %-1%)",
    m(), -1)
  raises(core.log_softmax, "bad argument #2 to .*%(one argument too many%)", m(), 1)
  raises(function() m():cumsum() end, "bad argument #1 to '.*cumsum'")
end)

test("the gradient of a NaN goes to what was taken", function()
  local nan = 0 / 0
  local a = core.tensor({ 1, nan, 3 }):require_grad()
  local b = core.tensor({ 2, 2, nan }):require_grad()
  core.max(a, b):sum():backward()
  eq(a:grad(), { 0, 1, 0 })
  eq(b:grad(), { 1, 0, 1 })
  local x = core.tensor({ { 1, nan, nan }, { 4, 5, 6 } }):require_grad()
  x:amax(2):sum():backward()
  eq(x:grad(), { { 0, 1, 0 }, { 0, 0, 1 } })
end)

test("a result that is used twice has both gradients", function()
  local w = core.tensor({ 1, 2 }):require_grad()
  local h = core.relu(w)
  ;(h + h):sum():backward()
  eq(w:grad(), { 2, 2 })
  h = core.relu(w)
  ;(h + (h - core.ones(2))):sum():backward() -- on top of those
  eq(w:grad(), { 4, 4 })
end)

-- ---- Shape --------------------------------------------------------------------------------------

test("reshape, transpose, permute", function()
  eq(m():reshape(3, 2), { { 1, 2 }, { 3, 4 }, { 5, 6 } })
  eq(m():reshape { -1 }, { 1, 2, 3, 4, 5, 6 })
  eq(m():reshape(1, -1, 2):shape(), { 1, 3, 2 })
  eq(m():transpose(1, 2), { { 1, 4 }, { 2, 5 }, { 3, 6 } })
  eq(m():transpose(-1, 1), { { 1, 4 }, { 2, 5 }, { 3, 6 } })
  eq(m():transpose(2, 2), x)
  local p = m():reshape(2, 3, 1):permute { 3, 1, 2 }
  eq(p, { x })
  raises(function() m():reshape(4, 2) end, "%[2,3%]")
  raises(function() m():transpose(1, 3) end,
    "bad argument #2 to '.*transpose' %(no axis 3: the axes are 1 to 2, or %-1 for the last%)")
  raises(function() m():permute { 1 } end,
    "bad argument #1 to '.*permute' %(not one entry per axis%)")
  raises(function() m():permute { 1, 1 } end, "axes is not a permutation of the axes of %[2,3%]")
  raises(function() m():permute { 1, 3 } end, "no axis 3: the axes are 1 to 2, or %-1 for the last")
end)

-- Sums of small integers are exact in any order. Rows that are met often and never, and ones whose
-- number has one, two and three bytes.
test("gradients of gathered rows", function()
  local stream = core.stream(3, "gather")
  for _, case in ipairs { { 5, 3, 1 }, { 3, 2, 700 }, { 300, 2, 1500 }, { 70000, 1, 300 },
    { 4, 1, 0 } } do
    local rows, cols, count = table.unpack(case)
    local index, want, dy = {}, {}, {}
    for i = 1, count do
      local row = stream:below(3) > 0 and rows // 2 or stream:below(rows)
      index[i], dy[i] = row, {}
      want[row] = want[row] or {}
      for c = 1, cols do
        dy[i][c] = stream:below(9) - 4
        want[row][c] = (want[row][c] or 0) + dy[i][c]
      end
    end
    local x = core.ones(rows, cols):require_grad()
    local ids = count > 0 and core.ids(index) or core.ids { 0 }:narrow(1, 1, 0)
    local upstream = count > 0 and core.tensor(dy) or core.zeros(0, cols)
    for times = 1, 2 do -- the second time it is added
      x:gather(ids):backward(upstream)
      local got = x:grad():totable()
      for r = 1, rows do
        for c = 1, cols do
          local value = want[r - 1] and want[r - 1][c] or 0
          if got[r][c] ~= times * value then eq(got[r][c], times * value) end
        end
      end
    end
    ok(count == 0 or next(want))
  end
end)

test("narrow: gradients of overlapping and empty parts, in place", function()
  for axis = 1, 3 do
    local x = core.range(1, 60):reshape(3, 4, 5):require_grad()
    local want, n = core.zeros(3, 4, 5), x:dim(axis)
    local loss = (x * 2):sum()
    want:fill(2)
    for count = 0, n do
      for first = 1, n - count + 1 do
        loss = loss + (x:narrow(axis, first, count) * (10 * count + first)):sum()
        local add = core.no_grad(function()
          local parts, shape = {}, x:shape()
          for _, size in ipairs { first - 1, count, n - count - first + 1 } do
            shape[axis] = size
            parts[#parts + 1] = core.full(shape, #parts == 1 and 10 * count + first or 0)
          end
          return core.concat(parts, axis)
        end)
        want = core.no_grad(function() return want + add end)
      end
    end
    loss:backward()
    eq(x:grad(), want)
  end
end)

test("narrow: the gradient of a tensor is not copied for each of its parts", function()
  local x = core.ones(64, 4096):require_grad()
  local parts = {}
  for i = 1, 64 do parts[i] = x:narrow(1, i, 1) end
  local loss = core.concat(parts, 1):sum()
  collectgarbage()
  local before = core.memory().live
  core.memory_reset_peak()
  loss:backward()
  ok(core.memory().peak - before < 2.5 * 4 * x:numel(), core.memory().peak - before)
  eq(x:grad(), core.ones(64, 4096))
end, "cpu")

test("narrow, concat, gather", function()
  eq(m():narrow(2, 2, 2), { { 2, 3 }, { 5, 6 } })
  eq(m():narrow(1, 2, 1), { { 4, 5, 6 } })
  eq(m():narrow(-1, 4, 0):shape(), { 2, 0 })
  eq(core.concat({ m(), m():narrow(2, 1, 1) }, 2), { { 1, 2, 3, 1 }, { 4, 5, 6, 4 } })
  eq(core.concat({ m(), core.zeros(1, 3) }, 1), { { 1, 2, 3 }, { 4, 5, 6 }, { 0, 0, 0 } })
  eq(m():gather(core.ids { 1, 0, 1 }), { x[2], x[1], x[2] })
  eq(m():gather(core.ids { { 1 } }):shape(), { 1, 1, 3 })
  raises(function() m():narrow(2, 0, 1) end, "bad argument #2 to '.*narrow' %(position 0 of 3%)")
  raises(function() m():narrow(2, 2, 3) end,
    "bad argument #3 to '.*narrow' %(3 elements from position 2 of 3%)")
  local one = m()
  core.concat({ one }, 1):fill(0) -- a tensor of its own, as of several
  eq(one, m())
  raises(core.concat, "bad argument #1 to '.*concat' %(no tensors%)", {}, 1)
  raises(core.concat, "bad argument #1 to '.*concat' %(table expected", m(), 1)
  raises(core.concat, "concat: %[2,3%] and %[1,2%] on axis 1", { m(), core.zeros(1, 2) }, 1)
  -- the second half of a list agrees with itself and not with the first
  local cube, row = core.zeros(2, 3, 4), core.zeros(5)
  raises(core.concat, "concat: %[2,3,4%] and %[5%] on axis 3", { cube, cube, row, row }, 3)
  raises(function() m():gather(core.ids { 2 }) end,
    t.out_of_range("2", "gather: index 2 at position 1 is outside 0%.%.1"))
  raises(function() m():gather(m()) end, "int32")
end)

test("concat gives each tensor its part of the gradient, and needs no values", function()
  for count = 1, 9 do
    local list, width = {}, 0
    for k = 1, count do
      list[k], width = core.zeros(2, k):require_grad(), width + k
    end
    list[count + 1], list[count + 2], width = core.ones(2, 1), list[1], width + 2
    local dy = core.range(1, 2 * width):reshape(2, width)
    local y = core.concat(list, 2)
    list[1]:fill(3)
    y:backward(dy)
    local at = 1
    for k = 1, count do
      local want = dy:narrow(2, at, k)
      eq(list[k]:grad(), (k == 1 and want + dy:narrow(2, width, 1) or want):totable())
      at = at + k
    end
    ok(not list[count + 1]:requires_grad())
  end
end)

-- ---- Softmax, losses, norms ---------------------------------------------------------------------

test("softmax and losses", function()
  local l3 = math.log(3)
  eq(core.softmax(core.zeros(1, 4)), { { 0.25, 0.25, 0.25, 0.25 } }, 1e-7)
  eq(core.softmax(core.zeros(2, 2), true), { { 1, 0 }, { 0.5, 0.5 } }, 1e-7)
  eq(core.log_softmax(core.zeros(1, 3)), { { -l3, -l3, -l3 } }, 1e-6)
  eq(core.cross_entropy(core.zeros(2, 3), core.ids { 0, 2 }):item(), l3, 1e-6)
  local sharp = core.tensor { { 100, 0, 0 }, { 0, 0, 0 } }
  eq(core.cross_entropy(sharp, core.ids { 0, 1 }):item(), l3 / 2, 1e-6)
  eq(core.cross_entropy(sharp, core.ids { 0, 1 }, 0):item(), l3, 1e-6)
  local x2, w = core.ones(2, 4), core.zeros(3, 4)
  eq(core.linear_cross_entropy(x2, w, nil, core.ids { 0, 2 }):item(), l3, 1e-6)
  eq(core.linear_cross_entropy(x2, w, core.tensor { 50, 0, 0 }, core.ids { 0, 0 }):item(), 0, 1e-6)
  eq(core.linear_cross_entropy(x2, w, nil, core.ids { 1, 1 }, 1):item(), 0)
  raises(core.cross_entropy,
    t.out_of_range("3", "cross_entropy: target 3 in row 1 is not in 0%.%.2"), core.zeros(1, 3),
    core.ids { 3 })
  raises(core.cross_entropy,
    t.out_of_range("%-1", "cross_entropy: target %-1 in row 1 is not in 0%.%.2"), core.zeros(1, 3),
    core.ids { -1 })
  raises(core.cross_entropy, "bad argument #3 .*not in", core.zeros(1, 3), core.ids { 0 }, 1 << 40)
end)

test("a row that is ignored counts for nothing, whatever it holds", function()
  local rows, targets = {}, {}
  for i = 1, 70 do rows[i], targets[i] = { i % 5, 1 }, i % 3 end
  local function gradients(odd)
    rows[4], targets[4] = { odd, odd }, -7
    rows[70], targets[70] = { odd, -odd }, -7
    local x, w = core.tensor(rows):require_grad(), core.tensor { { 1, 0 }, { 2, -1 }, { 0, 3 } }
    w:require_grad()
    local loss = core.linear_cross_entropy(x, w, nil, core.ids(targets), -7)
    loss:backward()
    return { loss:item(), w:grad():totable(), x:grad():totable() }
  end
  local want = gradients(0)
  eq(want[3][70], { 0, 0 })
  for _, odd in ipairs { 0 / 0, math.huge, 1e38 } do eq(gradients(odd), want) end
end)

test("norms", function()
  local a, r2 = core.tensor { { 3, 4 } }, math.sqrt(2)
  eq(core.layer_norm(a, nil, nil, 0), { { -1, 1 } }, 1e-6)
  eq(core.layer_norm(a, core.tensor { 2, 3 }, core.tensor { 10, 20 }, 0), { { 8, 23 } }, 1e-5)
  eq(core.rms_norm(a, nil, 0), { { 3 * r2 / 5, 4 * r2 / 5 } }, 1e-6)
  eq(core.rms_norm(a, core.tensor { 1, 2 }, 0), { { 3 * r2 / 5, 8 * r2 / 5 } }, 1e-6)
  eq(core.simple_rms_norm(a, 0), { { 3 * r2 / 5, 4 * r2 / 5 } }, 1e-6)
  eq(core.scale_norm(a, core.full({}, 2), 0), { { 6 * r2 / 5, 8 * r2 / 5 } }, 1e-6)
  local mean, var = core.zeros(2), core.ones(2)
  local b = core.tensor { { 1, 10 }, { 3, 30 } }
  eq(core.batch_norm(b, core.ones(2), core.zeros(2), mean, var, true, 0.5, 0), { { -1, -1 }, { 1,
    1 } }, 1e-5)
  eq(mean, { 1, 10 }, 1e-6)
  eq(var, { 1.5, 100.5 }, 1e-4)
  eq(core.batch_norm(b, core.ones(2), core.zeros(2), core.zeros(2), core.ones(2), false, 0.5, 0), b,
    1e-5)
  raises(core.layer_norm, "bad argument #4 to '.*layer_norm'", a, nil, nil)
  raises(core.rms_norm, "%[3%]", a, core.ones(3), 0)
end)

test("mlp", function()
  local a, w = core.tensor { { 2 }, { -2 } }, core.tensor { { 1 }, { -1 } }
  local function mlp(last, ...)
    last.weight = core.tensor { { 1, 10 } }
    return core.mlp(a, { { weight = w, bias = core.tensor { 0, 1 } }, last }, ...)
  end
  eq(mlp({}, "relu"), { { 2 }, { 30 } }) -- of (2,-1) and (-2,3)
  eq(mlp({ bias = core.ones(1) }, "identity", false, core.tensor { 2, 1 }), { { -14 }, { 29 } })
  eq(mlp({ norm = "simple", eps = 0 }, "identity"):get(1, 1), -8 / math.sqrt(2.5), 1e-5)
  eq(mlp({ norm = "rms", eps = 1.5, norm_weight = core.tensor { 0, 1 } }, "identity"):get(1, 1), -5)
  eq(mlp({ norm = "layer", eps = 0, norm_bias = core.tensor { 1, 1 } }, "identity"), { { 2 },
    { 20 } }, 1e-5)
  raises(mlp, "no norm 'batch' for layer 2", { norm = "batch" }, "relu")
  raises(mlp, "bias of layer 2 is number, not an open tensor", { bias = 3 }, "relu")
  local closed = core.ones(1)
  closed:close()
  raises(mlp, "bad argument #2 to '.*mlp' %(bias of layer 2 is userdata", { bias = closed }, "relu")
  raises(mlp, "no function 'rellu'", {}, "rellu")
  raises(core.mlp, "layer 1 is number, not a table", a, { 1 }, "relu")
  raises(core.mlp, "layer 1 has no weight", a, { {} }, "relu")
end)

-- ---- Convolution, transforms --------------------------------------------------------------------

test("depthwise convolution", function()
  local a = core.tensor { { { 1 }, { 2 }, { 3 } } }
  local taps = core.tensor { { 1 }, { 10 } }
  eq(core.depthwise_conv(a, taps, 0), { { { 1 }, { 12 }, { 23 } } })
  eq(core.depthwise_conv(a, taps, 1), { { { 12 }, { 23 }, { 30 } } })
  raises(core.depthwise_conv, "bad argument #3 to '.*depthwise_conv'", a, taps)
end)

test("the taps' gradient of a depthwise convolution sums 32 positions in float32", function()
  local n, dy = 4104, core.ones(1, 4104, 1):totable() -- 128 blocks of 32 and one of 8
  dy[1][1][1] = 1e8 -- in its block, float32 loses the 31 ones that follow
  local taps = core.zeros(2, 1):require_grad()
  core.depthwise_conv(core.ones(1, n, 1), taps, 0):backward(core.tensor(dy))
  eq(taps:grad(), { { 1e8 + n - 32 }, { n - 1 } })
end)

test("Fourier transforms", function()
  local a = core.tensor { 1, 2, 3, 4 }
  local spectrum = { { 10, 0 }, { -2, 2 }, { -2, 0 } }
  eq(core.rfft(a, 1), spectrum, 1e-5)
  eq(core.irfft(core.rfft(a, -1), 1, 4), a, 1e-6)
  local z = core.tensor { { 1, 0 }, { 0, 1 }, { -1, 0 } }
  eq(core.ifft(core.fft(z, 1), -1), z, 1e-6)
  eq(core.fft(z, 1):get(1, 2), 1, 1e-6)
  eq(core.rfft(m(), 1), { { { 5, 0 }, { 7, 0 }, { 9, 0 } }, { { -3, 0 }, { -3, 0 }, { -3, 0 } } },
    1e-5)
  raises(core.fft, "no axis 2: the axes are 1 to 1, or %-1 for the last", z, 2)
  raises(core.irfft, "bad argument #3 to '.*irfft'", z, 1)
  raises(core.irfft, "n 7 needs 4", core.rfft(a, 1), 1, 7)
end)

test("irfft ignores the imaginary parts that a spectrum of real numbers does not have", function()
  local spectrum = { { 10, 3 }, { -2, 2 }, { -2, -5 } }
  eq(core.irfft(core.tensor(spectrum), 1, 4), { 1, 2, 3, 4 }, 1e-6)
  eq(core.irfft(core.tensor { { 4, 7 }, { 1, 0 } }, 1, 3), { 2, 1, 1 }, 1e-6)
  eq(core.irfft(core.tensor { { 4, 7 } }, 1, 1), { 4 })
  local columns = core.tensor { { { 4, 0 }, { 6, 1 } }, { { 2, 9 }, { 4, 0 } } }
  eq(core.irfft(columns, 1, 2), { { 3, 5 }, { 1, 1 } }, 1e-6)
end)

test("the gradient of rfft takes an imaginary part of any bin", function()
  local a, weight = core.tensor({ 1, 2, 3, 4 }):require_grad(), { { 1, 2 }, { 3, 4 }, { 5, 6 } }
  (core.rfft(a, 1) * core.tensor(weight)):sum():backward()
  eq(a:grad(), { 9, -8, 3, 0 }, 1e-6)
end)

t.done()
