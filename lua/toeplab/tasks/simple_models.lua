-- tasks/simple_models.lua: simple models of the examples of a task, {train=, valid=, test=
-- (labelled sets), vocab=, classes=}, as yardsticks for trained models. Each returns the share of
-- the test examples that it classifies correctly; a task's yardsticks() returns it under the name
-- that tables know (report/yardsticks.lua).
local core = require "toeplab.core"
local suggest = require "toeplab.base.suggest"

local simple_models = {}

local SIZE = 500 -- examples read at once

-- Calls fn(ids, length, label) for each example of a set; ids is the list of its row.
local function each(set, fn)
  for batch in set:each(SIZE) do
    local rows, lengths = batch.ids:totable(), batch.lengths:totable()
    for i, label in ipairs(batch.labels:totable()) do fn(rows[i], lengths[i], label) end
  end
end

-- Returns the index (from 0) of the first largest number of a list.
local function largest(list)
  local best = 1
  for i = 2, #list do
    if list[i] > list[best] then best = i end
  end
  return best - 1
end

-- ---- Images -------------------------------------------------------------------------------------

-- Terms added to the squared deviations of each pixel, as shares of their mean over all pixels.
local RIDGES = { 0.03, 0.3, 3.0 }

-- Calls fn(x, y, labels) for the pixels of the examples of a set, from 0 to 1, and their classes, 1
-- for an example's and 0 for the others.
local function each_image(set, classes, fn)
  local levels, numbers = core.range(0, 255) / 255, core.range(0, classes - 1)
  for batch in set:each(SIZE) do
    local label = numbers:gather(batch.labels):reshape(-1, 1)
    local y = 1 - core.min(core.abs(label - numbers:reshape(1, classes)), 1)
    fn(levels:gather(batch.ids), y, batch.labels:totable())
  end
end

-- Returns a function (share) -> the weights of a ridge regression with the products x^T x and
-- x^T y, in which this share of the mean diagonal is added to the diagonal.
function simple_models.ridge_weights(xx, xy)
  local n = xx:dim(1)
  local places = core.range(1, n)
  local eye = core.eq(places:reshape(n, 1), places:reshape(1, n))
  local mean = (xx * eye):sum():item() / n
  return function(share) return core.solve(xx + eye * (share * mean + 1e-6), xy) end
end

-- Regresses the classes on the pixels, images of 256 levels, with the ridge that is best on the
-- validation part.
local function ridge(data)
  local x_mean, y_mean, xx, xy = 0.0, 0.0, 0.0, 0.0
  each_image(data.train, data.classes, function(x, y)
    x_mean, y_mean = x_mean + x:sum(1, true), y_mean + y:sum(1, true)
  end)
  x_mean, y_mean = x_mean / data.train.count, y_mean / data.train.count
  each_image(data.train, data.classes, function(x, y)
    x, y = x - x_mean, y - y_mean
    xx, xy = xx + core.matmul(x, x, true, false), xy + core.matmul(x, y, true, false)
  end)
  local weights = simple_models.ridge_weights(xx, xy)
  local function accuracy(set, weight)
    local right = 0
    each_image(set, data.classes, function(x, _, labels)
      local predicted = (core.matmul(x - x_mean, weight) + y_mean):argmax():totable()
      for i, label in ipairs(labels) do
        if predicted[i] == label then right = right + 1 end
      end
    end)
    return right / set.count
  end
  local best, chosen = -1, nil
  for _, ridge in ipairs(RIDGES) do
    local weight = weights(ridge)
    local share = accuracy(data.valid, weight)
    if share > best then best, chosen = share, weight end
  end
  return accuracy(data.test, chosen)
end

-- A ridge regression, with float32 products whatever the precision of the trial.
function simple_models.ridge(data) return core.precision("float32", ridge, data) end

-- ---- Texts --------------------------------------------------------------------------------------

local ORDER = 4 -- tokens of the n-grams of naive Bayes

-- Returns a function that calls fn(key) once for each distinct n-gram of `order` ids in a row. Keys
-- are numbers to the base vocab, modulo 2^64.
local function ngrams(order, vocab)
  local seen, rows, past = {}, 0, 1
  for _ = 1, order do past = past * vocab end
  return function(ids, length, fn)
    local key = 0
    rows = rows + 1
    for i = 1, length do
      key = key * vocab + ids[i] - (i > order and ids[i - order] * past or 0)
      if i >= order and seen[key] ~= rows then
        seen[key] = rows
        fn(key)
      end
    end
  end
end

-- Naive Bayes on the presence of n-grams of 4 tokens, with 1 added to each count.
function simple_models.bayes(data)
  local counts, totals, examples, known, kinds = {}, {}, {}, {}, 0
  local each_ngram = ngrams(ORDER, data.vocab)
  for c = 1, data.classes do counts[c], totals[c], examples[c] = {}, 0, 0 end
  each(data.train, function(ids, length, label)
    local c = label + 1
    local own = counts[c]
    examples[c] = examples[c] + 1
    each_ngram(ids, length, function(key)
      own[key] = (own[key] or 0) + 1
      totals[c] = totals[c] + 1
      if not known[key] then known[key], kinds = true, kinds + 1 end
    end)
  end)
  for c = 1, data.classes do
    for key in pairs(known) do
      counts[c][key] = math.log(((counts[c][key] or 0) + 1) / (totals[c] + kinds))
    end
  end
  local right = 0
  each(data.test, function(ids, length, label)
    local scores = {}
    for c = 1, data.classes do scores[c] = math.log(examples[c] + 1) end
    each_ngram(ids, length, function(key)
      for c = 1, known[key] and data.classes or 0 do scores[c] = scores[c] + counts[c][key] end
    end)
    if largest(scores) == label then right = right + 1 end
  end)
  return right / data.test.count
end

-- ---- Expressions --------------------------------------------------------------------------------

-- The most frequent class of the training examples whose rows have the same value of key(row).
function simple_models.majority(data, key)
  local counts, right = {}, 0
  local function of(value)
    if not counts[value] then
      counts[value] = {}
      for c = 1, data.classes do counts[value][c] = 0 end
    end
    return counts[value]
  end
  each(data.train, function(ids, _, label)
    local own = of(key(ids))
    own[label + 1] = own[label + 1] + 1
  end)
  each(data.test, function(ids, _, label)
    if largest(of(key(ids))) == label then right = right + 1 end
  end)
  return right / data.test.count
end

return suggest.strict("simple_models", simple_models)
