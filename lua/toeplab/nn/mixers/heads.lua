-- nn/mixers/heads.lua: the common parts of mixers with queries, keys, values and heads: options,
-- maps, the softmax over keys, and the term that hides keys from it.

local core = require "toeplab.core"
local Linear = require("toeplab.nn.linear").Linear
local options = require "toeplab.base.options"
local streams = require "toeplab.base.streams"

local heads = {}

-- [b,n,h w] -> [b,h,n,w]
function heads.split(x, count)
  local b, n, d = x:dim(1), x:dim(2), x:dim(3)
  return x:reshape(b, n, count, d // count):permute { 1, 3, 2, 4 }
end

-- [b,h,n,w] -> [b,n,h w]
function heads.join(x)
  local b, h, n, w = x:dim(1), x:dim(2), x:dim(3), x:dim(4)
  return x:permute({ 1, 3, 2, 4 }):reshape(b, n, h * w)
end

-- ---- Options and maps ---------------------------------------------------------------------------

-- Returns a declaration of the common options of these mixers, and those of more.
function heads.spec(more)
  local all = {
    dim = options.field { type = "int", min = 1 },
    heads = options.field { default = 1, min = 1 },
    causal = true,
    init = options.field { type = "function|string", default = "xavier" },
  }
  for name, field in pairs(more) do all[name] = field end
  return all
end

-- Returns the channels of a head of mixer self: its option head_dim, if given, else an equal share
-- of channels. Raises an error if they do not divide.
function heads.width(self, channels)
  local o = self.opt
  local width = options.given(o, "head_dim")
  if not width and channels % o.heads ~= 0 then
    error(("%s: %d channels do not divide into %d heads%s"):format(self.kind, channels, o.heads,
      self.spec.fields.head_dim and ": give head_dim" or ""), 0)
  end
  return width or channels // o.heads
end

-- Makes the linear maps of self that names lists, by default q, k and v, and o. Each is as wide as
-- all heads together. With init = "xavier" they start as fairseq's: o as "xavier", the others as
-- "xavier_input". The options bias and output, where self has them, decide whether the maps of
-- names have a bias, and whether there is an o.
function heads.maps(self, o, names)
  local width = o.heads * heads.width(self, o.dim)
  local input = o.init == "xavier" and "xavier_input" or o.init
  local bias = options.given(o, "bias")
  for _, name in ipairs(names or { "q", "k", "v" }) do
    self[name] = Linear(o.dim, width, { bias = bias, init = input })
  end
  if options.given(o, "output") ~= false then self.o = Linear(width, o.dim, { init = o.init }) end
end

-- Raises an error unless x is [b,n,dim] for mixer self, and mask, if given, [b,n].
function heads.check_input(self, x, mask)
  if x:ndim() ~= 3 or x:dim(3) ~= self.opt.dim then
    error(("%s: x is %s, not [b,n,%d]"):format(self.kind, tostring(x), self.opt.dim), 0)
  end
  if mask and not (mask:ndim() == 2 and mask:dim(1) == x:dim(1) and mask:dim(2) == x:dim(2)) then
    error(("%s: the mask is %s, not [%d,%d]"):format(
      self.kind, tostring(mask), x:dim(1), x:dim(2)), 0)
  end
end

-- ---- Softmax ------------------------------------------------------------------------------------

local HIDDEN = -1e9 -- lowers a score until its weight rounds to 0

-- Returns the term that hides keys when added to scores: 0 where seen is 1, HIDDEN where it is 0.
function heads.hide(seen)
  return core.affine(seen, -HIDDEN, HIDDEN)
end

-- Returns softmax(scale q k^T) v, with the options causal, window, bias and mask of core.attention
-- in more, which may be nil; more.drop is a Dropout of the weights.
--   q [..,m,w]   k [..,n,w]   v [..,n,w']
function heads.attend(q, k, v, scale, more)
  local o = { scale = scale }
  if more then
    o.causal, o.window, o.bias, o.mask = more.causal, more.window, more.bias, more.mask
    local drop = more.drop
    if drop and drop.training and drop.opt.p > 0 then
      o.dropout, o.stream = drop.opt.p, streams.get("dropout")
    end
  end
  return core.attention(q, k, v, o)
end

return heads
