-- Tests the simple models with which models of labelled examples are compared.
local t = require "harness"
local core = require "toeplab.core"
local labelled = require "toeplab.tasks.labelled"
local tl = require "toeplab"
local simple_models = require "toeplab.tasks.simple_models"

-- Returns a set of rows of ids, which may have different lengths, and their labels.
local function set_of(rows, labels, classes)
  local ids, starts, longest = {}, { 0 }, 1
  for i, row in ipairs(rows) do
    table.move(row, 1, #row, #ids + 1, ids)
    starts[i + 1] = #ids
    longest = math.max(longest, #row)
  end
  return labelled.new(core.ids(ids), core.ids(starts), labels, { length = longest, multiple = 1,
    classes = classes, seed = 1 })
end

local function task_of(classes, vocab, parts)
  local data = { classes = classes, vocab = vocab }
  for name, part in pairs(parts) do data[name] = set_of(part[1], part[2], classes) end
  return data
end

-- ---- Ridge regression ---------------------------------------------------------------------------

-- Draws images of 16 pixels whose class is where they are brighter than the rest, among noise.
local function images(count, seed, gain)
  local stream, rows, labels = core.stream(seed, "images"), {}, {}
  for i = 1, count do
    labels[i], rows[i] = stream:below(3), {}
    for p = 1, 16 do
      rows[i][p] = stream:below(100) + (p // 5 == labels[i] and gain or 0)
    end
  end
  return { rows, labels }
end

t.test("a ridge regression classifies linear differences, and nothing else", function()
  local function accuracy(gain)
    return simple_models.ridge(task_of(3, 256, { train = images(600, 1, gain),
      valid = images(100, 2, gain), test = images(300, 3, gain) }))
  end
  t.eq(accuracy(150), 1)
  local some = accuracy(30)
  t.ok(some > 0.6 and some < 0.95, some)
  t.ok(accuracy(0) < 0.45)
end)

t.test("its products are float32 in a trial of another precision", function()
  local data = task_of(3, 256, { train = images(200, 1, 20), valid = images(100, 2, 20),
    test = images(500, 3, 20) })
  local share = simple_models.ridge(data)
  t.eq(tl.precision("bf16", simple_models.ridge, data), share)
end)

-- By numpy.linalg.solve(x.T @ x + ridge * trace(x.T @ x) / 3 * eye(3), x.T @ y), less the means: of
-- the validation examples 3, 3 and 2 are right, of the test examples 1, 1 and 4.
t.test("ridge regression of forty images of three pixels agrees with another program", function()
  local function part(first, last)
    local rows, labels = {}, {}
    for i = first, last do
      rows[#rows + 1] = { 25 * i % 256, 13 * i * i % 256, 7 * i * i * i % 256 }
      labels[#labels + 1] = (i * i + i // 3) % 3
    end
    return { rows, labels }
  end
  t.eq(simple_models.ridge(task_of(3, 256, { train = part(1, 20), valid = part(21, 30),
    test = part(31, 40) })), 0.1)
end)

-- ---- Naive Bayes ----------------------------------------------------------------------------

t.test("naive Bayes counts n-grams of four tokens, each once a text", function()
  -- by hand: class 0 has {1234, 2341} in two texts and class 1 {1235} in one; of three kinds
  local train = { { { 1, 2, 3, 4, 1, 2, 3, 4 }, { 1, 2, 3, 4, 1 }, { 1, 2, 3, 5 } }, { 0, 0, 1 } }
  local function label(row)
    for want = 0, 1 do
      local data = task_of(2, 6, { train = train, test = { { row }, { want } } })
      if simple_models.bayes(data) == 1 then return want end
    end
  end
  t.eq(label { 1, 2, 3, 4 }, 0)
  t.eq(label { 1, 2, 3, 5 }, 1) -- 1/4 x 2/4 against 3/4 x 1/7, less than a sixth
  t.eq(label { 5, 5, 5, 5 }, 0) -- unknown: the more frequent class
  t.eq(label { 3, 5 }, 0)       -- too short
end)

t.test("naive Bayes: more than two classes, and keys of a large vocabulary", function()
  local rows, labels = {}, {}
  for i = 1, 30 do
    local c = i % 3
    rows[i], labels[i] = { 60000 + c, 5, 60001, 7 + c, 9 }, c
  end
  local data = task_of(3, 65536, { train = { rows, labels }, test = { rows, labels } })
  t.eq(simple_models.bayes(data), 1)
end)

-- ---- The majority -------------------------------------------------------------------------------

t.test("the majority is taken over training examples with the same key", function()
  local data = task_of(3, 9, {
    train = { { { 1 }, { 1 }, { 1 }, { 2 }, { 2 } }, { 2, 2, 0, 1, 1 } },
    test = { { { 1 }, { 2 }, { 2 }, { 3 } }, { 2, 1, 0, 0 } },
  })
  t.eq(simple_models.majority(data, function(row) return row[1] end), 3 / 4) -- 3 is new: class 0
  t.eq(simple_models.majority(data, function() return 1 end), 1 / 4)
end)

t.test("tasks name their yardstick", function()
  local text = {}
  for i = 1, 30 do
    text[i] = ("%d\t5\t%d\t%s"):format(i % 2, i, i % 2 == 0 and "dull and slow" or "bright, quick")
  end
  text = "text:" .. table.concat(text, "\n")
  t.eq(tl.tasks.imdb { length = 20, least = 1, train_file = text, test_file = text }.yardsticks(),
    { bayes_accuracy = 1 })
  local listops = tl.tasks.listops { length = 40, min_length = 10, max_length = 39, train = 2000,
    valid = 1, test = 500 }
  local operator = listops.yardsticks().operator_accuracy
  t.ok(operator > listops.test:chance() + 0.1 and operator < 0.6, operator)
  local images_task = tl.tasks["cifar-standin"] { images = 60, valid = 20, test_images = 20 }
  local ridge = images_task.yardsticks().ridge_accuracy
  t.ok(ridge >= 0 and ridge <= 1)
end)

t.done()
