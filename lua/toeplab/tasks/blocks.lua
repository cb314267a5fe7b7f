-- tasks/blocks.lua: makes the batches of a training run over a stream of tokens, as the published
-- runs did.
--
-- The stream is cut into consecutive blocks of length targets, of which the last one may be
-- shorter; the first input of a block is the stream's previous token, and the stream's first token
-- is not a target. Every epoch takes every block once. What is shuffled (epochs.lua):
--   blocks   every epoch draws a new order of the blocks
--   batches  the first epoch draws which blocks make a batch, and every epoch draws a new order of
--            these batches, as in the published runs
--   none     nothing: batches follow the stream
-- With carry, rows read on instead: the stream is cut into as many equal rows as a batch has, and
-- batch t holds block t of every row. Fewer than `batch` targets at the end are left out.

local core = require "toeplab.core"
local epochs = require "toeplab.tasks.epochs"
local options = require "toeplab.base.options"
local ranks = require "toeplab.train.ranks"

local Blocks = {}
Blocks.__index = Blocks

local field = options.field

local spec = options.declare "tl.blocks" {
  { "length", field { type = "int", min = 1 }, "targets in a block" },
  { "batch", field { type = "int", min = 1 }, "blocks in a batch" },
  { "micro", field { type = "int", min = 1, optional = true },
    "blocks in a micro batch (default: batch)" },
  { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: tl.seed's)" },
  { "shuffle", field { default = "blocks", choices = { "blocks", "batches", "none" } },
    "what every epoch shuffles" },
  { "carry", false, "rows read on: row i of a batch continues row i of the one before, for "
    .. "tl.carried; shuffle has no effect" },
}

-- tl.blocks(stream, options): returns the batches of a stream [t] int32, such as data:stream
-- "train" of a corpus.
local function new(stream, given)
  local o = options.check("blocks", spec, given)
  options.stream("blocks", stream)
  local self = setmetatable({ length = o.length, rows = o.batch, opt = o, stream = stream }, Blocks)
  self.order = epochs.order(o.seed, "blocks.epoch.")
  self.contents = epochs.order(o.seed, "blocks.contents.")
  self.targets = stream:numel() - 1
  if self.targets < 1 then
    error(("blocks: a stream of %d tokens has nothing to predict"):format(stream:numel()), 2)
  end
  self.count = (self.targets + o.length - 1) // o.length
  if o.carry then
    self.row = self.targets // o.batch
    if self.row == 0 then
      error(("blocks: %d targets are too few for %d rows that read on"):format(self.targets,
        o.batch), 2)
    end
    self.targets = self.row * o.batch
    self.count = (self.row + o.length - 1) // o.length * o.batch
  end
  ranks.check_blocks(self:parts(), o.length)
  return self
end

-- Returns the number of batches in an epoch; the last one may have fewer blocks.
function Blocks:steps()
  return (self.count + self.rows - 1) // self.rows
end

-- Returns the number of micro batches of a full batch.
function Blocks:parts()
  local micro = self.opt.micro or self.rows
  return (self.rows + micro - 1) // micro
end

-- Returns the epoch of a step, both counted from 1.
function Blocks:epoch(step)
  options.count("blocks", "step", step)
  return (step - 1) // self:steps() + 1
end

-- Returns whether an epoch begins with a step.
function Blocks:begins_epoch(step)
  return (step - 1) % self:steps() == 0
end

-- Returns whether an epoch ends with a step.
function Blocks:ends_epoch(step)
  return step % self:steps() == 0
end

-- By what is shuffled: functions of the epoch and of the index of a batch in it, from 0. They
-- return the index of its first block in a list of blocks, divided by the batch's size, and the
-- list; without a list, block i is at index i.
local shuffles = {}

function shuffles.none(_, _, batch)
  return batch
end

function shuffles.blocks(self, epoch, batch)
  return batch, self.order(epoch, self.count)
end

function shuffles.batches(self, epoch, batch)
  return self.order(epoch, self:steps())[batch + 1], self.contents(1, self.count)
end

-- Returns the indices (from 0) of the blocks of a step.
local function numbers(self, step)
  local batch, blocks = shuffles[self.opt.shuffle](self, self:epoch(step),
    (step - 1) % self:steps())
  local first, list = batch * self.rows, {}
  for place = first, math.min(first + self.rows, self.count) - 1 do
    list[#list + 1] = blocks and blocks[place + 1] or place
  end
  return list
end

-- Returns the micro batches of n targets that begin at starts.
local function micro_batches(self, starts, n)
  local list, size = {}, self.opt.micro or self.rows
  for first = 1, #starts, size do
    local some = table.move(starts, first, math.min(first + size - 1, #starts), 1, {})
    list[#list + 1] = core.windows(self.stream, core.ids(some), n + 1)
  end
  return list
end

-- Returns the batch of a step of rows that read on. The last one of an epoch may be shorter.
local function next_windows(self, step)
  self:epoch(step) -- checks the step
  local first, starts = (step - 1) % self:steps() * self.length, {}
  for row = 1, self.rows do starts[row] = (row - 1) * self.row + first end
  return micro_batches(self, starts, math.min(self.length, self.row - first))
end

-- Returns the batch of a step (1, 2, ...) for tl.train.lm_step: a list of micro batches, int32
-- [rows, length+1]. The shorter block is a micro batch of its own.
function Blocks:batch(step)
  if self.opt.carry then return next_windows(self, step) end
  local whole, short, n = {}, nil, self.length
  for _, block in ipairs(numbers(self, step)) do
    if (block + 1) * n > self.targets then short = block else whole[#whole + 1] = block * n end
  end
  local list = micro_batches(self, whole, n)
  if short then
    list[#list + 1] = core.windows(self.stream, core.ids { short * n },
      self.targets - short * n + 1)
  end
  return list
end

return new
