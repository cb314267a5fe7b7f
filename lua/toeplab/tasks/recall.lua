-- tasks/recall.lua: generates the tasks in which a model must recall earlier tokens: associative
-- recall with many queries, selective copying, and state tracking.
--
-- A task is {vocab=, length=, batch=, each=}. Its examples are drawn when they are asked for, each
-- batch from a random stream of its own, so that a run can resume at any step:
--   task:batch(step)        the batch of training step 1, 2, ...
--   task:each(part, size)   iterates over the examples of part "valid" or "test", size at a time
-- A batch is {ids= [b,n], places= [m], targets= [m]}, all int32: the model is to predict targets[i]
-- after token number places[i], which counts from 0 along the rows of ids.

local core = require "toeplab.core"
local evaluating = require("toeplab.train.eval").evaluating
local groups = require "toeplab.tasks.groups"
local options = require "toeplab.base.options"
local streams = require "toeplab.base.streams"
local suggest = require "toeplab.base.suggest"

local recall = {}

local field = options.field
local count = function(default) return field { default = default, min = 1, max = 1 << 24 } end

local function common(name, spec)
  for _, entry in ipairs {
    { "batch", count(64), "examples of a training batch" },
    { "valid", count(1000), "examples to validate with" },
    { "test", count(1000), "examples to test with" },
    { "seed", field { type = "int", min = 0, optional = true },
      "seed of the examples (default: that of tl.seed)" },
  } do
    spec[#spec + 1] = entry
  end
  return options.declare("tl.recall." .. name)(spec)
end

-- Returns a function that returns the next of count uniform random numbers of [0,1).
local function source(stream, size)
  local list, at = stream:uniform(core.zeros(size), 0, 1):totable(), 0
  return function()
    at = at + 1
    return list[at]
  end
end

-- Returns a random integer of 0..size-1. Float32 can round a draw up to 1.
local function below(next_, size)
  return math.min(math.floor(next_() * size), size - 1)
end

-- Returns `wanted` different integers of 0..size-1 in random order (the first steps of a shuffle).
local function distinct(next_, wanted, size)
  local moved, list = {}, {}
  for i = 0, wanted - 1 do
    local k = i + below(next_, size - i)
    list[i + 1] = moved[k] or k
    moved[k] = moved[i] or i
  end
  return list
end

local Task = {}
Task.__index = Task

-- Draws count examples from the stream of that name and appends them to list, each {row=, places=,
-- targets=} with places counted from the start of the row. draw(next_, row, places, targets, first)
-- fills one row and appends its places, counted from `first` on. Where lengths vary, those of one
-- stream are equal, and drawn first: draw_length(next_, part) returns what draw gets after `first`.
local function drawn(self, name, part, count, list)
  local o, length = self.options, nil
  local next_ = source(core.stream(o.seed or streams.seed_of(), name), count * self.draws + 1)
  if self.draw_length then length = self.draw_length(next_, part) end
  for _ = 1, count do
    local one = { row = {}, places = {}, targets = {} }
    self.draw(next_, one.row, one.places, one.targets, 0, length, part)
    list[#list + 1] = one
  end
  return list
end

-- Returns a batch of examples first .. last of a list.
local function batch_of(list, first, last)
  local ids, places, targets = {}, {}, {}
  for i = first, last do
    local one, start = list[i], (i - first) * #list[first].row
    ids[#ids + 1] = one.row
    for k, place in ipairs(one.places) do
      places[#places + 1], targets[#targets + 1] = start + place, one.targets[k]
    end
  end
  return { ids = core.ids(ids), places = core.ids(places), targets = core.ids(targets) }
end

function Task:batch(step)
  options.count(self.name, "step", step)
  local rows = self.options.batch
  local list = drawn(self, ("%s train %d"):format(self.name, step), "train", rows, {})
  return batch_of(list, 1, rows)
end

local BLOCK = 64 -- examples of a part from one stream, so that they do not depend on the batches

local PARTS = { "valid", "test" } -- whose examples are counted; those to train on have no end

function Task:each(part, size)
  local fine, why = suggest.choose("part of the task", part, PARTS)
  if not fine then error(self.name .. ": " .. why, 2) end
  options.count(self.name, "size", size)
  local total, first, list = self.options[part], 0, {}
  return function()
    if first >= total then return nil end
    local last = math.min(first + size, total)
    if self.draw_length then last = math.min(last, (first // BLOCK + 1) * BLOCK) end
    while #list < last do
      local name = ("%s %s %d"):format(self.name, part, #list)
      drawn(self, name, part, math.min(BLOCK, total - #list), list)
    end
    local batch = batch_of(list, first + 1, last)
    first = last
    return batch
  end
end

-- ---- Associative recall -----------------------------------------------------------------------

local mqar = common("mqar", {
  { "vocab", field { default = 8192, min = 4, max = 1 << 24 }, "tokens: half keys, half values" },
  { "length", field { default = 256, min = 4, max = 1 << 20 }, "tokens of an example" },
  { "pairs", count(16), "pairs of a key and its value" },
  { "power", field { default = 0.01, min = 1e-6, max = 1 },
    "query slot k = 1, 2, ... is drawn with weight k^(power - 1)" },
})

-- Returns `wanted` different slots of 0..#weights-1, each drawn with its weight among those left:
-- the smallest of -ln(u) / weight have that distribution.
local function weighted(next_, wanted, weights)
  local order, time = {}, {}
  for k, weight in ipairs(weights) do
    order[k], time[k] = k, -math.log(1 - math.min(next_(), 1 - 2 ^ -24)) / weight
  end
  table.sort(order, function(a, b)
    if time[a] ~= time[b] then return time[a] < time[b] end
    return a < b
  end)
  local list = {}
  for i = 1, wanted do list[i] = order[i] - 1 end
  return list
end

-- tl.recall.mqar(options): multi-query associative recall (Arora et al. 2023, Zoology, Section 4).
-- An example begins with pairs of different keys and values. Each key then comes once more as a
-- query, at an even distance behind the pairs, and the model is to predict its value after it. All
-- other tokens are random. Keys are the tokens 1..vocab/2-1, values those from vocab/2 on.
function recall.mqar(given)
  local o = options.check("mqar", mqar, given or {})
  local half, slots = o.vocab // 2, (o.length - 2 * o.pairs) // 2
  if slots < o.pairs then
    error(("mqar: pairs = %d need a length of at least %d, which is %d"):format(o.pairs,
      4 * o.pairs, o.length), 0)
  end
  if o.pairs > half - 1 then
    error(("mqar: pairs = %d need a vocab of at least %d, which is %d"):format(o.pairs,
      2 * o.pairs + 2, o.vocab), 0)
  end
  local weights = {}
  for k = 1, slots do weights[k] = k ^ (o.power - 1) end
  local function draw(next_, row, places, targets, first)
    local keys = distinct(next_, o.pairs, half - 1)
    local values = distinct(next_, o.pairs, o.vocab - half)
    for i = 1, o.length do row[i] = below(next_, o.vocab) end
    for i, slot in ipairs(weighted(next_, o.pairs, weights)) do
      local at = 2 * o.pairs + 2 * slot
      row[2 * i - 1], row[2 * i], row[at + 1] = 1 + keys[i], half + values[i], 1 + keys[i]
      places[#places + 1], targets[#targets + 1] = first + at, half + values[i]
    end
  end
  return setmetatable({ name = "mqar", options = o, vocab = o.vocab, length = o.length,
    draws = 2 * o.pairs + o.length + slots, draw = draw }, Task)
end

-- ---- Selective copying -------------------------------------------------------------------------

local copying = common("selective_copying", {
  { "symbols", field { default = 16, min = 1, max = 1 << 20 }, "kinds of tokens to copy" },
  { "marks", count(16), "tokens to copy" },
  { "span", field { default = 256, min = 1, max = 1 << 20 },
    "tokens among which those to copy are spread" },
})

-- tl.recall.selective_copying(options): selective copying (Gu & Dao 2023, Section 4.1.1). In an
-- example, `marks` random symbols stand at random places of `span` tokens, of which the others are
-- noise (token 0). Then come `marks` tokens 1, after which the model is to predict the symbols in
-- their order. Symbols are the tokens from 2 on.
function recall.selective_copying(given)
  local o = options.check("selective_copying", copying, given or {})
  if o.marks > o.span then
    error(("selective_copying: marks = %d do not fit in span = %d"):format(o.marks, o.span), 0)
  end
  local function draw(next_, row, places, targets, first)
    for i = 1, o.span + o.marks do row[i] = i > o.span and 1 or 0 end
    local spots = distinct(next_, o.marks, o.span)
    table.sort(spots)
    for i, spot in ipairs(spots) do
      local symbol = 2 + below(next_, o.symbols)
      row[spot + 1] = symbol
      places[#places + 1], targets[#targets + 1] = first + o.span + i - 1, symbol
    end
  end
  return setmetatable({ name = "selective copying", options = o, vocab = o.symbols + 2,
    length = o.span + o.marks, draws = 2 * o.marks, draw = draw }, Task)
end

-- ---- State tracking ----------------------------------------------------------------------------

local tracking = common("state_tracking", {
  { "group", field { default = "z2", check = groups.table_of },
    "z2 (parity), z3, ..., s3, a5, s5" },
  { "least", count(3), "fewest tokens of an example to train or validate with" },
  { "most", count(40), "most tokens of such an example" },
  { "test_least", count(40), "fewest tokens of an example to test with" },
  { "test_most", count(256), "most tokens of such an example" },
})

-- tl.recall.state_tracking(options): the word problem of a group (Merrill et al. 2024; parity and
-- sums modulo n are those of cyclic groups). Tokens are random elements; the model is to predict
-- their product so far, in training after each token, in validation and test after the last one.
-- The examples of a batch have one random length. No mixer that is linear and the same at all
-- times, such as a TNO, can solve it at all lengths.
function recall.state_tracking(given)
  local o = options.check("state_tracking", tracking, given or {})
  for _, pair in ipairs { { "least", "most" }, { "test_least", "test_most" } } do
    if o[pair[1]] > o[pair[2]] then
      error(("state_tracking: %s = %d is above %s = %d"):format(pair[1], o[pair[1]], pair[2],
        o[pair[2]]), 0)
    end
  end
  local product, order = groups.table_of(o.group)
  local function draw_length(next_, part)
    local least, most = o.least, o.most
    if part == "test" then least, most = o.test_least, o.test_most end
    return least + below(next_, most - least + 1)
  end
  local function draw(next_, row, places, targets, first, length, part)
    local state = 0
    for i = 1, length do
      row[i] = below(next_, order)
      state = product[state][row[i]]
      if part == "train" or i == length then
        places[#places + 1], targets[#targets + 1] = first + i - 1, state
      end
    end
  end
  local longest = math.max(o.most, o.test_most)
  return setmetatable({ name = "state tracking " .. o.group, options = o, vocab = order,
    length = longest, draws = longest, draw = draw, draw_length = draw_length }, Task)
end

-- ---- Training and evaluation -------------------------------------------------------------------

-- Returns a language model's logits after the tokens at the batch's places: [m,vocab].
local function logits(model, batch)
  local hidden = model:hidden(batch.ids)
  return model:logits(hidden:reshape(-1, hidden:dim(3)):gather(batch.places))
end

-- Updates the model from a batch. Returns the mean cross entropy in nats of its targets, and
-- {step=, lr=, grad_norm=}.
function recall.step(model, opt, batch)
  model:train()
  opt:zero_grad()
  local loss = core.cross_entropy(logits(model, batch), batch.targets)
  loss:backward()
  local info = opt:step()
  return loss:item(), info
end

-- Returns the fraction of the targets of a part that the model predicts, and their mean cross
-- entropy in nats. Batches have size examples.
function recall.accuracy(model, task, part, size)
  local good, total, nats = 0, 0, 0.0
  evaluating(model, function()
    for batch in task:each(part, size) do
      local y = logits(model, batch)
      local guess, wanted = y:argmax():totable(), batch.targets:totable()
      for i, target in ipairs(wanted) do
        if guess[i] == target then good = good + 1 end
      end
      nats = nats + core.cross_entropy(y, batch.targets):item() * #wanted
      total = total + #wanted
    end
  end)
  return good / total, nats / total
end

return suggest.strict("recall", recall)
