-- models/sampler.lua: draws the next token of a text from the logits of a model.
--
-- The options act in this order: the repetition penalty changes the logits, the temperature divides
-- them, top_k keeps the likeliest tokens, and top_p, relative to these, the likeliest that hold
-- this share of the probability.

local core = require "toeplab.core"
local options = require "toeplab.base.options"

local sampler = {}

-- Returns the options of drawing, a list of {name, field, help}, for callers' declarations.
function sampler.fields()
  return {
    { "temperature", options.field { default = 1.0, min = 0, max = 1e6 },
      "temperature of the softmax; 0: always the likeliest token" },
    { "top_k", options.field { default = 0, min = 0, max = (1 << 31) - 1 },
      "draw among the k likeliest tokens; 0: among all" },
    { "top_p", options.field { default = 1.0, min = 1e-6, max = 1 },
      "draw among the fewest tokens whose probabilities add up to this" },
    { "repetition_penalty", options.field { default = 1.0, min = 1e-3, max = 1e3 },
      "divides positive logits, and multiplies negative ones, of tokens in the text (CTRL, 2019)" },
  }
end

local Sampler = {}
Sampler.__index = Sampler

-- Returns a sampler with the options o, declared by sampler.fields, which draws from a random
-- stream.
function sampler.new(o, stream)
  return setmetatable({ options = o, stream = stream, seen = {} }, Sampler)
end

-- Records a token of the text, for the repetition penalty.
function Sampler:note(id)
  if self.options.repetition_penalty ~= 1 then self.seen[#self.seen + 1] = id end
end

-- Returns the logits [v] after the repetition penalty. Caches the factors [v] of positive and of
-- negative logits, and changes them for new tokens only, because a text may be long.
local function penalised(self, logits)
  local penalty = self.options.repetition_penalty
  if penalty == 1 then return logits end
  local v = logits:dim(1)
  self.above, self.below = self.above or core.ones(v), self.below or core.ones(v)
  for i, id in ipairs(self.seen) do
    self.above:view(id, { 1 }):fill(1 / penalty)
    self.below:view(id, { 1 }):fill(penalty)
    self.seen[i] = nil
  end
  local positive = core.relu(logits)
  return positive * self.above + (logits - positive) * self.below
end

local PIECE = 256 -- probabilities read at once: the likeliest few usually suffice

-- Returns how many of the likeliest tokens top_k and top_p leave; 0 for all.
local function candidates(o, logits)
  local v = logits:dim(1)
  local most = o.top_k > 0 and math.min(o.top_k, v) or v
  if o.top_p == 1 or o.temperature == 0 then return o.top_k end
  local order = (-logits):argsort():narrow(1, 1, most)
  local share = core.softmax(core.affine(logits:gather(order), 1 / o.temperature, 0))
  local sum, count = 0.0, 0
  while count < most do
    local piece = share:narrow(1, count + 1, math.min(PIECE, most - count)):totable()
    for _, p in ipairs(piece) do
      sum, count = sum + p, count + 1
      if sum >= o.top_p - 1e-6 then return count end -- the probabilities are rounded to float32
    end
  end
  return most
end

-- Returns the id, from 0, of a token drawn by logits [v].
function Sampler:draw(logits)
  local o = self.options
  return core.no_grad(function()
    local changed = penalised(self, logits)
    return self.stream:sample(changed, o.temperature, candidates(o, changed))
  end)
end

return sampler
