-- nn/block.lua: defines Block: a token mixer and a channel mixer, each with norm and residual.

local core = require "toeplab.core"
local modules = require "toeplab.nn.class"
local Dropout = require("toeplab.nn.dropout").Dropout
local norms = require "toeplab.nn.norm"
local options = require "toeplab.base.options"
local sorted_keys = require "toeplab.base.sorted_keys"

-- A layout defines the places of norm and residual connection of a mixer f. The published codes
-- differ here, and so do their results:
--   A          x + drop(f(norm(x)))                   the released TNN language model
--   B          x + drop(norm(x) + f(inner(norm(x))))  ablations of TNN's Tables 7-10, where inner
--                                                     is a norm too; GLU as in A
--   C-fairseq  norm(x + drop(f(x)))                   the bidirectional TNN (RoBERTa)
--   C-tnn      x + norm(drop(f(x)))                   tnn-pytorch's and the images' "postnorm"
--   none       f(x)                                   token mixers with their own shortcut and
--                                                     norm, and S4 and DSS as TNN ran them
local layouts = {}

function layouts.A(x, f, norm, drop)
  return x + drop(f(norm(x)))
end

function layouts.B(x, f, norm, drop, inner)
  local y = norm(x)
  return x + drop(y + f(inner(y)))
end

layouts["C-fairseq"] = function(x, f, norm, drop)
  return norm(x + drop(f(x)))
end

layouts["C-tnn"] = function(x, f, norm, drop)
  return x + norm(drop(f(x)))
end

function layouts.none(x, f)
  return f(x)
end

local function layout_option(default, help)
  return options.field { default = default, choices = sorted_keys(layouts), help = help }
end

-- x <- layout(x, token), then x <- layout(x, feature) if a channel mixer is given.   x [b,n,dim]
-- inner_norm is the second norm of layout B; by default it is of the same kind as norm. The layout
-- none has neither norms nor dropout. In training, drop_path leaves out a mixer's result for a
-- sequence with this probability, and else divides it by 1 - drop_path (stochastic depth, Huang et
-- al. 2016), where the layouts drop. With feature_first the channel mixer acts first.
-- Block(x, mask) passes mask [b,n], which is 1 for a token and 0 for padding, to a token mixer
-- whose class sets takes_mask = true; others see padding as tokens. Block(x, mask, kept) hides
-- padding from these and from batch norms too: it sets padding to 0 before the token mixer, and
-- passes kept (models/padding.lua) to the norms. Block(x, nil, nil, documents) mixes each document
-- alone (nn/documents.lua).
local Block = modules.class("Block", {
  dim = options.field { type = "int", min = 1 },
  token = options.field { type = "module", help = "the token mixer" },
  feature = options.field { type = "module", optional = true,
    help = "the channel mixer; none by default" },
  layout = layout_option("A", "place of norm and shortcut"),
  norm = norms.norm_option "simplermsnorm",
  inner_norm = options.field { type = "string", optional = true,
    choices = norms.norm_option("none").choices, help = "second norm of layout B (as norm)" },
  dropout = options.field { default = 0.0, min = 0, max = 0.999 },
  drop_path = options.field { default = 0.0, min = 0, max = 0.999,
    help = "probability of leaving out a mixer for a sequence, in training" },
  feature_first = options.field { default = false,
    help = "the channel mixer acts before the token mixer" },
}, { "dim", "token", "feature" },
  "x [b,n,dim] -> [b,n,dim]: a token mixer and a channel mixer, each with norm and shortcut")

function Block:build(o)
  local normed = o.layout ~= "none"
  if normed then self.token_norm = norms.norm(o.norm, o.dim) end
  if o.layout == "B" then self.token_inner = norms.norm(o.inner_norm or o.norm, o.dim) end
  self.token = o.token
  if o.feature then
    if normed then self.feature_norm = norms.norm(o.norm, o.dim) end
    self.feature = o.feature
  end
  self.drop = Dropout(o.dropout)
  if o.drop_path > 0 and not normed then
    error("Block: layout none has no shortcut, which drop_path requires", 0)
  end
  if o.drop_path > 0 then self.path = Dropout(o.drop_path) end
end

-- Returns what drops numbers, or the result for a sequence, of a mixer's result.
local function dropping(self)
  local path = self.path
  if not path then return self.drop end
  return function(y) return self.drop(y) * path(core.ones(y:dim(1), 1, 1)) end
end

-- Returns y, the token mixer's result for x; raises unless it has the shape of x.
local function like(self, x, y)
  local same = modules.istensor(y) and y:ndim() == 3 and y:type() == x:type()
  for axis = 1, same and 3 or 0 do same = same and y:dim(axis) == x:dim(axis) end
  if same then return y end
  error(("the token mixer %s returned %s for %s: its forward must return a tensor like x, float32 "
    .. "[b,n,dim]"):format(self.token.kind, tostring(y), tostring(x)), 0)
end

-- Returns the token mixer as a function of x alone.
local function token_of(self, mask, kept, documents)
  local token, tokens = self.token, kept and mask:reshape(mask:dim(1), mask:dim(2), 1)
  if documents then
    if mask then error("Block: takes a mask or documents, not both", 0) end
    return function(x) return like(self, x, documents:apply(token, x)) end
  end
  if mask and token.takes_mask then
    return function(x) return like(self, x, token(x, mask)) end
  end
  return function(x) return like(self, x, token(tokens and x * tokens or x)) end
end

function Block:forward(x, mask, kept, documents)
  local o = self.opt
  local function norm(module)
    return kept and module and function(y) return module(y, kept) end or module
  end
  local drop = dropping(self)
  local token = token_of(self, mask, kept, documents)
  local function mix_tokens(y)
    return layouts[o.layout](y, token, norm(self.token_norm), drop, norm(self.token_inner))
  end
  local function mix_channels(y)
    if not self.feature then return y end
    return layouts[o.layout == "B" and "A" or o.layout](y, self.feature, norm(self.feature_norm),
      drop)
  end
  if o.feature_first then return mix_tokens(mix_channels(x)) end
  return mix_channels(mix_tokens(x))
end

function Block:brief()
  return "layout " .. self.opt.layout
end

return { Block = Block, layouts = layouts, layout_option = layout_option }
