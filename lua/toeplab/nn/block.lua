-- nn/block.lua: defines Block: a token mixer and a channel mixer, each with norm and residual.

local class = require("toeplab.nn.class").class
local Dropout = require("toeplab.nn.dropout").Dropout
local norms = require "toeplab.nn.norm"
local options = require "toeplab.base.options"
local suggest = require "toeplab.base.suggest"

-- A layout says where the norm and the residual connection of a mixer f stand. The published codes
-- differ here, and so do their results:
--   A          x + drop(f(norm(x)))                   the released TNN language model
--   B          x + drop(norm(x) + f(inner(norm(x))))  ablations of TNN's Tables 7-10, where inner
--                                                     is a norm too; GLU as in A
--   C-fairseq  norm(x + drop(f(x)))                   the bidirectional TNN (RoBERTa)
--   C-tnn      x + norm(drop(f(x)))                   tnn-pytorch's and the images' "postnorm"
--   none       f(x)                                   token mixers that have shortcut and norm of
--                                                     their own, and S4 and DSS as TNN ran them
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

local function layout_option(default)
  return options.field { default = default, choices = suggest.keys(layouts) }
end

-- x <- layout(x, token), then x <- layout(x, feature) if a channel mixer is given.   x [b,n,dim]
-- inner_norm is the second norm of layout B; by default it is of the same kind as norm. The layout
-- none has neither norms nor dropout. Block(x, mask) passes mask [b,n], which is 1 for a token and
-- 0 for padding, to a token mixer whose class says takes_mask = true; others see padding as tokens.
local Block = class("Block", {
  dim = options.field { type = "int", min = 1 },
  token = "module",
  feature = options.field { type = "module", optional = true },
  layout = layout_option "A",
  norm = norms.norm_option "simplermsnorm",
  inner_norm = options.field { type = "string", optional = true,
    choices = norms.norm_option("none").choices },
  dropout = options.field { default = 0.0, min = 0, max = 0.999 },
}, { "dim", "token", "feature" })

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
end

function Block:forward(x, mask)
  local o, token = self.opt, self.token
  if mask and token.takes_mask then
    token = function(y) return self.token(y, mask) end
  end
  x = layouts[o.layout](x, token, self.token_norm, self.drop, self.token_inner)
  if not self.feature then return x end
  return layouts[o.layout == "B" and "A" or o.layout](x, self.feature, self.feature_norm, self.drop)
end

function Block:brief()
  return "layout " .. self.opt.layout
end

return { Block = Block, layouts = layouts, layout_option = layout_option }
