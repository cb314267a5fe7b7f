-- tasks/labelled.lua: holds the labelled sequences of a classification task, and makes batches of
-- them.
--
-- Examples lie one after another in ids; example i, from 0, has the label labels[i+1]. A row of a
-- batch is an example cut to length - 1 tokens, then the token stop, then padding up to the longest
-- row of the batch, rounded up to a multiple, because every length needs its own plan. Batch norm
-- and bidirectional token mixers see the padding, as in the published runs.

local core = require "toeplab.core"
local epochs = require "toeplab.tasks.epochs"
local options = require "toeplab.base.options"

local Labelled = {}
Labelled.__index = Labelled

local field = options.field

local spec = options.set {
  { "length", field { type = "int", min = 1 }, "most tokens of a row, the end included" },
  { "classes", field { type = "int", min = 1 }, "labels are 0 .. classes - 1" },
  { "multiple", field { default = 64, min = 1 }, "rows are padded to a multiple of this length" },
  { "stop", field { type = "int", min = 0, optional = true }, "the token that ends a sequence" },
  { "pad", field { default = 0, min = 0 }, "the token of the padding" },
  { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: that of tl.seed)" },
}

local labelled = {}

-- Returns a set of the examples in ids [t], which begin at starts [count+1], both int32, with a
-- list of integer labels.
function labelled.new(ids, starts, labels, given)
  local o = options.check("labelled", spec, given)
  local self = setmetatable({ ids = ids, starts = starts, labels = labels, opt = o,
    order = epochs.order(o.seed, "labelled.epoch."), sizes = {}, index = {} }, Labelled)
  local places = starts:totable()
  if #places ~= #labels + 1 then
    error(("labelled: %d labels for %d sequences"):format(#labels, #places - 1), 2)
  end
  for i, label in ipairs(labels) do
    if math.type(label) ~= "integer" or label < 0 or label >= o.classes then
      error(("labelled: label %d is %s, not in 0..%d"):format(i, tostring(label), o.classes - 1), 2)
    end
    self.sizes[i] = math.min(places[i + 1] - places[i] + (o.stop and 1 or 0), o.length)
    self.index[i] = i - 1
  end
  self.count = #labels
  return self
end

-- Returns the examples of these numbers (from 0) as a set that shares the tokens of this one.
function Labelled:part(numbers)
  local part = setmetatable({ index = {}, count = #numbers }, { __index = self })
  for i, number in ipairs(numbers) do part.index[i] = self.index[number + 1] end
  return part
end

-- Returns two sets: the first count examples (nil: all) in a random order that the seed fixes, and
-- the rest.
function Labelled:split(count, seed)
  local order = core.stream(seed, "labelled.split"):permutation(self.count):totable()
  count = math.min(count or self.count, self.count)
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

-- Returns the batch of the examples of these numbers: {ids= [b,n], lengths= [b], labels= [b]},
-- int32.
local function rows(self, numbers)
  local o, longest, labels = self.opt, 1, {}
  for i, number in ipairs(numbers) do
    longest = math.max(longest, self.sizes[number + 1])
    labels[i] = self.labels[number + 1]
  end
  local n = epochs.padded(longest, o.multiple, o.length)
  local ids, lengths = core.padded(self.ids, self.starts, core.ids(numbers), n, o.stop, o.pad)
  return { ids = ids, lengths = lengths, labels = core.ids(labels) }
end

-- Returns the number of batches of size examples in an epoch. An epoch leaves out the examples that
-- do not fill a batch.
function Labelled:steps(size)
  options.count("labelled", "size", size)
  return math.max(self.count // size, 1)
end

-- Returns the batch of a step (1, 2, ...) and its epoch. Each epoch has a new order (epochs.lua).
function Labelled:batch(step, size)
  if self.count == 0 then error("labelled: a batch of no examples", 2) end
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
