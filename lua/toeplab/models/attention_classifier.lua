-- models/attention_classifier.lua: defines tl.models.attention_classifier, the Transformer that
-- compares attentions on the Long Range Arena (Skyformer's code; TNN, Table 4, rows of attentions).

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local mixers = require "toeplab.nn.mixers"
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local padding = require "toeplab.models.padding"
local paired = require "toeplab.models.paired"
local stack = require "toeplab.models.stack"

local field = options.field

-- ---- A layer ----

-- x <- x + drop(token(norm x, mask)), then x <- x + drop(down(drop(gelu(up(norm x))))).
--   x [b,n,dim]   mask [b,n]: 1 for a token, 0 for padding, or nil
local Layer = class("AttentionLayer", {
  dim = "int", token = "module", hidden = "int", dropout = "number",
}, { "dim", "token" })

function Layer:build(o)
  self.token_norm = nn.LayerNorm(o.dim)
  self.token = o.token
  self.feature_norm = nn.LayerNorm(o.dim)
  self.up = nn.Linear(o.dim, o.hidden)
  self.down = nn.Linear(o.hidden, o.dim)
  self.drop = nn.Dropout(o.dropout)
end

function Layer:forward(x, mask)
  local drop = self.drop
  x = x + drop(self.token(self.token_norm(x), mask))
  return x + drop(self.down(drop(core.gelu(self.up(self.feature_norm(x))))))
end

-- ---- The model ----

-- The model is: embedding and learnt positions ~ N(0, 0.02^2), dropout, layers, norm; the mean of
-- the states of tokens; Linear, ReLU, Linear. The defaults are the sizes of the published runs,
-- which had dropout 0.1.
--   model(ids [b,n] [, lengths [b]]) -> logits [b,classes]   model:hidden(ids, mask) -> [b,n,dim]
-- lengths (int32) counts the tokens of each row before its padding, which attention does not see.
-- With pair, the rows of ids are the first sequences of b pairs and then the second ones, [2 b,n],
-- and the two means z, z' are classified as [z, z', z z', z - z'].
-- as_published divides the sum of the states of tokens by n, as if padding had states of 0. With
-- pad = 0, also as published, token 0 is padding everywhere; in images it is a black pixel.
local AttentionClassifier = class("AttentionClassifier", {
  { "vocab", field { type = "int", min = 1, max = 1 << 31 }, "number of tokens" },
  { "classes", field { type = "int", min = 1, max = 1 << 24 }, "number of classes" },
  { "max_length", field { type = "int", min = 1, max = 1 << 31 }, "longest sequence" },
  { "layers", field { default = 2, min = 1, max = 1000 }, "number of layers" },
  { "dim", field { default = 64, min = 1, max = 1 << 24 }, "channels of the residual stream" },
  { "heads", field { default = 2, min = 1, max = 1 << 24 }, "heads of attention" },
  { "hidden", field { default = 128, min = 1, max = 1 << 31 },
    "width inside the channel mixer and the classifier" },
  { "mixer", field { default = "attention", choices = mixers.names },
    "token mixer, one that hides padding" },
  { "mixer_options", {}, "options of the mixer" },
  { "pair", false, "classify pairs of sequences" },
  { "pad", field { type = "int", min = 0, optional = true },
    "token that is padding, instead of lengths" },
  { "dropout", field { default = 0.0, min = 0, max = 0.999 },
    "dropout of the embedding, of each mixer's output and inside the channel mixer" },
  { "as_published", false, "the mean counts padding" },
  stack.recompute,
}, nil, "ids [b,n] -> [b,classes]: a classifier by attention or an approximation of it")

-- Returns the names of the mixers that hide padding.
local function hiding()
  local list = {}
  for _, name in ipairs(mixers.names) do
    if mixers.class(name).takes_mask then list[#list + 1] = name end
  end
  return list
end

function AttentionClassifier:build(o)
  self.mask_by_token = padding.by_token("AttentionClassifier", o.pad, o.vocab)
  if not mixers.class(o.mixer).takes_mask then
    error(("AttentionClassifier: mixer '%s' does not hide padding, as %s do; tnn_classifier takes "
      .. "it"):format(o.mixer, table.concat(hiding(), ", ")), 0)
  end
  self.embed = nn.Embedding(o.vocab, o.dim, { deviation = 0.02 })
  self.position = nn.Learned(o.dim, o.max_length)
  self.drop = nn.Dropout(o.dropout)
  self.layers = nn.ModuleList()
  for _ = 1, o.layers do
    local token = mixers.make(o.mixer, o.dim, { heads = o.heads, causal = false,
      max_length = o.max_length }, o.mixer_options)
    self.layers:append(Layer(o.dim, token, { hidden = o.hidden, dropout = o.dropout }))
  end
  self.final_norm = nn.LayerNorm(o.dim)
  self.inner = nn.Linear((o.pair and 4 or 1) * o.dim, o.hidden)
  self.head = nn.Linear(o.hidden, o.classes)
end

-- Returns the mask [b,n]; nil if padding is unknown.
local function mask_of(self, ids, lengths)
  if self.opt.pad or not lengths then return self.mask_by_token(ids) end
  return padding.by_length(padding.lengths("AttentionClassifier", lengths, ids), ids:dim(2))
end

-- Returns the state of each token after the last norm: ids [b,n] int32 -> [b,n,dim].
function AttentionClassifier:hidden(ids, mask)
  local x = self.drop(self.position(self.embed(ids)))
  return self.final_norm(stack.through(self, x, mask))
end

local function mean(self, x, mask)
  if not (mask and self.opt.as_published) then return padding.mean(x, mask) end
  local b, n, d = x:dim(1), x:dim(2), x:dim(3)
  return core.affine(core.matmul(mask:reshape(b, 1, n), x):reshape(b, d), 1 / n, 0)
end

-- Returns the features of pairs from the means of both sequences: [2 b,d] -> [b,4 d].
local function features(z)
  local first, second = paired.halves("AttentionClassifier", z)
  return core.concat({ first, second, first * second, first - second }, 2)
end

function AttentionClassifier:forward(ids, lengths)
  local mask = mask_of(self, ids, lengths)
  local z = mean(self, self:hidden(ids, mask), mask)
  return self.head(core.relu(self.inner(self.opt.pair and features(z) or z)))
end

-- Returns the number of parameters (a float) of a model with the resolved options o, without those
-- that a mixer has in addition to its four maps.
function AttentionClassifier.parameters_of(o)
  local d, hidden = o.dim + 0.0, o.hidden
  local layer = 4 * d * (d + 1) + 4 * d + 2 * d * hidden + d + hidden
  return d * (o.vocab + o.max_length + 2) + o.layers * layer
    + ((o.pair and 4 or 1) * d + 1) * hidden + (hidden + 1) * o.classes
end

-- Estimates how many numbers (a float) training stores on batch sequences of length n outside the
-- mixers.
function AttentionClassifier.activations_of(o, n, batch)
  local numbers = stack.stored(o, 4 * o.dim + 2 * o.hidden) + 8 * o.dim
  return batch * (n + 0.0) * numbers
end

AttentionClassifier.apart = { inner = true, head = true } -- applied once to a sequence

function AttentionClassifier:own_cost()
  return self.inner:cost(1) + self.head:cost(1), 0.0
end

return { AttentionClassifier = AttentionClassifier }
