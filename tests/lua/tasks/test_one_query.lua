-- test_one_query.lua: associative recall with one query and induction heads: 10,000 examples
-- against answers that are looked up in the row from its end, and against the frequencies that the
-- published rules give; and fixed sets to train with.
local t = require "harness"
local examples = require "examples"
local tl = require "toeplab"

local COUNT = 10000

-- Returns the token after the last token that equals row[#row] before the end of the row.
local function after_same(row)
  for i = #row - 1, 1, -1 do
    if row[i] == row[#row] then return row[i + 1] end
  end
end

-- Checks the places and targets of an example to train with, whose answer is the last target.
local function check_training(row, places, targets)
  t.eq({ #places, places[1], places[#places] }, { #row, 0, #row - 1 })
  for i = 1, #row - 1 do t.eq(targets[i], row[i + 1]) end
  t.eq(targets[#row], after_same(row))
end

t.test("associative recall: the answer is the value after the key", function()
  local task = tl.recall.associative_recall { seed = 1, test = COUNT }
  t.eq({ task.vocab, task.length }, { 20, 42 })
  local queries, values, distinct, alike = {}, {}, {}, 0
  examples.part(task, "test", function(row, places, targets)
    t.eq({ #row, row[41], places, targets }, { 42, 18, { 41 }, { after_same(row) } })
    local value, order, kinds = {}, {}, {}
    for i = 1, 40, 2 do
      t.ok(row[i] >= 0 and row[i] < 9 and row[i + 1] >= 9 and row[i + 1] < 18)
      if not value[row[i]] then order[#order + 1] = row[i] end
      value[row[i]] = value[row[i]] or row[i + 1]
      t.eq(row[i + 1], value[row[i]]) -- a key has one value in an example
    end
    for place, key in ipairs(order) do
      if #order == 9 and key == row[42] then examples.tally(queries, place) end
      examples.tally(values, value[key])
      if kinds[value[key]] then alike = alike + 1 end -- two keys may have one value
      kinds[value[key]] = true
    end
    examples.tally(distinct, #order)
  end)
  t.ok(alike > COUNT, alike)
  examples.fit(values, 9, 17)
  examples.fit(queries, 1, 9) -- the key of the query is any one of those that occur

  -- The keys that occur among 20 draws of 9, by the recurrence of collecting coupons.
  local chance = { [0] = 1.0 }
  for _ = 1, 20 do
    for k = 9, 0, -1 do
      chance[k] = (chance[k] or 0) * k / 9 + (chance[k - 1] or 0) * (10 - k) / 9
    end
  end
  for k = 1, 6 do distinct[7], distinct[k] = (distinct[7] or 0) + (distinct[k] or 0), nil end
  local few = chance[4] + chance[5] + chance[6] + chance[7]
  examples.fit(distinct, 7, 9, function(k) return k == 7 and few or chance[k] end)
end)

t.test("induction heads: the answer is the token after the mark", function()
  local task = tl.recall.induction_heads { seed = 2, test = COUNT }
  t.eq({ task.vocab, task.length }, { 20, 31 })
  local places_of, answers, others = {}, {}, {}
  examples.part(task, "test", function(row, places, targets)
    t.eq({ #row, places, targets }, { 31, { 30 }, { after_same(row) } })
    local marks = 0
    for i, token in ipairs(row) do
      t.ok(token >= 0 and token < 19)
      if token ~= 18 then examples.tally(others, token) end
      if token == 18 then marks = marks + 1 end
      if token == 18 and i <= 30 then examples.tally(places_of, i) end
    end
    t.eq({ marks, row[31] }, { 2, 18 })
    examples.tally(answers, targets[1])
  end)
  examples.fit(places_of, 1, 28)
  examples.fit(answers, 0, 17)
  examples.fit(others, 0, 17)
end)

t.test("in training, all tokens are targets, and the answer is the last one", function()
  for _, name in ipairs { "associative_recall", "induction_heads" } do
    for _, length in ipairs { 4, 7, 40 } do
      local task = tl.recall[name] { seed = 3, length = length, vocab = 9, batch = 50 }
      examples.train(task, 500, function(row, places, targets)
        t.eq(#row, task.length)
        check_training(row, places, targets)
      end)
    end
  end
end)

t.test("a fixed set to train with has the same examples in each epoch, in another order", function()
  for _, name in ipairs { "associative_recall", "induction_heads", "mqar" } do
    local options = { seed = 4, train = 70, batch = 32, length = 16, vocab = 20 }
    if name == "mqar" then options.pairs = 3 end
    local task = tl.recall[name](options)
    t.eq(task:steps(), 3) -- of 32, 32 and 6
    local first = examples.epoch(task, 1)
    t.eq(#first, 70)
    t.eq(examples.epoch(task, 2), first)
    t.eq(examples.epoch(tl.recall[name](options), 7), first)
    local later = task:batch(5).ids:totable()
    t.ok(table.concat(task:batch(2).ids:totable()[1], " ") ~= table.concat(later[1], " "))
    t.eq(tl.recall[name](options):batch(5).ids:totable(), later) -- as after a restart
    t.ok(table.concat(examples.epoch(tl.recall[name](tl.overlay(options, { seed = 5 })), 1))
      ~= table.concat(first))
    local seen = {}
    for _, example in ipairs(first) do seen[example] = true end
    examples.part(task, "test", function(row)
      t.ok(not seen[table.concat(row, " ")])
    end)
    t.eq(tl.recall[name] { length = 16, pairs = options.pairs }:steps(), nil)
  end
end)

t.test("wrong sizes are errors", function()
  t.raises(tl.recall.induction_heads, "'length' = 3 must be between 4", { length = 3 })
  t.raises(tl.recall.associative_recall, "'vocab' = 3 must be between 4", { vocab = 3 })
  t.raises(tl.recall.state_tracking, "unknown option 'train'", { train = 3 })
end)

t.done()
