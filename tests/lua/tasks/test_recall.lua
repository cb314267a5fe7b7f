-- test_recall.lua: associative recall and selective copying: what an example holds, that batches
-- depend on seed, part and step alone, and that a model can learn them.
local t = require "harness"
local each_row = require("examples").rows
local tl = require "toeplab"

t.test("mqar: every key is queried once, and its value is the target", function()
  for _, c in ipairs { { 4, 1, 4 }, { 64, 4, 32 }, { 33, 8, 18 }, { 64, 16, 8192 } } do
    local length, pairs_, vocab = table.unpack(c)
    local task = tl.recall.mqar { length = length, pairs = pairs_, vocab = vocab, batch = 5 }
    t.eq(task.vocab, vocab)
    each_row(task:batch(1), function(row, places, targets)
      t.eq(#row, length)
      t.eq(#places, pairs_)
      local value, asked = {}, {}
      for i = 1, 2 * pairs_, 2 do
        assert(row[i] >= 1 and row[i] < vocab // 2, "a key")
        assert(row[i + 1] >= vocab // 2 and row[i + 1] < vocab, "a value")
        assert(not value[row[i]], "a key stands twice")
        value[row[i]] = row[i + 1]
      end
      for i, place in ipairs(places) do
        local key = row[place + 1]
        assert(place >= 2 * pairs_ and not asked[key], "a query")
        asked[key] = true
        t.eq(targets[i], value[key])
      end
    end)
  end
end)

t.test("mqar: with the filler zero, all tokens but pairs and queries are 0", function()
  local task = tl.recall.mqar { length = 40, pairs = 4, vocab = 30, filler = "zero", seed = 6 }
  each_row(task:batch(1), function(row, places)
    local asked, zeros = {}, 0
    for _, place in ipairs(places) do asked[place + 1] = true end
    for i, token in ipairs(row) do
      t.eq(token == 0, i > 8 and not asked[i])
      if token == 0 then zeros = zeros + 1 end
    end
    t.eq(zeros, 40 - 8 - 4)
  end)
end)

t.test("selective copying: the targets are the symbols in their order", function()
  for _, c in ipairs { { 1, 1, 1 }, { 20, 5, 3 }, { 8, 8, 16 } } do
    local span, marks, symbols = table.unpack(c)
    local task = tl.recall.selective_copying { span = span, marks = marks, symbols = symbols,
      batch = 7 }
    t.eq(task.vocab, symbols + 2)
    each_row(task:batch(3), function(row, places, targets)
      t.eq(#row, span + marks)
      local found = {}
      for i, id in ipairs(row) do
        if id >= 2 then found[#found + 1] = id end
        if i > span then t.eq(id, 1) end
      end
      t.eq(targets, found)
      t.eq(places[1], span)
      t.eq(places[marks], span + marks - 1)
    end)
  end
end)

t.test("a batch depends on the seed, the part and the step alone", function()
  local function ids(seed, part)
    local task = tl.recall.mqar { seed = seed, length = 16, pairs = 2, valid = 5, test = 5 }
    if type(part) == "number" then return task:batch(part).ids:totable() end
    local all = {}
    for batch in task:each(part, 3) do
      for _, row in ipairs(batch.ids:totable()) do all[#all + 1] = row end
    end
    return all
  end
  t.eq(ids(1, 2), ids(1, 2))
  t.eq(#ids(1, "test"), 5)
  for _, other in ipairs { ids(2, 2), ids(1, 3), ids(1, "valid") } do
    assert(tostring(table.concat(other[1], " ")) ~= table.concat(ids(1, 2)[1], " "),
      "two batches are alike")
  end
end)

t.test("queries are near the pairs if the power is small", function()
  local near, all = 0, 0
  local task = tl.recall.mqar { length = 256, pairs = 4, batch = 64 }
  each_row(task:batch(1), function(_, places)
    for _, place in ipairs(places) do
      all = all + 1
      if place < 8 + 62 then near = near + 1 end -- a quarter of the slots
    end
  end)
  -- The weights 1/k of slots 1..31 are 4.03 of 5.41: the first query is there 74 times in 100, and
  -- the four without replacement less often.
  assert(near / all > 0.6 and near / all < 0.8, near / all)
end)

t.test("wrong sizes are errors with the right ones", function()
  t.raises(tl.recall.mqar, "length of at least 64, which is 32", { pairs = 16, length = 32 })
  t.raises(tl.recall.mqar, "vocab of at least 18, which is 17",
    { pairs = 8, length = 32, vocab = 17 })
  t.raises(tl.recall.mqar, "unknown option 'pair'", { pair = 3 })
  t.raises(tl.recall.selective_copying, "marks = 9 does not fit in span = 8",
    { marks = 9, span = 8 })
end)

t.test("a model learns to copy, and the accuracy shows it", function()
  local task = tl.recall.selective_copying { seed = 1, span = 6, marks = 1, symbols = 3,
    batch = 32, test = 50 }
  tl.seed(1)
  local model = tl.models.tnn_lm { vocab = task.vocab, layers = 1, dim = 16, mixer = "gtu",
    glu_dim = 16 }
  local opt = tl.optim.adam(model, { lr = 1e-2 })
  local before = tl.recall.accuracy(model, task, "test", 20)
  for step = 1, 200 do tl.recall.step(model, opt, task:batch(step)) end
  local after, nats = tl.recall.accuracy(model, task, "test", 20)
  assert(before < 0.7 and after == 1 and nats < 0.3, ("%g %g %g"):format(before, after, nats))
end)

t.test("the examples of a part do not depend on the size of its batches", function()
  local task = tl.recall.mqar { vocab = 32, length = 16, pairs = 2, valid = 150, seed = 3 }
  local function rows(size)
    local list = {}
    for batch in task:each("valid", size) do
      each_row(batch, function(row, places, targets)
        list[#list + 1] = { row, places, targets }
      end)
    end
    return list
  end
  local want = rows(150)
  t.eq(#want, 150)
  for _, size in ipairs { 1, 7, 64, 1000 } do t.eq(rows(size), want) end
  t.raises(task.batch, "mqar: step must be an integer of at least 1, got 0", task, 0)
  for _, part in ipairs { "tset", "batch", "train", false } do
    t.raises(function() task:each(part, 4) end,
      ("test_recall.lua:%%d+: mqar: there is no part of the task '%s'"):format(tostring(part)))
  end
end)

t.done()
