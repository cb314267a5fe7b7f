-- test_state_tracking.lua: the word problems of groups: the targets beside permutations that are
-- applied one after the other, lengths, and that batches depend on seed, part and step alone.
local t = require "harness"
local tl = require "toeplab"

-- Returns the permutations of n letters in lexicographic order, by the rule of the next one.
local function in_order(n)
  local p, list = {}, {}
  for i = 1, n do p[i] = i end
  while true do
    list[#list + 1] = table.move(p, 1, n, 1, {})
    local i = n - 1
    while i > 0 and p[i] > p[i + 1] do i = i - 1 end
    if i == 0 then return list end
    local j = n
    while p[j] < p[i] do j = j - 1 end
    p[i], p[j] = p[j], p[i]
    for k = 1, (n - i) // 2 do p[i + k], p[n + 1 - k] = p[n + 1 - k], p[i + k] end
  end
end

-- The sign, by the number of cycles.
local function even(p)
  local seen, cycles = {}, 0
  for i = 1, #p do
    if not seen[i] then cycles = cycles + 1 end
    while not seen[i] do seen[i], i = true, p[i] end
  end
  return (#p - cycles) % 2 == 0
end

-- Returns a function tokens -> the token of their product.
local function product_of(group)
  local kind, n = group:match "(%a)(%d+)"
  n = tonumber(n)
  if kind == "z" then
    return n, function(row, last)
      local sum = 0
      for i = 1, last do sum = sum + row[i] end
      return sum % n
    end
  end
  local elements = {}
  for _, p in ipairs(in_order(n)) do
    if kind == "s" or even(p) then elements[#elements + 1] = p end
  end
  return #elements, function(row, last)
    local letters = {}
    for i = 1, n do
      letters[i] = i
      for k = 1, last do letters[i] = elements[row[k] + 1][letters[i]] end
    end
    for k, p in ipairs(elements) do
      if table.concat(p, " ") == table.concat(letters, " ") then return k - 1 end
    end
  end
end

for _, case in ipairs { { "z2", 2 }, { "z7", 7 }, { "s3", 6 }, { "s4", 24 }, { "a4", 12 },
  { "a5", 60 }, { "s5", 120 } } do
  t.test(case[1] .. ": the targets are the products of the tokens so far", function()
    local group, order = table.unpack(case)
    local size, product = product_of(group)
    local task = tl.recall.state_tracking { group = group, least = 1, most = 12, test_least = 13,
      test_most = 20, batch = 9, valid = 70, test = 70 }
    t.eq({ task.vocab, size }, { order, order })
    local lengths = {}
    for step = 1, 20 do
      local batch = task:batch(step)
      local ids, places, targets = batch.ids:totable(), batch.places:totable(),
        batch.targets:totable()
      local n = #ids[1]
      lengths[n] = true
      t.eq({ #ids, #places, n >= 1 and n <= 12 }, { 9, 9 * n, true })
      for i, place in ipairs(places) do
        t.eq(place, i - 1)
        t.eq(targets[i], product(ids[place // n + 1], place % n + 1))
      end
    end
    local count = 0
    for _ in pairs(lengths) do count = count + 1 end
    t.ok(count > 5, count)
    for part, range in pairs { valid = { 1, 12 }, test = { 13, 20 } } do
      local examples = 0
      for batch in task:each(part, 30) do
        local ids, places, targets = batch.ids:totable(), batch.places:totable(),
          batch.targets:totable()
        local n = #ids[1]
        t.ok(n >= range[1] and n <= range[2], n)
        t.eq(#places, #ids)
        for i, row in ipairs(ids) do
          t.eq({ places[i], targets[i] }, { i * n - 1, product(row, n) })
        end
        examples = examples + #ids
      end
      t.eq(examples, 70)
    end
  end)
end

t.test("examples depend on seed, part and step, not on the size of batches", function()
  local function digest(options, part, size)
    local parts = {}
    for batch in tl.recall.state_tracking(options):each(part, size) do
      for _, row in ipairs(batch.ids:totable()) do parts[#parts + 1] = table.concat(row, " ") end
    end
    return tl.sha256(table.concat(parts, "\n"))
  end
  local o = { group = "s3", valid = 150, test = 150, seed = 5 }
  t.eq(digest(o, "valid", 7), digest(o, "valid", 64))
  t.ok(digest(o, "valid", 7) ~= digest(o, "test", 7))
  t.ok(digest(o, "test", 9) ~= digest({ group = "s3", valid = 150, test = 150, seed = 6 }, "test",
    9))
end)

t.test("wrong options are errors that name the right ones", function()
  local make = tl.recall.state_tracking
  for _, group in ipairs { "z1", "z121", "s6", "a3", "q8", "s" } do
    t.raises(make, "'group' .*must be z2 %(parity%) to z120, s3, s4, s5, a4 or a5",
      { group = group })
  end
  t.raises(make, "least = 41 is above most = 40", { least = 41 })
  t.raises(make, "test_least = 9 is above test_most = 8", { test_least = 9, test_most = 8 })
end)

t.test("a model memorises parity at short lengths", function()
  local task = tl.recall.state_tracking { least = 2, most = 3, test_least = 2, test_most = 3,
    batch = 64, test = 128, seed = 1 }
  local model = tl.models.tnn_lm { vocab = 2, layers = 2, dim = 16, rpe_dim = 8, rpe_layers = 1 }
  local opt = tl.optim.adam(model, { lr = 1e-2 })
  for step = 1, 150 do tl.recall.step(model, opt, task:batch(step)) end
  t.ok(tl.recall.accuracy(model, task, "test", 64) > 0.95)
end)

t.done()
