-- tasks/blocks.lua: makes the batches of a training run over a stream of tokens, as the published
-- runs did.
--
-- The stream is cut into consecutive blocks of length targets, of which the last one may be
-- shorter; the first input of a block is the stream's previous token, and the stream's first token
-- is not a target. Every epoch takes every block once, in a new random order (epochs.lua).

local core = require "toeplab.core"
local epochs = require "toeplab.tasks.epochs"
local options = require "toeplab.base.options"

local Blocks = {}
Blocks.__index = Blocks

local field = options.field

local spec = options.set {
  { "length", field { type = "int", min = 1 }, "targets in a block" },
  { "batch", field { type = "int", min = 1 }, "blocks in a batch" },
  { "micro", field { type = "int", min = 1, optional = true },
    "blocks in a micro batch (default: batch)" },
  { "seed", field { type = "int", min = 0, optional = true },
    "seed of the order (default: that of tl.seed)" },
  { "shuffle", true, "take the blocks of every epoch in a new order" },
}

-- tl.blocks(stream, options): returns the batches of a stream [t] int32, such as data:stream
-- "train" of a corpus.
local function new(stream, given)
  local o = options.check("blocks", spec, given)
  options.stream("blocks", stream)
  local self = setmetatable({ length = o.length, rows = o.batch, opt = o, stream = stream }, Blocks)
  self.order = epochs.order(o.seed, "blocks.epoch.")
  self.targets = stream:numel() - 1
  if self.targets < 1 then
    error(("blocks: a stream of %d tokens has nothing to predict"):format(stream:numel()), 2)
  end
  self.count = (self.targets + o.length - 1) // o.length
  return self
end

-- Returns the number of batches in an epoch; the last one may have fewer blocks.
function Blocks:steps()
  return (self.count + self.rows - 1) // self.rows
end

-- Returns the epoch of a step, both counted from 1.
function Blocks:epoch(step)
  options.count("blocks", "step", step)
  return (step - 1) // self:steps() + 1
end

-- Whether an epoch ends with a step.
function Blocks:ends_epoch(step)
  return step % self:steps() == 0
end

-- Returns the numbers (from 0) of the blocks of a step.
local function numbers(self, step)
  local epoch, steps = self:epoch(step), self:steps()
  local first = (step - 1) % steps * self.rows
  local places, list = self.opt.shuffle and self.order(epoch, self.count), {}
  for place = first, math.min(first + self.rows, self.count) - 1 do
    list[#list + 1] = places and places[place + 1] or place
  end
  return list
end

-- Returns the batch of a step (1, 2, ...) for tl.train.lm_step: a list of micro batches, int32
-- [rows, length+1]. The shorter block is a micro batch of its own.
function Blocks:batch(step)
  local whole, short, n = {}, nil, self.length
  for _, block in ipairs(numbers(self, step)) do
    if (block + 1) * n > self.targets then short = block else whole[#whole + 1] = block * n end
  end
  local list, size = {}, self.opt.micro or self.rows
  for first = 1, #whole, size do
    local starts = table.move(whole, first, math.min(first + size - 1, #whole), 1, {})
    list[#list + 1] = core.windows(self.stream, core.ids(starts), n + 1)
  end
  if short then
    list[#list + 1] = core.windows(self.stream, core.ids { short * n },
      self.targets - short * n + 1)
  end
  return list
end

return new
