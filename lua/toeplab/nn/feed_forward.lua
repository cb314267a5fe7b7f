-- nn/feed_forward.lua: defines FeedForward, the channel mixer of the Transformer.

local class = require("toeplab.nn.class").class
local act = require "toeplab.nn.act"
local Dropout = require("toeplab.nn.dropout").Dropout
local Linear = require("toeplab.nn.linear").Linear
local options = require "toeplab.base.options"

-- y = drop(act(x W1 + b1)) W2 + b2 (Vaswani et al. 2017, Eq. 2).   x, y [..,dim]
-- hidden is the inner width, by default dim.
local FeedForward = class("FeedForward", {
  dim = options.field { type = "int", min = 1 },
  hidden = options.field { type = "int", min = 1, optional = true },
  act = act.act_option "relu",
  bias = true,
  dropout = options.field { default = 0.0, min = 0, max = 0.999 },
  init = options.field { type = "function|string", default = "torch" },
}, { "dim" }, "x [..,dim] -> [..,dim]: a network with one hidden layer")

function FeedForward:build(o)
  local how = { init = o.init, bias = o.bias }
  self.fc1 = Linear(o.dim, o.hidden or o.dim, how)
  self.fc2 = Linear(o.hidden or o.dim, o.dim, how)
  if o.dropout > 0 then self.drop = Dropout(o.dropout) end
end

function FeedForward:forward(x)
  local inner = act.act[self.opt.act](self.fc1(x))
  return self.fc2(self.drop and self.drop(inner) or inner)
end

return { FeedForward = FeedForward }
