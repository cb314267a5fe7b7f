-- nn/mixers/approximate/frame.lua: the common base of all attentions of this folder: the maps to
-- queries, keys and values, heads, the padding mask, and the output map.
--
--   local Name = frame.class("Name", { features = 64 })   -- further options
--   function Name:mix(q, k, v, mask, choices) ... end     -- the attention itself
--
-- The mixers compute y = Wo o, o = mix(x Wq, x Wk, x Wv), per head, as in the code of Skyformer
-- (Chen et al. 2021), in which TNN's authors ran the Long Range Arena. None is causal.
--   x, y [b,n,dim]   q, k, v, o [b,h,n,p], p = head_dim
--   mask [b,n]: 1 for a token, 0 for padding; without it, all are tokens
--   choices: the random choices of one forward pass, which tests pass; else drawn from a stream
-- A class may define
--   prepare(o)   makes further parameters
--   aligned(n)   the length at which mix works, at least n. Padding rows are added up to it.
--   pads_input   true: the rows are added to x, so a bias reaches them; false: to q, k, v
--   one_map      true: queries and keys are the same vectors, and k is nil
-- Two options serve the ports of these mixers in the repository lra: output = false leaves Wo out,
-- and padding = "tokens" makes the added rows tokens, which are attended to.

local core = require "toeplab.core"
local nn_class = require("toeplab.nn.class").class
local heads = require "toeplab.nn.mixers.heads"
local options = require "toeplab.base.options"
local shapes = require "toeplab.nn.shapes"
local streams = require "toeplab.base.streams"

local frame = {}

-- Returns a declaration of the common options of this folder's mixers, and those of more.
local function spec(more)
  local all = heads.spec {
    head_dim = options.field { type = "int", min = 1, optional = true },
    causal = options.field { default = false, check = function(value)
      return not value, "must be false: this mixer sees all positions, later ones too; a causal "
        .. "model use attention or another causal mixer"
    end },
    bias = true,
    output = true,
    init = options.field { type = "function|string", default = "torch" },
  }
  for name, field in pairs(more) do all[name] = field end
  return all
end

-- Returns the options of mixers that work at a longer length than n, for their declarations.
function frame.padding(more)
  more.padding = options.field { default = "masked", choices = { "masked", "tokens" },
    help = "whether rows that fill up the length are hidden or attended to" }
  return more
end

local function build(self, o)
  self.width = heads.width(self, o.dim)
  heads.maps(self, o, self.one_map and { "q", "v" } or nil)
  if self.prepare then self:prepare(o) end
end

-- Returns the length at which a mixer with the option max_length works before its own alignment:
-- n, or max_length if the rows up to it are tokens. A longer sequence is an error.
function frame.tokens_length(self, n)
  local o = self.opt
  if o.padding == "masked" or not o.max_length then return n end
  if n > o.max_length then
    error(("%s: %d positions, but max_length = %d: set max_length to the longest length"):format(
      self.kind, n, o.max_length), 0)
  end
  return o.max_length
end

-- Returns the mask [b,n+more] after padding, or nil if all rows are tokens.
local function extended_mask(self, mask, b, n, more)
  if more == 0 then return mask end
  if self.opt.padding == "tokens" then
    return mask and core.concat({ mask, core.ones(b, more) }, 2)
  end
  return shapes.pad(mask or core.ones(b, n), 2, 0, more)
end

local function forward(self, x, mask, choices)
  heads.check_input(self, x, mask)
  local count, b, n = self.opt.heads, x:dim(1), x:dim(2)
  local more = self.aligned and self:aligned(n) - n or 0
  mask = extended_mask(self, mask, b, n, more)
  if self.pads_input then x = shapes.pad(x, 2, 0, more) end
  local function mapped(map)
    if not map then return nil end
    local y = map(x)
    if not self.pads_input then y = shapes.pad(y, 2, 0, more) end
    return heads.split(y, count)
  end
  local o = self:mix(mapped(self.q), mapped(self.k), mapped(self.v),
    mask and mask:reshape(b, 1, n + more, 1), choices)
  o = heads.join(o):narrow(2, 1, n)
  return self.o and self.o(o) or o
end

-- Returns a new class of mixers with the options more besides the common ones. An option in more
-- replaces a common one of the same name.
function frame.class(kind, more)
  local class = nn_class(kind, spec(more or {}), { "dim" })
  class.build, class.forward, class.takes_mask = build, forward, true
  return class
end

-- Returns softmax(scale q k^T) v over the keys that are tokens.
--   q [b,h,m,p]   k [b,h,n,p]   v [b,h,n,p']   mask [b,1,n,1] or nil
function frame.attend(q, k, v, scale, mask)
  return heads.attend(q, k, v, scale, mask and { mask = mask:reshape(mask:dim(1), -1) })
end

-- Returns the rows of x [b,h,n,p], with 0 for padding.
function frame.tokens(x, mask)
  return mask and x * mask or x
end

-- Returns the stream of the random choices of a mixer. Evaluation has its own stream, so that the
-- number of evaluations does not change the training.
function frame.stream(self)
  return streams.get(self.kind:lower() .. (self.training and "" or " in evaluation"))
end

return frame
