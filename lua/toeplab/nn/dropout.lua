-- nn/dropout.lua: defines Dropout, which zeroes a random fraction of its input during training.

local class = require("toeplab.nn.class").class
local options = require "toeplab.base.options"
local streams = require "toeplab.base.streams"

-- y = x keep / (1-p), keep ~ Bernoulli(1-p) drawn from the stream "dropout"; y = x in evaluation.
local Dropout = class("Dropout", {
  p = options.field { type = "number", default = 0.1, min = 0, max = 0.999,
    help = "probability of setting a number to 0 in training" },
}, { "p" }, "x [..] -> [..]: sets numbers to 0 at random, in training")

function Dropout:forward(x)
  if not self.training or self.opt.p == 0 then return x end
  return streams.get("dropout"):dropout(x, self.opt.p)
end

function Dropout:brief()
  return ("p=%g"):format(self.opt.p)
end

return { Dropout = Dropout }
