-- test_derived.lua -- powers, comparisons, where, sign, clamp, var, std and einsum against their
-- definitions, gradients against differences, and hints for the names of PyTorch.
local t = require "harness"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok
local NAN, INF = 0 / 0, math.huge

local function leaf(...)
  return tl.stream_of("test"):uniform(core.zeros(...), 0.5, 2):require_grad()
end

-- Compares y() with differences in the tensors.
local function gradients(y, ...)
  local list = {}
  for i, x in ipairs { ... } do list[i] = { name = "x" .. i, tensor = x } end
  slopes.check(function() return slopes.probe(y()) end, list)
end

-- Elements as texts, so that NaN equals NaN.
local function texts(x)
  local list = x:reshape(-1):totable()
  for i, v in ipairs(list) do list[i] = v ~= v and "nan" or ("%g"):format(v) end
  return table.concat(list, " ")
end

-- ---- Rows of the table of binary operators ------------------------------------------------------

test("comparisons: 1 or 0 with Lua's meaning, NaN too, and no gradient", function()
  local values = { -1, 0, 2, NAN, INF }
  for name, compare in pairs { lt = function(a, b) return a < b end, le = function(a, b)
    return a <= b end, gt = function(a, b) return a > b end, ge = function(a, b) return a >= b end,
    eq = function(a, b) return a == b end, ne = function(a, b) return a ~= b end } do
    local a = core.tensor(values):reshape(-1, 1):require_grad()
    local y = core[name](a, core.tensor(values))
    for i, v in ipairs(values) do
      for k, w in ipairs(values) do eq(y:get(i, k), compare(v, w) and 1.0 or 0.0) end
    end
    eq(a[name](a, 0), core[name](a, 0))
    ok(not y:requires_grad())
  end
  raises(function() return core.ones(1) < 2 end, "by < or <=: write tl.lt%(a, b%) or tl.gt")
  raises(function() return core.ones(1) >= core.ones(1) end, "tl.le%(a, b%) or tl.ge")
  raises(core.lt, "lt: a is %[2%], b is %[3%]", core.ones(2), core.ones(3))
  raises(core.pow, "pow: the operands are int32 and float32", core.ids { 1 }, 0.5)
  eq(core.tape_length(), 0)
end)

test("pow: values and gradients of both operands", function()
  tl.seed(1)
  local a, b = leaf(3, 4), leaf(4)
  gradients(function() return a ^ b end, a, b)
  gradients(function() return core.pow(a, 2.5) * a:pow(-1) end, a)
  gradients(function() return 2 ^ b end, b)
  gradients(function() return a ^ 2 end, a)
  eq(core.pow(a, 2), a ^ core.tensor { 2 }, 1e-6)
  local base = core.tensor { 0, 0, -2, -2, NAN, 1, 4 }
  local exponent = core.tensor { 0, 2, 3, 0.5, 0, NAN, 0.5 }
  eq(texts(base ^ exponent), "1 0 -8 nan 1 1 2")
end)

test("pow: gradients at 0 agree with PyTorch", function()
  local a, b = core.tensor({ 0, 0, 0, -2 }):require_grad(), core.tensor({ 0, 1, 2, 2 })
  b:require_grad();
  (a ^ b):sum():backward()
  eq(a:grad(), { 0, 1, 0, -4 })
  eq(texts(b:grad()), "0 0 0 nan") -- the logarithm of -2
end)

test("where: unselected elements give neither value nor gradient", function()
  tl.seed(2)
  local a, b = leaf(2, 3), leaf(3)
  local mask = core.tensor { { 1, 0, 1 }, { 0, 0, NAN } }
  gradients(function() return core.where(mask, a * a, b) end, a, b)
  eq(texts(core.where(mask, 1, core.full({ 2, 3 }, INF))), "1 inf 1 inf inf 1")
  eq(texts(core.where(mask, core.full({ 2, 3 }, NAN), 7)), "nan 7 nan 7 7 nan")
  eq(core.where(core.tensor { { 1 }, { 0 } }, core.tensor { 1, 2 }, 0), { { 1, 2 }, { 0, 0 } })
  local x = core.tensor({ -1, 4 }):require_grad()
  core.where(core.gt(x, 0), core.sqrt(core.where(core.gt(x, 0), x, 1)), 0):sum():backward()
  eq(x:grad(), { 0, 0.25 })
  raises(core.where, "where: the condition, a and b must be float32", core.ids { 1 }, 1, 2)
  raises(core.where, "where: the condition is %[2%], a is %[3%], b is %[%]", core.ones(2),
    core.ones(3), 0)
end)

