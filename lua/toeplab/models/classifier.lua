-- models/classifier.lua: defines tl.models.tnn_classifier, which assigns a sequence to a class, as
-- the models for Long Range Arena do (TNN, Table 4).

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local padding = require "toeplab.models.padding"
local stack = require "toeplab.models.stack"

local field = options.field

local spec = stack.fields({
  { "vocab", field { type = "int", min = 1, max = 1 << 31 }, "number of tokens" },
  { "classes", field { type = "int", min = 1, max = 1 << 24 }, "number of classes" },
  { "pool", field { default = "mean", choices = { "mean", "last" } },
    "state that is classified: the mean over positions, or the last; without padding" },
  { "final_norm", nn.norm_option "batchnorm", "norm after the last block" },
}, {
  layers = 2, dim = 64, expand = 1.0, glu_dim = 96, norm = "batchnorm", causal = false,
  positions = "sinusoidal", encoder = "lra", rpe_dim = 16, decay = "none",
  init = "lra",
})

-- The model is: embedding ~ N(0,1), positions, dropout, blocks, norm, pooling, linear map. The
-- defaults are the small sizes of the published runs.
--   model(ids [b,n] [, lengths [b]]) -> logits [b,classes]
--   model:hidden(ids [, mask [b,n]]) -> [b,n,dim]
-- lengths (int32) counts the tokens of each row before its padding; by default all n. The pooling
-- leaves padding out, and so do token mixers that take a mask (nn/mixers/init.lua). GTUs and batch
-- norm see it, as in the published code.
local TnnClassifier = class("TnnClassifier", spec)

function TnnClassifier:build(o)
  self.embed = nn.Embedding(o.vocab, o.dim, { deviation = 1 })
  self.position = stack.positions(o)
  self.drop = nn.Dropout(o.dropout)
  self.layers = stack.layers("TnnClassifier", o)
  self.final_norm = nn.norm(o.final_norm, o.dim)
  self.head = nn.Linear(o.dim, o.classes)
end

-- Returns the state of each token after the last norm: ids [b,n] int32 -> [b,n,dim].
function TnnClassifier:hidden(ids, mask)
  local x = self.embed(ids)
  if self.position then x = self.position(x) end
  x = self.drop(x)
  for _, layer in self.layers:each() do x = layer(x, mask) end
  return self.final_norm(x)
end

-- Returns the mean of the first lengths[i] states of each row i: x [b,n,d] -> [b,d].
local function pool_mean(x, lengths, mask)
  local b, n, d = x:dim(1), x:dim(2), x:dim(3)
  local count = core.tensor(lengths):reshape(b, 1)
  return core.matmul((mask / count):reshape(b, 1, n), x):reshape(b, d)
end

-- Returns state number lengths[i] of each row i: x [b,n,d] -> [b,d].
local function pool_last(x, lengths)
  local b, n, d = x:dim(1), x:dim(2), x:dim(3)
  local places = {}
  for i, length in ipairs(lengths) do places[i] = (i - 1) * n + length - 1 end
  return x:reshape(b * n, d):gather(core.ids(places))
end

function TnnClassifier:forward(ids, lengths)
  local b, n, list = ids:dim(1), ids:dim(2), {}
  for i = 1, b do list[i] = n end
  if lengths then list = padding.lengths("TnnClassifier", lengths, ids) end
  local mask = padding.by_length(list, n)
  local pool = self.opt.pool == "mean" and pool_mean or pool_last
  return self.head(pool(self:hidden(ids, lengths and mask), list, mask))
end

TnnClassifier.apart = { head = true } -- applied once to a sequence

function TnnClassifier:own_cost()
  return self.head:cost(1)
end

return { TnnClassifier = TnnClassifier }
