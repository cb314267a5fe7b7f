-- tasks/labelled.lua: holds the labelled sequences of a classification task, and makes batches of
-- them.
--
-- Example i, from 0, has the label labels[i+1]. Sequences lie one after another in ids; a row of a
-- batch is a sequence cut to length - 1 tokens, then the token stop, then padding up to the longest
-- row of the batch, rounded up to a multiple, because every length needs its own plan. Batch norm
-- and bidirectional token mixers see the padding, as in the published runs.

local core = require "toeplab.core"
local epochs = require "toeplab.tasks.epochs"
local errors = require "toeplab.base.errors"
local options = require "toeplab.base.options"

local Labelled = {}
Labelled.__index = Labelled

local field = options.field

local spec = options.set {
  { "length", field { type = "int", min = 1 }, "most tokens of a row, the end included" },
  { "classes", field { type = "int", min = 1, optional = true },
    "labels are 0 .. classes - 1 (default: labels are real numbers)" },
  { "multiple", field { default = 64, min = 1 }, "rows are padded to a multiple of this length" },
  { "stop", field { type = "int", min = 0, optional = true }, "the token that ends a sequence" },
  { "pad", field { default = 0, min = 0 }, "the token of the padding" },
  { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: tl.seed's)" },
}

local labelled = {}

-- Returns why a label is invalid; nil if it is valid.
local function wrong(label, classes)
  if not classes then
    return not (math.type(label) and label == label and math.abs(label) < math.huge)
      and "not a finite number"
  end
  return (math.type(label) ~= "integer" or label < 0 or label >= classes)
    and ("not in 0..%d"):format(classes - 1)
end

-- Returns a set of #labels examples with integer labels 0..classes-1 or, if classes is nil, with
-- real numbers. read(indices) returns the rows of the examples at these indices (from 0): ids [b,n]
-- and lengths [b], int32. A nil seed stands for tl.seed's.
function labelled.over(read, labels, classes, seed)
  local self = setmetatable({ read = read, labels = labels, count = #labels, index = {},
    tensor_of = classes and core.ids or core.tensor,
    order = epochs.order(seed, "labelled.epoch.") }, Labelled)
  for i, label in ipairs(labels) do
    local why = wrong(label, classes)
    if why then error(("labelled: label %d is %s, %s"):format(i, tostring(label), why), 3) end
    self.index[i] = i - 1
  end
  return self
end

-- Returns a function that makes rows of the sequences at a list of indices (from 0): ids [b,n],
-- lengths [b]; and the number of sequences. o holds resolved options.
local function reader(ids, starts, o)
  local places, sizes = starts:totable(), {}
  for i = 1, #places - 1 do
    sizes[i] = math.min(places[i + 1] - places[i] + (o.stop and 1 or 0), o.length)
  end
  return function(numbers)
    local longest = 1
    for _, number in ipairs(numbers) do longest = math.max(longest, sizes[number + 1]) end
    local n = epochs.padded(longest, o.multiple, o.length)
    return core.padded(ids, starts, core.ids(numbers), n, o.stop, o.pad)
  end, #sizes
end

-- Returns a set of the sequences in ids [t], which begin at starts [count+1], both int32, with a
-- list of labels: integers, or real numbers if given.classes is nil.
function labelled.new(ids, starts, labels, given)
  local o = options.check("labelled", spec, given)
  local read, count = reader(ids, starts, o)
  if count ~= #labels then
    error(("labelled: %d labels for %d sequences: give one for each"):format(#labels, count), 2)
  end
  return labelled.over(read, labels, o.classes, o.seed)
end

-- Returns a set of pairs of such sequences, with one label each: first and second list the indices
-- (from 0) of the sequences of a pair. A batch of b pairs is {ids= [2 b,n], lengths= [2 b],
-- labels= [b]}: the first sequences of all pairs and then the second ones, padded to one length.
function labelled.pairs(ids, starts, first, second, labels, given)
  local o = options.check("labelled", spec, given)
  local read = reader(ids, starts, o)
  if #first ~= #labels or #second ~= #labels then
    error(("labelled: %d labels for pairs of %d first and %d second sequences: give equal numbers")
      :format(#labels, #first, #second), 2)
  end
  return labelled.over(function(numbers)
    local list = {}
    for _, side in ipairs { first, second } do
      for _, number in ipairs(numbers) do list[#list + 1] = side[number + 1] end
    end
    return read(list)
  end, labels, o.classes, o.seed)
end

-- Returns the examples at these indices (from 0) as a set that shares this one's tokens.
function Labelled:part(numbers)
  local part = setmetatable({ index = {}, count = #numbers }, { __index = self })
  for i, number in ipairs(numbers) do
    part.index[i] = self.index[number + 1] or error(("labelled: there is no example %s, only 0..%d")
      :format(tostring(number), self.count - 1), 2)
  end
  return part
end

-- Returns two sets: the first count examples (nil: all) in a random order that the seed fixes, and
-- the rest. what: the option that gives count, for the error that there are fewer.
function Labelled:split(count, seed, what)
  count = count or self.count
  if count > self.count then
    errors.usage("%s = %d, but there are %d examples", what or "split: count", count, self.count)
  end
  local order = core.stream(seed, "labelled.split"):permutation(self.count):totable()
  return self:part(table.move(order, 1, count, 1, {})),
    self:part(table.move(order, count + 1, self.count, 1, {}))
end

-- Returns the share of the most frequent label, which is the accuracy of always predicting it.
function Labelled:chance()
  local counts, most = {}, 0
  for _, number in ipairs(self.index) do
    local label = self.labels[number + 1]
    counts[label] = (counts[label] or 0) + 1
    most = math.max(most, counts[label])
  end
  return most / math.max(self.count, 1)
end

-- Returns the batch of the examples at these indices: {ids= [b,n], lengths= [b], labels= [b]},
-- int32, or float32 labels if they are real numbers.
local function rows(self, numbers)
  local labels = {}
  for i, number in ipairs(numbers) do labels[i] = self.labels[number + 1] end
  local ids, lengths = self.read(numbers)
  return { ids = ids, lengths = lengths, labels = self.tensor_of(labels) }
end

-- Returns the number of batches of size examples in an epoch, which leaves out the examples that do
-- not fill a batch.
function Labelled:steps(size)
  options.count("labelled", "size", size)
  return math.max(self.count // size, 1)
end

-- Returns the batch of a step (1, 2, ...) and its epoch. Each epoch has a new order (epochs.lua).
function Labelled:batch(step, size)
  options.count("labelled", "step", step)
  if self.count == 0 then error("labelled: the set has no examples", 2) end
  local steps = self:steps(size)
  local epoch = (step - 1) // steps + 1
  local order = self.order(epoch, self.count)
  local first, numbers = (step - 1) % steps * size, {}
  for place = first + 1, math.min(first + size, self.count) do
    numbers[#numbers + 1] = self.index[order[place] + 1]
  end
  return rows(self, numbers), epoch
end

-- Iterates over all examples once, in their order: for batch in set:each(32) do ... end
function Labelled:each(size)
  options.count("labelled", "size", size)
  local first = 1 - size
  return function()
    first = first + size
    if first > self.count then return nil end
    return rows(self, table.move(self.index, first, math.min(first + size - 1, self.count), 1, {}))
  end
end

return labelled
