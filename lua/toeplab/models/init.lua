-- models/init.lua: defines the language model TnnLM, and collects the models by name, as in
-- tl.models.tnn_lm, with estimates of the memory that they need.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local presets = require "toeplab.models.presets"
local sizes = require "toeplab.models.sizes"
local stack = require "toeplab.models.stack"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local field = options.field

local spec = stack.fields {
  { "vocab", field { type = "int", min = 1, max = 1 << 31 }, "number of tokens" },
}
for _, entry in ipairs {
  { "final_norm", nn.norm_option "layernorm", "norm after the last block" },
  { "tied", true, "the output map shares the weights of the embedding" },
  { "embed_dim", field { type = "int", min = 1, max = 1 << 24, optional = true },
    "width of the embedding; linear maps without bias take it to dim and back (as dim)" },
  { "embed_scale", true, "multiply the embedding by sqrt(dim)" },
  { "output_bias", false, "a bias on the logits" },
  { "pad", field { type = "int", min = 0, optional = true }, "token whose embedding starts at 0" },
  { "adaptive", field { type = "table", optional = true,
    check = nn.AdaptiveSoftmax.spec.fields.cutoffs.check },
    "cutoffs of an adaptive embedding and softmax (nn.AdaptiveSoftmax), as { 20000, 60000 }" },
  { "adaptive_factor", field { default = 4.0, min = 1 },
    "with adaptive: ratio of the widths of a band of tokens and the next" },
  { "tied_maps", true, "with adaptive and tied: embedding and softmax share their maps too" },
} do
  spec[#spec + 1] = entry
end

-- A language model: embedding, blocks, norm, output map. It takes every length n >= 1. The defaults
-- are the sizes of TNN's causal model, which was trained with dropout 0.1 and a padding token.
--   model(ids [b,n]) -> logits [b,n,vocab]   model:hidden(ids) -> [b,n,dim]
--   model:loss(ids, targets) -> nats per token
-- All three take documents (nn/documents.lua) as their last argument: of the rows of ids, each of
-- which the model then reads alone.
local TnnLM = class("TnnLM", spec, { "vocab" }, "ids [b,n] -> [b,n,vocab]: a language model")

-- Makes the adaptive embedding and softmax.
local function build_adaptive(self, o, start)
  for name, given in pairs { embed_dim = o.embed_dim ~= nil, output_bias = o.output_bias } do
    if given then error(("%s is not defined with adaptive"):format(name), 0) end
  end
  start.cutoffs, start.factor = o.adaptive, o.adaptive_factor
  self.embed = nn.AdaptiveEmbedding(o.vocab, o.dim, start)
  self.head = nn.AdaptiveSoftmax(o.dim, o.vocab, { cutoffs = o.adaptive, factor = start.factor,
    embedding = o.tied and self.embed or nil, tied_maps = o.tied and o.tied_maps })
end

function TnnLM:build(o)
  self.causal = o.causal
  local width = o.embed_dim or o.dim
  local start = { pad = o.pad, deviation = o.init == "bert" and 0.02 or nil }
  if o.adaptive then
    build_adaptive(self, o, start)
  else
    self.embed = nn.Embedding(o.vocab, width, start)
  end
  local plain = { bias = false, init = "xavier" }
  if o.embed_dim then self.project_in = nn.Linear(width, o.dim, plain) end
  self.position = stack.positions(o)
  self.drop = nn.Dropout(o.dropout)
  self.layers = stack.layers("TnnLM", o)
  self.final_norm = nn.norm(o.final_norm, o.dim)
  if o.embed_dim then self.project_out = nn.Linear(o.dim, width, plain) end
  if not (o.tied or o.adaptive) then
    self.head = nn.Linear(width, o.vocab, { bias = false, init = stack.plain_init(o) })
  end
  if o.output_bias then self.output_bias = nn.parameter(core.zeros(o.vocab)) end
end

TnnLM.takes_documents = true

-- Returns the state of each token after the last norm: ids [b,n] int32 -> [b,n,dim].
function TnnLM:hidden(ids, documents)
  if documents then documents = nn.documents(documents, ids:dim(2)) end
  local x = self.embed(ids)
  if self.opt.embed_scale then x = core.affine(x, math.sqrt(self.opt.dim), 0) end
  if self.project_in then x = self.project_in(x) end
  if self.position then
    x = documents and documents:apply(self.position, x) or self.position(x)
  end
  x = self.drop(x)
  return self.final_norm(stack.through(self, x, nil, nil, documents))
end

-- Returns the input of the output map for states: [..,dim] -> [..,embed_dim].
local function features(self, hidden)
  return self.project_out and self.project_out(hidden) or hidden
end

local function output_weight(self)
  return self.head and self.head.weight or self.embed.weight
end

-- Returns the logits of states: [..,dim] -> [..,vocab]. Those of an adaptive softmax are
-- log-probabilities.
function TnnLM:logits(hidden)
  if self.opt.adaptive then return self.head(hidden) end
  return core.linear(features(self, hidden), output_weight(self), self.output_bias)
end

function TnnLM:forward(ids, documents)
  return self:logits(self:hidden(ids, documents))
end

-- Returns the mean cross entropy in nats of targets [b,n], without those equal to ignore. The
-- logits are computed in pieces, never all stored.
function TnnLM:loss(ids, targets, ignore, documents)
  if self.opt.adaptive then
    return self.head:loss(self:hidden(ids, documents), targets, ignore)
  end
  return core.linear_cross_entropy(features(self, self:hidden(ids, documents)), output_weight(self),
    self.output_bias, targets, ignore)
end

-- Returns the prompt and the text that the model adds (models/generate.lua).
function TnnLM:generate(vocab, prompt, given)
  return require "toeplab.models.generate"(self, vocab, prompt, given)
end

-- The functions of models/decode.lua as methods: model:stream { prompt = ..., n = ... }.
for _, name in ipairs { "stream", "batch", "score" } do
  TnnLM[name] = function(self, given) return require("toeplab.models.decode")[name](self, given) end
end

TnnLM.stepwise = true -- only its submodules mix positions, so models/recurrent.lua can step it

-- An output map tied to the embedding is not among the linear maps.
function TnnLM:own_cost(n)
  local o = self.opt
  return self.head and 0.0 or 2.0 * n * o.vocab * (o.embed_dim or o.dim), 0.0
end

-- Estimates by formula the bytes that training on batch sequences of length n takes: a table of
-- parameters, parameter_bytes, gradient_bytes, optimizer_bytes (Adam), activation_bytes and
-- total_bytes. The activations include those that a named mixer's method cost reports, and only
-- input and output of a mixer that is a function.
local function estimate(model, n, batch)
  local o = model.opt
  local parameters, trained = model:count()
  local numbers = model.activations_of and model.activations_of(o, n, batch)
    or sizes.activations(o, n, batch) + (n + 0.0) * batch * 4 * o.dim
  local sum, most = 0.0, 0.0 -- of the blocks' mixers
  for i, layer in model.layers:each() do
    if type(stack.of_block(o, i).mixer) == "string" then
      local _, stored = layer.token:cost(n)
      sum, most = sum + stored, math.max(most, stored)
    end
  end
  numbers = numbers + batch * (o.recompute and most or sum)
  local e = {
    parameters = parameters, parameter_bytes = 4 * parameters, gradient_bytes = 4 * trained,
    optimizer_bytes = 8 * trained, activation_bytes = 4 * numbers,
  }
  e.total_bytes = e.parameter_bytes + e.gradient_bytes + e.optimizer_bytes + e.activation_bytes
  return e
end

local AttentionClassifier = require("toeplab.models.attention_classifier").AttentionClassifier
local TnnClassifier = require("toeplab.models.classifier").TnnClassifier
local TnnImage = require("toeplab.models.image").TnnImage
local masked = require "toeplab.models.masked"
local kinds = {
  tnn_lm = TnnLM, tnn_classifier = TnnClassifier, tnn_mlm = masked.TnnMLM,
  tnn_mlm_classifier = masked.TnnMLMClassifier, tnn_image = TnnImage,
  attention_classifier = AttentionClassifier,
}

-- preset(name, more) returns the options of a published model: tl.models.tnn_lm(
-- tl.models.preset("gtu-only-9", { vocab = 100 })). presets lists all of them, and
-- preset_model(name) returns the name of the model that a preset configures.
local models = {
  estimate = estimate, preset = presets.options, presets = presets.list,
  preset_model = presets.model,
}
for name, kind in pairs(kinds) do models[name] = kind end

-- Returns the names of all models, sorted.
function models.names()
  return sorted_keys(kinds)
end

-- Returns the name of the model of which module is an instance, or nil.
function models.name_of(module)
  for name, kind in pairs(kinds) do
    if getmetatable(module) == kind then return name end
  end
end

-- Returns the declared options of a model, for options.parse and options.describe.
function models.options(name)
  return suggest.strict("models", kinds)[name].spec
end

-- Makes a model for description, not for training: its random parameters stay 0. If memory cannot
-- hold the model, raises an error before anything is allocated.
function models.describe(name, given)
  local kind = suggest.strict("models", kinds)[name]
  local o = options.check(kind.kind, kind.spec, given)
  sizes.check(kind.kind, o, kind.parameters_of and kind.parameters_of(o))
  return initial.without_init(kind, given)
end

return suggest.strict("models", models)
