-- test_core_parts.lua: the glue of streams, optimisers, operators of backends, and text.
local core = require "toeplab.core"
local t = require "harness"
local eq, ok, raises, test = t.eq, t.ok, t.raises, t.test

-- ---- Random streams -----------------------------------------------------------------------------

test("streams", function()
  local s = core.stream(7, "data")
  local first = s:uniform(core.zeros(5), 2, 3)
  for _, v in ipairs(first:totable()) do ok(v >= 2 and v < 3) end
  eq(core.stream(7, "data"):uniform(core.zeros(5), 2, 3), first)
  ok(core.stream(7, "init"):uniform(core.zeros(5), 2, 3):get(1) ~= first:get(1))
  ok(core.stream(8, "data"):uniform(core.zeros(5), 2, 3):get(1) ~= first:get(1))
  local n = s:normal(core.zeros(10000), 5, 2)
  eq(n:mean():item(), 5, 0.1)
  eq((n - 5):square():mean():item(), 4, 0.2)
  local p, seen = s:permutation(50):totable(), {}
  for _, v in ipairs(p) do seen[v] = true end
  eq(#p, 50)
  for i = 0, 49 do ok(seen[i]) end
  for _ = 1, 50 do
    local b, u = s:below(3), s:unit()
    ok(b >= 0 and b < 3 and math.type(b) == "integer" and u >= 0 and u < 1)
  end
  raises(s.below, "bad argument #2 .*bound is less than 1", s, 0)
  raises(s.permutation, "negative", s, -1)
  raises(s.uniform, "bad argument #2", s, 3)
  raises(core.stream, "bad argument #2 to '.*stream'", 1)
  raises(s.unit, "toeplab.stream expected", core.ones(1))
end)

test("a stream is resumed from two integers", function()
  local s = core.stream(-1, "x")
  s:normal(core.zeros(3))
  local key, offset = s:state()
  eq({ math.type(key), math.type(offset) }, { "integer", "integer" })
  local want = s:normal(core.zeros(3))
  local other = core.stream(5, "y")
  other:set_state(key, offset)
  eq(other:normal(core.zeros(3)), want)
  eq({ other:state() }, { s:state() })
end)

test("dropout and sampling", function()
  local s = core.stream(1, "dropout")
  local x = core.ones(1000):require_grad()
  local y = s:dropout(x, 0.25)
  for _, v in ipairs(y:totable()) do ok(v == 0 or math.abs(v - 4 / 3) < 1e-6) end
  eq(y:mean():item(), 1, 0.1)
  y:sum():backward()
  eq(x:grad(), y)
  eq(s:dropout(core.ones(3), 0), { 1, 1, 1 })
  raises(s.dropout, "dropout: p is 1, not in %[0,1%)", s, core.ones(1), 1)
  local logits = core.tensor { 0, 5, 4.9, -100 }
  eq(s:sample(logits, 0), 1)
  for _ = 1, 30 do
    local id = s:sample(logits, 10, 2)
    ok(id == 1 or id == 2)
    ok(s:sample(logits) ~= 3)
  end
  raises(s.sample, "bad argument #4 .*%-1 is not in", s, logits, 1, -1)
end)

-- ---- Optimisers ---------------------------------------------------------------------------------

local function leaf(value, grad)
  local p = core.tensor { value }:require_grad()
  p:set_grad(core.tensor { grad })
  return p
end

test("adam", function()
  for kind, want in pairs { adam = 0.9, adamw = 0.89, fairseq = 0.89 } do
    local p, m, v = leaf(1, 0.5), core.zeros(1), core.zeros(1)
    core.adam_step({ p }, { m }, { v }, {
      kind = kind, lr = 0.1, beta1 = 0.9, beta2 = 0.99, eps = 1e-12, weight_decay = 0.1, step = 1,
    })
    eq(p:item(), want, 1e-5)
    ok(m:item() > 0 and v:item() > 0)
  end
  local p, m = leaf(1, 4), core.zeros(1)
  core.adam_step({ p }, { m }, { core.zeros(1) }, { lr = 0.1, step = 1 }, 0.5)
  eq(m:item(), 0.2, 1e-6)
  core.adam_step({}, {}, {}, { lr = 0.1, step = 1 })
  local z, step = { core.zeros(1) }, core.adam_step
  raises(step, "bad argument #4 .*option 'lr' is required", { p }, z, z, { step = 1 })
  raises(step, "bad argument #4 .*option 'step' is required", { p }, z, z, { lr = 1 })
  raises(step, "bad argument #4 .*unknown option 'weigth'", { p }, z, z, { lr = 1, weigth = 0 })
  raises(step, "bad argument #4 .*kind 'adan' is not", { p }, z, z, { step = 1, kind = "adan" })
  raises(step, "bad argument #4 .*step counts from 1", { p }, z, z, { lr = 1, step = 0 })
  raises(step, "bad argument #2 .*0 tensors for 1 par", { p }, {}, z, { lr = 1, step = 1 })
  raises(step, "adam", { p }, { core.zeros(2) }, z, { lr = 1, step = 1 })
end)

test("sgd and grad_norm", function()
  local p, b = leaf(1, 0.5), core.zeros(1)
  core.sgd_step({ p }, nil, { lr = 0.1 })
  eq(p:item(), 0.95, 1e-6)
  core.sgd_step({ p }, { b }, { lr = 0.1, momentum = 0.9, weight_decay = 0 }, 2)
  eq(p:item(), 0.85, 1e-6)
  eq(b:item(), 1, 1e-6)
  eq(core.grad_norm { leaf(0, 3), leaf(0, 4) }, 5, 1e-12)
  eq(core.grad_norm {}, 0)
  local list, squares = {}, 0 -- made on the CPU, so that a card is given one after another
  for i = 1, 40 do
    list[i], squares = leaf(0, i), squares + i * i
  end
  eq(core.grad_norm(list), math.sqrt(squares), 1e-12)
  local options = { lr = 0.1, momentum = 0.9 }
  raises(core.sgd_step, "bad argument #2 .*momentum needs buffers", { p }, nil, options)
  raises(core.sgd_step, "unknown option 'beta1'", { p }, nil, { lr = 0.1, beta1 = 0.9 })
  raises(core.sgd_step, "bad argument #3 .*table expected", { p }, nil)
  raises(core.grad_norm, "element 1 is number", { 1 })
end)

-- Lengths around what kernels take at a time, in more tensors than a launch on a card has.
test("steps of many parameters are those of each", function()
  local lengths, stream, squares = { 4095, 4096, 4097, 0, 20000, 1 }, core.stream(1, "many"), 0.0
  for i = 7, 150 do lengths[i] = i % 3 end
  local function made(kinds)
    local lists = {}
    for _, kind in ipairs(kinds) do
      local list = {}
      for i, n in ipairs(lengths) do list[i] = core.zeros(n) end
      lists[kind] = list
    end
    return lists
  end
  local one, all, grads = made { "p", "m", "v" }, made { "p", "m", "v" }, made { "g" }.g
  for i, g in ipairs(grads) do
    stream:normal(g, 0, 1)
    squares = squares + (g * g):sum():item()
    for _, lists in ipairs { one, all } do
      lists.p[i]:require_grad()
      if i ~= 9 then lists.p[i]:set_grad(g) end
    end
  end
  squares = squares - (grads[9] * grads[9]):sum():item()
  eq(core.grad_norm(all.p) / math.sqrt(squares), 1, 1e-6)
  eq(core.grad_norm(all.p), core.grad_norm(all.p))
  local o = { kind = "adamw", lr = 0.1, step = 3, weight_decay = 0.1 }
  local plain = { lr = 0.1, momentum = 0.9, weight_decay = 0.1 }
  core.adam_step(all.p, all.m, all.v, o, 0.7)
  core.sgd_step(all.p, all.m, plain, 0.7)
  for i, p in ipairs(one.p) do
    core.adam_step({ p }, { one.m[i] }, { one.v[i] }, o, 0.7)
    core.sgd_step({ p }, { one.m[i] }, plain, 0.7)
    for kind, list in pairs(one) do eq(all[kind][i], list[i]) end
    ok(lengths[i] == 0 or (p:abs():amax():item() > 0) == (i ~= 9))
  end
end)

-- ---- Operators of backends ----------------------------------------------------------------------

local function column(values) return core.tensor(values):reshape(#values, 1) end

test("tno", function()
  for _, backend in ipairs { "naive", "matrix", "fft" } do
    local o = core.tno(backend, 3, 1, true)
    eq(o:points(), { 0, 1, 2 })
    eq({ o:width(), o:domain() }, { 1, "lag" })
    eq(o:params(), {})
    local coef = column { 1, 10, 100 }
    local y = o:apply(coef, nil, core.tensor { { { 1 }, { 2 }, { 3 } } })
    eq(y, { { { 1 }, { 12 }, { 123 } } }, 1e-4)
    eq(o:apply(coef, {}, core.zeros(2, 3, 1)):shape(), { 2, 3, 1 })
    eq(o:dense(coef), { { { 1, 0, 0 }, { 10, 1, 0 }, { 100, 10, 1 } } }, 1e-4)
    o = core.tno(backend, 2, 1, false)
    eq(o:points(), { -1, 0, 1 })
    eq(o:dense(column { 5, 1, 7 }), { { { 1, 5 }, { 7, 1 } } }, 1e-5)
  end
end)

test("a tno may be closed before its gradient is taken", function()
  local coef = core.ones(3, 1):require_grad()
  local loss
  do
    local o <close> = core.tno("fft", 3, 1, true)
    loss = o:apply(coef, nil, core.ones(1, 3, 1)):sum()
  end
  collectgarbage()
  loss:backward()
  eq(coef:grad(), { { 3 }, { 2 }, { 1 } }, 1e-5)
end)

test("what a tno refuses", function()
  raises(core.tno, "naive", "nowhere", 3, 1, true)
  raises(core.tno, "n is 0", "naive", 0, 1, true)
  raises(core.tno, "no option 'seed'", "naive", 3, 1, true, { seed = 1 })
  raises(core.tno, "bad argument #5 .*option 'a' is a table", "naive", 3, 1, true, { a = {} })
  raises(core.tno, "bad argument #5 .*key '1' is not a string", "naive", 3, 1, true, { 1 })
  raises(core.tno, "bad argument #2 to '.*tno'", "naive", "x", 1)
  local o = core.tno("naive", 3, 1, true)
  raises(o.apply, "tno: coef is %[2,1%]", o, core.ones(2, 1), nil, core.ones(1, 3, 1))
  raises(o.apply, "tno: x is %[3,1%]", o, core.ones(3, 1), nil, core.ones(3, 1))
  raises(o.apply, "bad argument #3 .*1 parameters, the backend has 0", o, core.ones(3, 1),
    { core.ones(1) }, core.ones(1, 3, 1))
  local odd = core.tno("fd", 3, 1, true) -- which keeps nothing there, but on a card
  raises(odd.apply, "tno: .*cache", odd, nil, nil, core.ones(1, 3, 1), core.ones(3))
  o:close()
  raises(o.width, "bad argument #1 .*tno is closed", o)
end)

test("decay", function()
  local coef, lags = core.ones(3, 2), core.tensor { 0, 1, -2 }
  eq(core.decay(coef, lags, core.full({}, 0.5)), { { 1, 1 }, { 0.5, 0.5 }, { 0.25, 0.25 } }, 1e-6)
  eq(core.decay(coef, lags, core.tensor { 1, 0.5 }), { { 1, 1 }, { 1, 0.5 }, { 1, 0.25 } }, 1e-6)
  raises(core.decay, "bad argument #3 to '.*decay'", coef, lags, 0.5)
end)

test("backends", function()
  local names = {}
  for _, b in ipairs(core.backends()) do
    names[b.name] = true
    ok(#b.summary > 0 and core.sys.exists(b.path) and type(b.options) == "table")
    for _, o in ipairs(b.options) do ok(o.name and o.type and o.default and o.help) end
  end
  ok(names.naive and names.matrix and names.fft)
  eq(type(core.backend_problems()), "table")
  raises(core.load_backend, "/no/such/backend.so", "/no/such/backend.so")
  raises(core.load_backend, "bad argument #1")
end)

-- ---- Text ---------------------------------------------------------------------------------------

test("vocabularies", function()
  local v = core.vocab_chars "b\u{e4}a b"
  eq(v:size(), 4)
  eq({ v:token(0), v:token(1), v:token(2), v:token(3) }, { " ", "a", "b", "\u{e4}" })
  eq(v:token(4) == nil and v:token(-1) == nil, true)
  local ids = v:encode "\u{e4}b"
  eq(ids, { 3, 2 })
  eq(ids:type(), "int32")
  eq(v:decode(ids), "\u{e4}b")
  eq(v:decode { 1, 1, 3 }, "aa\u{e4}")
  eq(v:decode {}, "")
  raises(v.encode, "character 'c' %(U%+0063%) at offset 2 is not in the vocabulary of 4", v, "abc")
  raises(v.decode, "bad argument #2 .*id 9 is not in 0..3", v, { 9 })
  raises(v.decode, "bad argument #2 .*id 2 is a string", v, { 1, "x" })
  raises(v.decode, "bad argument #2 .*ids are int32", v, core.ones(1))
  raises(core.vocab_chars, "byte 0xff at offset 1 is not UTF%-8", "a\xff")
  local b = core.vocab_bytes()
  eq(b:size(), 256)
  eq(b:decode(b:encode "a\0\xff"), "a\0\xff")
  b:close()
  raises(b.size, "vocab is closed", b)
end)

test("windows and n-grams", function()
  local ids = core.ids { 0, 1, 2, 3, 4 }
  eq(core.windows(ids, core.ids { 0, 2 }, 3), { { 0, 1, 2 }, { 2, 3, 4 } })
  raises(core.windows, t.out_of_range("3", "windows: row 1, 3%.%.5, is outside the 5 ids"), ids,
    core.ids { 3 }, 3)
  raises(core.windows, "bad argument #2 to '.*windows'", ids, { 3 }, 3)
  eq(core.ngram_bits(ids, ids, 0, 8), 3, 1e-12)
  ok(core.ngram_bits(ids, ids, 2, 8) < core.ngram_bits(ids, ids, 1, 8))
  raises(core.ngram_bits, "bad argument #4 .*0 is not in", ids, ids, 1, 0)
  local again = core.ids { 0, 0, 0, 1 }
  ok(core.ngram_bits(again, again, 2, 8, "kneser-ney")
    ~= core.ngram_bits(again, again, 2, 8, "witten-bell"))
  local bits = core.ngram_bits(ids, ids, 3, 8, "kneser-ney")
  eq(core.ngram_bits(ids, ids, 3, 8), core.ngram_bits(ids, ids, 3, 8, "witten-bell"))
  local rows = core.ids { { -1, -1, 0 }, { -1, 0, 1 }, { 0, 1, 2 }, { 1, 2, 3 }, { 2, 3, 4 } }
  eq(core.ngram_bits(rows, core.ids { { 3, 4, 0 }, { 4, 0, 1 }, { 0, 1, 2 }, { 1, 2, 3 },
    { 2, 3, 4 } }, 3, 8, "kneser-ney"), bits, 1e-12)
  raises(core.ngram_bits, "bad argument #5 .*invalid option 'good%-turing'", ids, ids, 1, 8,
    "good-turing")
end)

t.done()
