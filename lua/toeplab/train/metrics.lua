-- train/metrics.lua: measures how well predictions agree with labels, both given as lists:
-- accuracy, F1 and Matthews correlation for classes, Pearson and Spearman correlation for numbers.
--
-- Degenerate cases follow scikit-learn (F1 and Matthews are 0 where they are 0/0) and SciPy (a
-- correlation with a constant list is NaN).

local suggest = require "toeplab.base.suggest"

local metrics = {}

local function check(name, predicted, labels)
  if #predicted ~= #labels or #predicted == 0 then
    error(("metrics.%s: %d predictions for %d labels: give one for each, at least 1"):format(name,
      #predicted, #labels), 3)
  end
end

-- Returns the share of predictions that equal their label.
function metrics.accuracy(predicted, labels)
  check("accuracy", predicted, labels)
  local count = 0
  for i, label in ipairs(labels) do
    if predicted[i] == label then count = count + 1 end
  end
  return count / #labels
end

-- Returns F1 of class 1: the harmonic mean of precision and recall.
function metrics.f1(predicted, labels)
  check("f1", predicted, labels)
  local both, either = 0, 0
  for i, label in ipairs(labels) do
    if predicted[i] == 1 then either = either + 1 end
    if label == 1 then either = either + 1 end
    if predicted[i] == 1 and label == 1 then both = both + 1 end
  end
  return either > 0 and 2 * both / either or 0.0
end

-- Returns the Matthews correlation of any number of classes (Gorodkin 2004): the correlation of the
-- indicators of the classes.
function metrics.matthews(predicted, labels)
  check("matthews", predicted, labels)
  local guessed, true_, good, n = {}, {}, 0, 1.0 * #labels -- floats, as n^4 overflows integers
  for i, label in ipairs(labels) do
    if predicted[i] ~= predicted[i] or label ~= label then
      error(("metrics.matthews: class %d of the list is NaN"):format(i), 2)
    end
    guessed[predicted[i]] = (guessed[predicted[i]] or 0) + 1
    true_[label] = (true_[label] or 0) + 1
    if predicted[i] == label then good = good + 1 end
  end
  local product, squares, own = 0.0, 0.0, 0.0
  for class, count in pairs(true_) do
    product, own = product + count * (guessed[class] or 0), own + count * count
  end
  for _, count in pairs(guessed) do squares = squares + count * count end
  local below = (n * n - squares) * (n * n - own)
  return below > 0 and (good * n - product) / math.sqrt(below) or 0.0
end

local function mean(list)
  local sum = 0.0
  for _, v in ipairs(list) do sum = sum + v end
  return sum / #list
end

local function constant(list)
  for _, v in ipairs(list) do
    if v ~= list[1] then return false end
  end
  return true
end

-- Returns the deviations from the mean, in units of the largest one, so that their squares neither
-- overflow nor vanish.
local function deviations(list)
  local center, most, of = mean(list), 0.0, {}
  for _, v in ipairs(list) do most = math.max(most, math.abs(v - center)) end
  for i, v in ipairs(list) do of[i] = (v - center) / most end
  return of
end

-- Returns the Pearson correlation of two lists of numbers. A NaN in a list gives NaN.
function metrics.pearson(predicted, labels)
  check("pearson", predicted, labels)
  if constant(predicted) or constant(labels) then return 0 / 0 end
  local a, b, xy, xx, yy = deviations(predicted), deviations(labels), 0.0, 0.0, 0.0
  for i, v in ipairs(a) do xy, xx, yy = xy + v * b[i], xx + v * v, yy + b[i] * b[i] end
  local r = xy / (math.sqrt(xx) * math.sqrt(yy))
  return r == r and math.max(-1.0, math.min(1.0, r)) or r -- math.min(1, NaN) is 1
end

-- Returns the ranks of the numbers of a list, from 1; equal numbers share the mean of their ranks.
local function ranks(list)
  local order, of = {}, {}
  for i = 1, #list do order[i] = i end
  table.sort(order, function(a, b)
    if list[a] ~= list[b] then return list[a] < list[b] end
    return a < b
  end)
  local first = 1
  while first <= #order do
    local last = first
    while last < #order and list[order[last + 1]] == list[order[first]] do last = last + 1 end
    for k = first, last do of[order[k]] = (first + last) / 2 end
    first = last + 1
  end
  return of
end

-- Returns the Spearman correlation: Pearson's, of the ranks. A NaN in a list gives NaN.
function metrics.spearman(predicted, labels)
  check("spearman", predicted, labels)
  for i, v in ipairs(predicted) do
    if v ~= v or labels[i] ~= labels[i] then return 0 / 0 end
  end
  return metrics.pearson(ranks(predicted), ranks(labels))
end

return suggest.strict("metrics", metrics)
