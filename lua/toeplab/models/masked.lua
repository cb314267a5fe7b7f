-- models/masked.lua: defines the bidirectional models of TNN's Table 3: tl.models.tnn_mlm, which
-- predicts masked tokens, and tl.models.tnn_mlm_classifier, which is fine-tuned from it.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local padding = require "toeplab.models.padding"
local stack = require "toeplab.models.stack"

local field = options.field

-- Returns the options of the part that both models share.
local function fields()
  return stack.fields({
    { "vocab", field { type = "int", min = 1, max = 1 << 31 },
      "number of tokens, <mask> included" },
    { "pad", field { type = "int", min = 0, optional = true },
      "token whose embedding starts at 0 and whose state is 0 before the first block; at the end "
      .. "of a row only; mixers that take a mask do not see it" },
  }, {
    layers = 12, dim = 768, layout = "C-fairseq", causal = false, init = "bert",
  })
end

-- ---- The shared part ----------------------------------------------------------------------------

-- Makes embedding, norm, dropout and blocks. Both models name them alike, so that the classifier
-- can copy them (TnnMLMClassifier:start_from).
local function build(self, who, o)
  self.causal = o.causal -- tl.generate refuses a model that is not
  self.mask_by_token = padding.by_token(who, o.pad, o.vocab)
  self.embed = nn.Embedding(o.vocab, o.dim, { pad = o.pad, deviation = 0.02 })
  self.position = stack.positions(o)
  self.embed_norm = nn.LayerNorm(o.dim)
  self.drop = nn.Dropout(o.dropout)
  self.layers = stack.layers(who, o)
end

-- Returns the state of each token after the last block: ids [b,n] int32 -> [b,n,dim]. mask [b,n],
-- for mixers that take one, is 0 at padding; nil: from the token pad, if there is one.
local function hidden(self, ids, mask)
  local x = self.embed(ids)
  if self.position then x = self.position(x) end
  x = self.drop(self.embed_norm(x))
  local tokens = self.mask_by_token(ids)
  if tokens then x = x * tokens:reshape(ids:dim(1), ids:dim(2), 1) end
  return stack.through(self, x, mask or tokens)
end

-- ---- The masked language model ------------------------------------------------------------------

-- The model is: embedding, layer norm, dropout, blocks; then Linear, GELU, layer norm, and the
-- weights of the embedding with a bias give the logits. The defaults are the published sizes; the
-- published model was trained with dropout 0.1 and with a padding token.
--   model(ids [b,n]) -> logits [b,n,vocab]   model:hidden(ids) -> [b,n,dim]
--   model:loss(ids, places, targets) -> nats per masked token
local TnnMLM = class("TnnMLM", fields(), nil, "ids [b,n] -> [b,n,vocab]: a masked language model")

function TnnMLM:build(o)
  build(self, "TnnMLM", o)
  self.head = nn.Linear(o.dim, o.dim, { init = stack.plain_init(o) })
  self.head_norm = nn.LayerNorm(o.dim)
  self.bias = nn.parameter(core.zeros(o.vocab))
end

TnnMLM.hidden = hidden

-- Returns the input of the output map for states: [..,dim] -> [..,dim].
local function features(self, hidden)
  return self.head_norm(core.gelu(self.head(hidden)))
end

-- Returns the logits of states: [..,dim] -> [..,vocab].
function TnnMLM:logits(hidden)
  return core.linear(features(self, hidden), self.embed.weight, self.bias)
end

function TnnMLM:forward(ids)
  return self:logits(self:hidden(ids))
end

-- Returns the mean cross entropy in nats of the tokens targets [m] at the places [m] of ids [b,n],
-- counted from 0 along the rows. Logits are computed at these places only, and never all stored.
function TnnMLM:loss(ids, places, targets)
  local hidden = self:hidden(ids):reshape(-1, self.opt.dim):gather(places)
  return core.linear_cross_entropy(features(self, hidden), self.embed.weight, self.bias, targets)
end

-- Counts the logits of all positions; training computes them at masked ones only.
function TnnMLM:own_cost(n)
  return 2.0 * n * self.opt.vocab * self.opt.dim, 0.0
end

-- ---- The classifier -----------------------------------------------------------------------------

local classifier_spec = fields()
for _, entry in ipairs {
  { "classes", field { type = "int", min = 1, max = 1 << 24 },
    "number of classes; 1: the output is a number, such as the similarity of two sentences" },
  { "head_dropout", field { default = 0.0, min = 0, max = 0.999 },
    "dropout before the two maps of the head" },
  { "as_published", false, "the mean counts padding" },
} do
  classifier_spec[#classifier_spec + 1] = entry
end

-- The model is: the shared part; z = the mean of the states of the tokens; Linear, tanh, Linear.
--   model(ids [b,n] [, lengths [b]]) -> logits [b,classes]   model:hidden(ids) -> [b,n,dim]
-- Without the option pad, lengths (int32) counts the tokens of each row before its padding. GTUs
-- see padding, so logits depend slightly on the length of a batch; as_published, z does too.
local TnnMLMClassifier = class("TnnMLMClassifier", classifier_spec, nil,
  "ids [b,n] -> [b,classes]: a classifier that starts from a masked language model")

function TnnMLMClassifier:build(o)
  build(self, "TnnMLMClassifier", o)
  self.head_drop = nn.Dropout(o.head_dropout)
  self.dense = nn.Linear(o.dim, o.dim)
  self.head = nn.Linear(o.dim, o.classes)
end

TnnMLMClassifier.hidden = hidden

function TnnMLMClassifier:forward(ids, lengths)
  local mask, drop = self.mask_by_token(ids), self.head_drop
  if not mask and lengths then
    mask = padding.by_length(padding.lengths("TnnMLMClassifier", lengths, ids), ids:dim(2))
  end
  local x = self:hidden(ids, mask)
  local z = self.opt.as_published and x:mean(2) or padding.mean(x, mask)
  return self.head(drop(core.tanh(self.dense(drop(z)))))
end

-- Options that do not change the function of a trained model.
local free = { dropout = true, layer_dropout = true, tno_dropout = true, gate_dropout = true,
  init = true, backend = true }

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, value in pairs(a) do
    if not same(value, b[key]) then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end

-- Copies the parameters of the shared part from a tnn_mlm, whose options must be the same except
-- for dropout and backend; the head stays as it is. Returns self.
function TnnMLMClassifier:start_from(mlm)
  if getmetatable(mlm) ~= TnnMLM then error("start_from: takes a tnn_mlm", 2) end
  for _, entry in ipairs(fields()) do
    local name = entry[1]
    local theirs, own = rawget(mlm.opt, name), rawget(self.opt, name)
    if not free[name] and not same(theirs, own) then
      error(("start_from: the tnn_mlm has %s = %s, and this model %s"):format(name,
        tostring(theirs), tostring(own)), 0)
    end
  end
  local state, theirs = self:state(), mlm:state()
  for name in pairs(state) do
    if not name:find "^dense%." and not name:find "^head%." then state[name] = theirs[name] end
  end
  for name, t in pairs(theirs) do -- load refuses blocks that this model lacks
    if name:find "^layers%." then state[name] = t end
  end
  return self:load(state)
end

TnnMLMClassifier.apart = { dense = true, head = true } -- applied once to a sequence

function TnnMLMClassifier:own_cost()
  return self.dense:cost(1) + self.head:cost(1), 0.0
end

return { TnnMLM = TnnMLM, TnnMLMClassifier = TnnMLMClassifier }
