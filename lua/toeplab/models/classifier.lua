-- models/classifier.lua: defines tl.models.tnn_classifier, which assigns a sequence, an image or a
-- pair of sequences to a class, as the models for Long Range Arena do (TNN, Tables 4 and 14).

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local padding = require "toeplab.models.padding"
local paired = require "toeplab.models.paired"
local stack = require "toeplab.models.stack"

local field = options.field

-- Checks the option pixels.
local function check_pixels(given)
  local mean, deviation = given.mean, given.deviation
  local fine = math.type(mean) and math.type(deviation) and deviation > 0
  for key in pairs(given) do fine = fine and (key == "mean" or key == "deviation") end
  return fine, "must be two numbers {mean, deviation}, with deviation above 0"
end

local spec = stack.fields({
  { "vocab", field { type = "int", min = 1, max = 1 << 31 }, "number of tokens or grey levels" },
  { "pixels", field { type = "table", optional = true, check = check_pixels },
    "{mean, deviation}: tokens are grey levels, normalised by these and mapped linearly" },
  { "pair", false, "classify pairs of sequences" },
  { "classes", field { type = "int", min = 1, max = 1 << 24 }, "number of classes" },
  { "pool", field { default = "mean", choices = { "mean", "last", "first", "sum" } },
    "state to classify: of one position, or their mean or sum; without padding" },
  { "final_norm", nn.norm_option "batchnorm", "norm after the last block" },
  { "padding", field { default = "seen", choices = { "seen", "masked" } },
    "padding is seen by GTUs and batch norm, as published, or masked, so that no "
    .. "result depends on it, except by ski and fd" },
}, {
  layers = 2, dim = 64, expand = 1.0, glu_dim = 96, norm = "batchnorm", causal = false,
  positions = "sinusoidal", encoder = "lra", rpe_dim = 16, decay = "none",
  init = "lra",
})

-- The model is: embedding ~ N(0,1), positions, dropout, blocks, norm, pooling, linear map. The
-- defaults are the small sizes of the published runs; images had an option grid.
--   model(ids [b,n] [, lengths [b]]) -> logits [b,classes]
--   model:hidden(ids [, mask [b,n]]) -> [b,n,dim]
-- lengths (int32) counts the tokens of each row before its padding; by default all n. The pooling
-- leaves padding out, and so do token mixers that take a mask (nn/mixers/init.lua). GTUs and batch
-- norm see it, as in the published code. With padding = "masked" they do not, so in evaluation the
-- logits of a row do not depend on the other rows. A backend whose operator depends on the length,
-- such as ski and fd, still requires rows padded to one length.
-- With pixels, the tokens are grey levels k in 0..vocab-1, and Linear(1 -> dim) of
-- (k / (vocab-1) - mean) / deviation replaces the embedding; ids may then also be the normalised
-- pixels themselves, [b,n,1] float32.
-- With pair, the rows of ids are the first sequences of b pairs and then the second ones, [2 b,n].
-- The pooled states z, z' of a pair give [z, z', z - z', z z'], then Linear(4 dim -> dim), GELU and
-- the linear map.
local TnnClassifier = class("TnnClassifier", spec, nil,
  "ids [b,n] -> [b,classes]: a classifier of sequences")

-- Makes a token mixer ignore padding. nn/mixers/init.lua says which other mixers do.
local function hide_padding(token)
  if token.hide_padding then
    token:hide_padding()
  elseif token.by_length or not token.takes_mask and not token.ignores_zeros then
    error(("TnnClassifier: padding = 'masked': %s sees padding or depends on the length"):format(
      token.kind), 0)
  end
end

function TnnClassifier:build(o)
  self.fixed = {}
  if o.pixels then
    local p, most = o.pixels, math.max(o.vocab - 1, 1)
    self.fixed.levels = core.affine(core.range(0, o.vocab - 1):reshape(o.vocab, 1),
      1 / (most * p.deviation), -p.mean / p.deviation)
  end
  self.embed = o.pixels and nn.Linear(1, o.dim) or nn.Embedding(o.vocab, o.dim, { deviation = 1 })
  self.position = stack.positions(o)
  self.drop = nn.Dropout(o.dropout)
  self.layers = stack.layers("TnnClassifier", o)
  if o.padding == "masked" then
    for _, layer in self.layers:each() do hide_padding(layer.token) end
  end
  self.final_norm = nn.norm(o.final_norm, o.dim)
  if o.pair then self.inner = nn.Linear(4 * o.dim, o.dim) end
  self.head = nn.Linear(o.dim, o.classes)
end

-- Returns the state of each token after the last norm: ids [b,n] int32 -> [b,n,dim]. kept: where
-- the tokens are if padding is masked (models/padding.lua).
function TnnClassifier:hidden(ids, mask, kept)
  local levels = self.fixed.levels
  local x = self.embed(levels and ids:type() == "int32" and levels:gather(ids) or ids)
  if self.position then x = self.position(x) end
  x = self.drop(x)
  return self.final_norm(stack.through(self, x, mask, kept), kept)
end

-- Returns the mean of the first lengths[i] states of each row i: x [b,n,d] -> [b,d]. Divides the
-- mask, not the sum as padding.mean does, which would change the last bits of recorded results.
local function pool_mean(x, lengths, mask)
  local b, n, d = x:dim(1), x:dim(2), x:dim(3)
  local count = core.tensor(lengths):reshape(b, 1)
  return core.matmul((mask / count):reshape(b, 1, n), x):reshape(b, d)
end

local pools = { mean = pool_mean } -- functions of (x, lengths, mask)

-- Returns the sum of the first lengths[i] states of each row i: x [b,n,d] -> [b,d].
function pools.sum(x, _, mask)
  local b, n, d = x:dim(1), x:dim(2), x:dim(3)
  return core.matmul(mask:reshape(b, 1, n), x):reshape(b, d)
end

-- Returns the first state of each row: x [b,n,d] -> [b,d].
function pools.first(x)
  return x:narrow(2, 1, 1):reshape(x:dim(1), x:dim(3))
end

-- Returns state number lengths[i] of each row i: x [b,n,d] -> [b,d].
function pools.last(x, lengths)
  local b, n, d = x:dim(1), x:dim(2), x:dim(3)
  local places = {}
  for i, length in ipairs(lengths) do places[i] = (i - 1) * n + length - 1 end
  return x:reshape(b * n, d):gather(core.ids(places))
end

-- Returns the features of pairs from the pooled states of both sequences: [2 b,d] -> [b,d].
local function compare(self, z)
  local first, second = paired.halves("TnnClassifier", z)
  return core.gelu(self.inner(core.concat({ first, second, first - second, first * second }, 2)))
end

function TnnClassifier:forward(ids, lengths)
  local b, n, list = ids:dim(1), ids:dim(2), {}
  for i = 1, b do list[i] = n end
  if lengths then list = padding.lengths("TnnClassifier", lengths, ids) end
  local mask = padding.by_length(list, n)
  local pool = pools[self.opt.pool]
  local kept = lengths and self.opt.padding == "masked" and padding.kept(list, n) or nil
  local z = pool(self:hidden(ids, lengths and mask, kept), list, mask)
  return self.head(self.opt.pair and compare(self, z) or z)
end

TnnClassifier.apart = { inner = true, head = true } -- applied once to a sequence or a pair

function TnnClassifier:own_cost()
  local flop, numbers = self.head:cost(1)
  if not self.inner then return flop, numbers end
  local more_flop, more_numbers = self.inner:cost(1)
  return flop + more_flop, numbers + more_numbers
end

return { TnnClassifier = TnnClassifier }
