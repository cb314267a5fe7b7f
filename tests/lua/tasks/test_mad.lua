-- test_mad.lua: the six tasks of MAD: thousands of examples of each against answers that are found
-- in the rows by other means, and against the frequencies of the published rules.
local t = require "harness"
local examples = require "examples"
local tl = require "toeplab"

local COUNT = 10000
local fit, tally = examples.fit, examples.tally

-- Checks that all tokens of a row, and one behind it, are targets, and returns them with that one.
local function whole(row, places, targets)
  t.eq({ #targets, places[1], places[#places] }, { #row, 0, #row - 1 })
  local all = table.move(row, 1, #row, 1, {})
  all[#all + 1] = targets[#row]
  for i = 1, #row do t.eq(targets[i], all[i + 1]) end
  return all
end

-- ---- In-context and noisy recall ----

-- Checks a sequence of pairs and returns by place (from 0) the value of each key that stood before,
-- by looking back for the key.
local function pairs_in(all, keys, kinds, vocab)
  local answers = {}
  for i = 1, #all, 2 do
    local noise = all[i] >= kinds
    if noise then
      t.ok(all[i + 1] >= kinds and all[i] < vocab and all[i + 1] < vocab)
    else
      t.ok(all[i] < keys and all[i + 1] >= keys and all[i + 1] < kinds)
    end
    for k = i - 2, 1, -2 do
      if not noise and all[k] == all[i] then
        t.eq(all[k + 1], all[i + 1])
        answers[i - 1] = all[k + 1]
        break
      end
    end
  end
  return answers
end

local function check_pairs(name, options, kinds, share)
  local task = tl.mad[name](options)
  local vocab, n = task.vocab, options.length
  local keys, counts, last, slots, noise = kinds // 2, {}, {}, 0, 0
  t.eq(task.length, n - 1)
  examples.part(task, "test", function(row, places, targets)
    t.eq(#row, n - 1)
    local all = table.move(row, 1, n - 1, 1, {})
    all[n] = targets[#targets]
    local answers, found = pairs_in(all, keys, kinds, vocab), 0
    for _ in pairs(answers) do found = found + 1 end
    t.eq({ found, places[#places] }, { #places, n - 2 })
    for i, place in ipairs(places) do t.eq(targets[i], answers[place]) end
    tally(counts, row[1] < kinds and row[1] or -1)
    t.ok(answers[n - 2], "the last key stood before")
    for i = 1, n - 2, 2 do
      slots, noise = slots + 1, noise + (row[i] >= kinds and 1 or 0)
    end
    tally(last, row[n - 1])
  end)
  counts[-1] = nil
  fit(counts, 0, keys - 1)
  fit(last, 0, keys - 1)
  local wanted = share * (n // 2 - 2) / (n // 2 - 1) -- one slot is never noise
  local deviation = math.sqrt(share * (1 - share) / slots)
  t.ok(math.abs(noise / slots - wanted) <= 5 * deviation, noise / slots)
  examples.train(tl.mad[name](options), 640, function(row, places, targets)
    t.ok(pairs_in(whole(row, places, targets), keys, kinds, vocab)[n - 2], "the last is derivable")
  end)
end

t.test("in-context recall: the targets are the values of earlier keys", function()
  check_pairs("in_context_recall", { seed = 1, test = COUNT, vocab = 16, length = 128 }, 16, 0)
  check_pairs("in_context_recall", { seed = 2, test = 1000, vocab = 7, length = 8 }, 7, 0)
end)

t.test("noisy recall: the same among noise, which takes its share of the pairs", function()
  check_pairs("noisy_recall", { seed = 3, test = COUNT, vocab = 32, length = 128 }, 16, 0.2)
  check_pairs("noisy_recall", { seed = 4, test = 1000, vocab = 48, length = 32, share = 0.8 }, 32,
    0.8)
  check_pairs("noisy_recall", { seed = 5, test = 1000, vocab = 9, noise = 4, length = 6,
    share = 0.99 }, 5, 0.99)
end)

-- ---- Fuzzy recall ----

-- Returns the pairs {key=, value=, from= (the index of the value's first token)} of a sequence by
-- its alternation of keys and values, which no two motifs of one kind can blur.
local function motifs(all, keys, pad)
  local list, i = {}, 1
  while all[i] == pad do i = i + 1 end
  t.ok(i > 2, "the beginning is filled")
  while i <= #all do
    local one = { key = {}, value = {} }
    while all[i] and all[i] < keys do i, one.key[#one.key + 1] = i + 1, all[i] end
    one.from = i
    while all[i] and all[i] >= keys do
      t.ok(all[i] < pad)
      i, one.value[#one.value + 1] = i + 1, all[i]
    end
    for _, motif in ipairs { one.key, one.value } do
      local seen = {}
      for _, token in ipairs(motif) do
        t.ok(not seen[token], "tokens of a motif differ")
        seen[token] = true
      end
    end
    list[#list + 1] = one
  end
  return list
end

-- Returns by place the tokens of values whose key stood before, and checks that values are fixed.
local function scored(list)
  local value, answers = {}, {}
  for _, one in ipairs(list) do
    local key, now = table.concat(one.key, " "), table.concat(one.value, " ")
    if value[key] then
      t.eq(now, value[key])
      for i, token in ipairs(one.value) do answers[one.from + i - 3] = token end
    end
    value[key] = now
  end
  return answers
end

t.test("fuzzy recall: the targets are the values of earlier motifs", function()
  for _, c in ipairs { { 16, 128, 3, COUNT }, { 32, 64, 2, 2000 }, { 9, 24, 4, 2000 },
    { 4, 10, 1, 500 } } do
    local vocab, n, motif, count = table.unpack(c)
    local options = { seed = 6, vocab = vocab, length = n, motif = motif, test = count }
    local task = tl.mad.fuzzy_recall(options)
    local keys, sizes, first = (vocab - 1) // 2, {}, {}
    examples.part(task, "test", function(row, places, targets)
      t.eq({ #row, places[#places] }, { n, n - 1 })
      local all = table.move(row, 1, n, 1, {})
      all[n + 1] = targets[#targets]
      local list, found = motifs(all, keys, vocab - 1), 0
      local answers = scored(list)
      for _ in pairs(answers) do found = found + 1 end
      t.eq(found, #places)
      for i, place in ipairs(places) do t.eq(targets[i], answers[place]) end
      for _, one in ipairs(list) do t.eq(#one.key, motif) end
      tally(sizes, #list[1].value)
      tally(first, list[1].key[1])
    end)
    -- In a short sequence the first pair is often the last one's, whose sizes decide how often.
    local long = n >= 64
    if long then fit(sizes, 1, motif) end
    if keys > 1 then fit(first, 0, keys - 1) end
    local lengths = {}
    examples.train(tl.mad.fuzzy_recall(options), 1280, function(row, places, targets)
      local list = motifs(whole(row, places, targets), keys, vocab - 1)
      t.ok(scored(list)[n - 1], "the last is derivable")
      tally(lengths, #list[1].key)
    end)
    if long then fit(lengths, 1, motif) end
  end
end)

-- ---- The others ----

t.test("memorization: a key has one value in all examples, and no two keys share one", function()
  for _, vocab in ipairs { 256, 33, 8192 } do
    local task = tl.mad.memorization { seed = 7, vocab = vocab, test = 2000 }
    local ask, value, taken, counts = vocab - 1, {}, {}, {}
    local keys = ask // 2
    local function check(row, places, targets)
      t.eq({ #row, #places }, { 32, 16 })
      for i, place in ipairs(places) do
        local key = row[place]
        t.eq({ place, row[place + 1] }, { 2 * i - 1, ask })
        t.ok(key >= 0 and key < keys and targets[i] >= keys and targets[i] < ask)
        t.ok(not value[key] or value[key] == targets[i], "one value")
        t.ok(not taken[targets[i]] or taken[targets[i]] == key, "one key")
        value[key], taken[targets[i]] = targets[i], key
        tally(counts, key)
      end
    end
    examples.part(task, "test", check)
    examples.part(task, "valid", check)
    examples.train(task, 256, check)
    if vocab < 8192 then fit(counts, 0, keys - 1) end
    local other = tl.mad.memorization { seed = 8, vocab = vocab }
    local same = 0
    examples.rows(other:batch(1), function(row, places, targets)
      for i, place in ipairs(places) do
        if value[row[place]] == targets[i] then same = same + 1 end
      end
    end)
    t.ok(same < 500, same) -- of 2,048
  end
end)

t.test("compression: each token is its own target", function()
  local counts = {}
  examples.part(tl.mad.compression { seed = 9, test = COUNT }, "test",
    function(row, places, targets)
      t.eq({ #row, row[32], targets }, { 32, 15, row })
      for i, place in ipairs(places) do t.eq(place, i - 1) end
      for i = 1, 31 do tally(counts, row[i]) end
    end)
  fit(counts, 0, 14)
end)

t.test("selective copying: the targets are the tokens that are not blank, in their order",
  function()
    for _, c in ipairs { { 16, 256, 16, COUNT }, { 5, 34, 16, 500 }, { 4, 8, 2, 500 } } do
      local vocab, n, marks, count = table.unpack(c)
      local symbols, ahead = {}, {}
      examples.part(tl.mad.selective_copying { seed = 10, vocab = vocab, length = n, marks = marks,
        test = count }, "test", function(row, places, targets)
        local found, start = {}, n - marks
        for i = 1, start - 1 do
          if row[i] ~= vocab - 2 then found[#found + 1] = row[i] end
          if #found == 0 then tally(ahead, 1) elseif row[i] == vocab - 2 then tally(ahead, 2) end
        end
        t.eq({ #row, row[start], targets }, { n, vocab - 1, found })
        t.ok(row[start - 1] < vocab - 2, "no blanks behind the last token")
        for i, place in ipairs(places) do
          t.eq({ place, row[place + 1] }, { start + i - 1, vocab - 2 })
          tally(symbols, targets[i])
        end
      end)
      fit(symbols, 0, vocab - 3)
      fit(ahead, 1, 2, function(k) return k == 1 and 1 / marks or 1 - 1 / marks end)
    end
  end)

t.test("the fixed examples recur in each epoch, and depend on the seed", function()
  for name in pairs { in_context_recall = 1, noisy_recall = 1, fuzzy_recall = 1, memorization = 1,
    compression = 1, selective_copying = 1 } do
    local make = function(seed) return tl.mad[name] { seed = seed, train = 50, batch = 20 } end
    local first = examples.epoch(make(1), 1)
    t.eq({ #first, make(1):steps() }, { 50, 3 })
    t.eq(examples.epoch(make(1), 4), first)
    t.ok(examples.epoch(make(2), 1)[1] ~= first[1], name)
  end
end)

t.test("the benchmark has the published settings, each of which makes a task", function()
  local counts, total = {}, 0
  for _, setting in ipairs(tl.mad.settings()) do
    tally(counts, setting.task)
    total = total + 1
    local changed = next(setting.options)
    t.ok(not changed or not next(setting.options, changed))
    local task = tl.mad[setting.task](tl.overlay({ seed = 1, batch = 1 }, setting.options))
    t.eq(#task:batch(1).ids:totable(), 1)
    if changed then t.eq(task.options[changed], setting.options[changed]) end
  end
  t.eq({ counts, total }, { { in_context_recall = 11, fuzzy_recall = 11, noisy_recall = 14,
    selective_copying = 13, compression = 11, memorization = 6 }, 66 })
end)

t.test("wrong sizes are errors that name the right ones", function()
  t.raises(tl.mad.in_context_recall, "'length' must be even", { length = 127 })
  t.raises(tl.mad.noisy_recall, "noise = 31 leaves no keys and values of vocab = 32",
    { noise = 31 })
  t.raises(tl.mad.fuzzy_recall, "motif = 3 needs a vocab of at least 7 and a length of at least 18",
    { length = 16 })
  t.raises(tl.mad.selective_copying, "marks = 16 need a length of at least 34, which is 32",
    { length = 32 })
  t.raises(function() return tl.mad.copying end, "mad has no 'copying'; known: compression, ")
end)

t.done()
