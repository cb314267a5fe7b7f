-- nn/embedding.lua: defines Embedding, which looks up one row of a table per token.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"

-- y = weight[ids].   ids [..] int32, from 0   weight [vocab,dim]   y [..,dim]
-- weight ~ N(0, deviation^2), by default with deviation 1/sqrt(dim), as in fairseq. The row of the
-- token pad, if given, starts at 0.
local Embedding = class("Embedding", {
  vocab = options.field { type = "int", min = 1, help = "number of tokens" },
  dim = options.field { type = "int", min = 1 },
  deviation = options.field { type = "number", min = 0, optional = true,
    help = "standard deviation of initial values (dim^-1/2)" },
  pad = options.field { type = "int", min = 0, optional = true,
    help = "token whose row starts at 0" },
}, { "vocab", "dim" }, "ids [..] -> [..,dim]: the row of a table for each id")

function Embedding:build(o)
  local weight = core.zeros(o.vocab, o.dim)
  initial.init.normal(weight, 0, o.deviation or 1 / math.sqrt(o.dim))
  if o.pad then
    if o.pad >= o.vocab then
      error(("Embedding: pad = %d is not below vocab = %d"):format(o.pad, o.vocab), 0)
    end
    weight:view(o.pad * o.dim, { o.dim }):fill(0)
  end
  self.weight = initial.parameter(weight)
end

function Embedding:forward(ids)
  return self.weight:gather(ids)
end

function Embedding:brief()
  return ("%d x %d"):format(self.opt.vocab, self.opt.dim)
end

return { Embedding = Embedding }