-- ---- Composed -----------------------------------------------------------------------------------

test("sign and clamp", function()
  local x = core.tensor({ -3, 0, 2, NAN, 5 }):require_grad()
  eq(texts(tl.sign(x)), "-1 0 1 0 1")
  ok(not x:sign():requires_grad())
  eq(texts(x:clamp(-1, 2)), "-1 0 2 nan 2")
  eq(texts(tl.clamp(x, nil, 2)), "-3 0 2 nan 2")
  eq(texts(x:clamp(core.tensor { 1, 1, 1, 1, 9 })), "1 1 2 nan 9")
  x:clamp(-3, 2):sum():backward() -- the bounds are inside
  eq(x:grad(), { 1, 1, 1, 1, 0 })
  raises(x.clamp, "clamp: give a lower bound", x)
  core.tape_clear()
end)

test("var and std: definition, gradients, and none at a variance of 0", function()
  tl.seed(3)
  local x = leaf(3, 4)
  local function want(list, correction)
    local sum, squares = 0, 0
    for _, v in ipairs(list) do sum = sum + v end
    for _, v in ipairs(list) do squares = squares + (v - sum / #list) ^ 2 end
    return squares / (#list - correction)
  end
  for correction = 0, 1 do
    local rows = {}
    for i, row in ipairs(x:totable()) do rows[i] = want(row, correction) end
    eq(x:var(2, false, correction), rows, 1e-5)
    eq(x:std(2, true, correction):shape(), { 3, 1 })
    for i, v in ipairs(rows) do rows[i] = v ^ 0.5 end
    eq(x:std(2, false, correction), rows, 1e-5)
    eq(x:var(nil, false, correction):item(), want(x:reshape(-1):totable(), correction), 1e-5)
  end
  eq(tl.std(x, 2), x:std(2, false, 1))
  for _, f in ipairs { function() return x:std(1) end, function() return x:var() end,
    function() return x / x:std(2, true) end } do gradients(f, x) end
  local flat = core.ones(2, 3):require_grad()
  flat:std(2):sum():backward()
  eq(flat:grad(), { { 0, 0, 0 }, { 0, 0, 0 } })
  eq(texts(core.ones(2, 1):std(2)), "nan nan")
end)

-- ---- einsum -------------------------------------------------------------------------------------

-- The definition: a loop over all letters.
local function by_loops(inputs, output, tensors, sizes)
  local letters, totals = {}, {}
  for letter in pairs(sizes) do letters[#letters + 1] = letter end
  table.sort(letters)
  local at = {}
  local function key(word)
    local places = {}
    for letter in word:gmatch "." do places[#places + 1] = at[letter] end
    return places
  end
  local function visit(k)
    if letters[k] then
      for i = 1, sizes[letters[k]] do
        at[letters[k]] = i
        visit(k + 1)
      end
      return
    end
    local product = 1
    for i, word in ipairs(inputs) do
      product = product * tensors[i]:get(table.unpack(key(word)))
    end
    local place = table.concat(key(output), " ")
    totals[place] = (totals[place] or 0) + product
  end
  visit(1)
  return totals
end

test("einsum: every kind of letter, against a loop; gradients", function()
  tl.seed(4)
  local sizes = { a = 2, b = 3, i = 2, j = 4, k = 3, Z = 2 }
  for equation, explicit in pairs {
    ["ij,jk->ik"] = "ik", ["ij,jk"] = "ik", ["ij,kj->ki"] = "ki", ["aij,ajk->aik"] = "aik",
    ["abij,abkj->abik"] = "abik", ["aij, bjk -> abik"] = "abik", ["ij,ij->"] = "", ["i,k->ki"] =
    "ki", ["ij,ij->ij"] = "ij", ["ij,j"] = "i", ["aij,jb->bi"] = "bi", ["ij->ji"] = "ji",
    ["ij->"] = "", ["ji"] = "ij", ["aij->ja"] = "ja", ["Zi,ia"] = "Za", [",ij->ij"] = "ij",
    ["abi,kji->kba"] = "kba", ["i->i"] = "i",
  } do
    local inputs, tensors, seen = {}, {}, {}
    for word in (equation:gsub("%s", ""):gsub("%->.*", "") .. ","):gmatch "([^,]*)," do
      local shape = {}
      for letter in word:gmatch "." do
        shape[#shape + 1], seen[letter] = sizes[letter], sizes[letter]
      end
      inputs[#inputs + 1] = word
      tensors[#tensors + 1] = tl.stream_of("test"):uniform(core.zeros(shape), -1, 1):require_grad()
    end
    local function y() return tl.einsum(equation, table.unpack(tensors)) end
    local got, shape = core.no_grad(y), {}
    for letter in explicit:gmatch "." do shape[#shape + 1] = sizes[letter] end
    eq(got:shape(), shape)
    for place, total in pairs(by_loops(inputs, explicit, tensors, seen)) do
      local at = {}
      for i in place:gmatch "%d+" do at[#at + 1] = math.tointeger(i) end
      eq(got:get(table.unpack(at)), total, 1e-5)
    end
    gradients(y, table.unpack(tensors))
  end
end)

test("einsum: errors name the equation, the letter and the sizes", function()
  local x, y = core.ones(2, 3), core.ones(4, 5)
  for _, case in ipairs {
    { "einsum 'ij,jk': 'j' is 3 in operand 1 but 4 in operand 2", "ij,jk", x, y },
    { "einsum 'ii': letter 'i' occurs twice in operand 1: diagonals", "ii", x },
    { "letter 'i' occurs twice in the result", "ij->ii", x },
    { "einsum 'ijk': operand 1 is %[2,3%], which has 2 axes, not 3", "ijk", x },
    { "'ij%->k': no operand has the letter 'k'", "ij->k", x },
    { "'...': '%.' is not a letter", "...", x },
    { "'ij,jk': 2 operands and 1 tensors", "ij,jk", x },
    { "'i,j,k': 3 operands and 3 tensors: give as many tensors as operands, one or two", "i,j,k",
      x, x, x },
    { "'i,i%->': operand 2 is a number, not a tensor", "i,i->", core.ones(1), 3 },
    { "'i,i%->': operand 1 is a nil, not a tensor", "i,i->", nil, core.ones(1) },
    { "the equation is a userdata, not a string", x, "ij" },
    { "'abcd,efg': the result has 7 axes, at most 6 are possible", "abcd,efg",
      core.ones(1, 1, 1, 1), core.ones(1, 1, 1) },
  } do
    raises(tl.einsum, case[1], table.unpack(case, 2))
  end
end)

-- ---- Names of PyTorch ---------------------------------------------------------------------------

test("a name of PyTorch is answered by ours", function()
  local x = core.ones(2)
  for name, text in pairs { cat = "tl.concat", arange = "tl.range", unsqueeze = "x:reshape",
    masked_fill = "tl.where", detach = "x:clone", cmul = "a %* b" } do
    local message = ("for PyTorch's '%s' write %s"):format(name, text)
    raises(function() return tl[name] end, "toeplab has no '" .. name .. "'; " .. message)
    raises(function() return x[name] end, "a tensor has no method '" .. name .. "'; " .. message)
  end
  raises(function() return x:add_(1) end, "assign the result, as in x = a %+ b")
  raises(function() return x:exp_() end, "assign the result, as in x = x:exp%(...%)")
  raises(function() return x:view(2, -1) end, "x%.view%(4, %-1%) write x:reshape%(4, %-1%)")
  raises(function() return x:permute(2, 1) end, "as x:permute {2, 1, 3}")
  raises(function() return tl.matmull end, "did you mean 'matmul'")
end)

t.done()
