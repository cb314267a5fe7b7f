-- synthetic/drawn.lua: base of tasks whose examples are drawn on demand.
--
-- The examples of each batch, or of each block of a part, have their own random stream, so that
-- they depend on the seed alone and a run can resume at any step:
--   task:batch(step)        the batch of training step 1, 2, ...
--   task:each(part, size)   iterates over the examples of part "valid" or "test", size at a time
--   task:steps()            steps of an epoch, for a task with a fixed set to train with; else nil
-- A batch is {ids= [b,n], places= [m], targets= [m]}, all int32: the model is to predict targets[i]
-- after the token at index places[i], counted from 0 along the rows of ids.

local core = require "toeplab.core"
local epochs = require "toeplab.tasks.epochs"
local options = require "toeplab.base.options"
local streams = require "toeplab.base.streams"
local suggest = require "toeplab.base.suggest"

local drawn = {}

local field = options.field

function drawn.count(default) return field { default = default, min = 1, max = 1 << 24 } end

-- Declares the options of a task by its name in tl: those of spec and the common ones, whose
-- defaults are in `sizes`. A task with sizes.train, which may be false for no default, can train
-- with a fixed set.
function drawn.declare(name, spec, sizes)
  local all = {
    { "batch", drawn.count(sizes.batch), "examples of a training batch" },
    { "valid", drawn.count(sizes.valid), "examples to validate with" },
    { "test", drawn.count(sizes.test), "examples to test with" },
    { "seed", field { type = "int", min = 0, optional = true },
      "seed of the examples (default: tl.seed's)" },
  }
  if sizes.train ~= nil then
    all[#all + 1] = { "train", field { type = "int", default = sizes.train or nil,
      optional = not sizes.train, min = 1, max = 1 << 30 },
      "examples to train with, in a new order in each epoch"
        .. (sizes.train and "" or " (default: new examples at every step)") }
  end
  return options.declare("tl." .. name)(table.move(all, 1, #all, #spec + 1, spec))
end

-- ---- Random numbers ----

-- Returns a function that returns the next of count uniform random numbers of [0,1).
local function source(stream, count)
  local list, at = stream:uniform(core.zeros(count), 0, 1):totable(), 0
  return function()
    at = at + 1
    return list[at]
  end
end

-- Returns a random integer of 0..size-1. Float32 can round a draw up to 1.
function drawn.below(next_, size)
  return math.min(math.floor(next_() * size), size - 1)
end
local below = drawn.below

-- Returns `wanted` different integers of 0..size-1 in random order (the first steps of a shuffle).
function drawn.distinct(next_, wanted, size)
  local moved, list = {}, {}
  for i = 0, wanted - 1 do
    local k = i + below(next_, size - i)
    list[i + 1] = moved[k] or k
    moved[k] = moved[i] or i
  end
  return list
end

-- Makes each token of a row the target after the one before it, and `last` the target after the
-- last one.
function drawn.every(row, places, targets, first, last)
  for i = 1, #row do
    places[#places + 1], targets[#targets + 1] = first + i - 1, row[i + 1] or last
  end
end

-- ---- Tasks ----

local Task = {}
Task.__index = Task

-- Makes a task of: name, options (resolved), vocab, length, draws (the most random numbers of an
-- example), and draw(next_, row, places, targets, first, length, part), which fills one row and
-- appends its places, counted from `first`, and targets. If lengths vary, the lengths of one stream
-- are equal, and drawn first: draw_length(next_, part) returns the length that draw gets.
function drawn.task(fields)
  local o = fields.options
  fields.train = rawget(o, "train")
  if fields.train then fields.order = epochs.order(o.seed, fields.name .. " epoch ") end
  return setmetatable(fields, Task)
end

-- Draws count examples from the stream of that name and appends them to list, each {row=, places=,
-- targets=} with places counted from the start of the row.
local function draw_some(self, name, part, count, list)
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

function Task:steps()
  local batch = self.options.batch
  return self.train and (self.train + batch - 1) // batch
end

-- Draws the examples of a fixed set again in each epoch, each from its own stream, which costs less
-- than a training step and no memory.
function Task:batch(step)
  options.count(self.name, "step", step)
  local rows, list = self.options.batch, {}
  if not self.train then
    draw_some(self, ("%s train %d"):format(self.name, step), "train", rows, list)
    return batch_of(list, 1, rows)
  end
  local steps = self:steps()
  local order = self.order((step - 1) // steps + 1, self.train)
  local first = (step - 1) % steps * rows
  for i = first + 1, math.min(first + rows, self.train) do
    draw_some(self, ("%s example %d"):format(self.name, order[i]), "train", 1, list)
  end
  return batch_of(list, 1, #list)
end

local BLOCK = 64 -- examples of a part from one stream, so that they do not depend on the batches

local PARTS = { "valid", "test" } -- whose examples are counted; training examples have no end

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
      draw_some(self, name, part, math.min(BLOCK, total - #list), list)
    end
    local batch = batch_of(list, first + 1, last)
    first = last
    return batch
  end
end

return drawn
