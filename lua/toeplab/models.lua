-- models.lua -- whole models by name, tl.models.tnn_lm, and what they need in memory.

local core = require "toeplab.core"
local class = require("toeplab.class").class
local initial = require "toeplab.nn.initial"
local nn = require "toeplab.nn"
local options = require "toeplab.options"
local presets = require "toeplab.presets"
local sizes = require "toeplab.sizes"
local suggest = require "toeplab.suggest"

local field = options.field
local share = function() return field { default = 0.0, min = 0, max = 0.999 } end
local positive = function(default, most)
  return field { default = default, min = 1, max = most }
end
local structures = { "gtu+glu", "gtu", "attention+glu", "mha+glu" }

local spec = {
  { "vocab", field { type = "int", min = 1, max = 1 << 31 }, "number of tokens" },
  { "layers", positive(7, 1000), "blocks" },
  { "dim", positive(512, 1 << 24), "channels of the residual stream" },
  { "structure", field { default = "gtu+glu", choices = structures }, "what a block is made of" },
  { "mixer", field { type = "function", optional = true },
    "token mixer: dim -> module, instead of the structure's" },
  { "layout", nn.layout_option "A", "norms and shortcuts of a block" },
  { "norm", nn.norm_option "simplermsnorm", "norm of the blocks" },
  { "final_norm", nn.norm_option "layernorm", "norm after the last block" },
  { "mixer_norm", nn.norm_option "none",
    "norm inside the token mixer, before its output map (use_norm of the published code)" },
  { "expand", field { default = 3.0, min = 0, max = 1024 }, "width of the token mixer over dim" },
  { "glu_dim", field { type = "int", min = 1, max = 1 << 31, optional = true },
    "width inside the channel mixer (dim)" },
  { "act", nn.act_option "silu", "activation of the mixers" },
  { "heads", positive(1), "heads" },
  { "causal", true, "a token sees only those before it" },
  { "encoder", field { type = "function|string", default = "mlp", choices = { "mlp", "table" } },
    "lag -> coefficients: mlp, table, or a function" },
  { "rpe_dim", positive(64, 1 << 24), "width of the encoder mlp" },
  { "rpe_layers", field { default = 6, min = 0, max = 1000 }, "hidden layers of the encoder mlp" },
  { "rpe_act", nn.act_option "relu", "activation of the encoder mlp" },
  { "rpe_norm", nn.norm_option "simplermsnorm", "norm of the encoder mlp" },
  { "rpe_input", field { default = "integer", choices = nn.RPE.spec.fields.input.choices },
    "what the encoder mlp is given for a lag" },
  { "rpe_residual", false, "shortcuts in the encoder mlp" },
  { "table_length", positive(512, 1 << 31), "lags of the encoder table" },
  { "decay", nn.decay_option(0.99, "none"), "a number, a list, or one of the words" },
  { "decay_mean", 3.0, "of the decay learnable" },
  { "decay_floor", 0.0, "of the decay learnable" },
  { "coef_act", nn.act_option "none", "activation of the coefficients" },
  { "backend", "fft", "which plugin applies the operators" },
  { "backend_options", {}, "options of the plugin" },
  { "positions", field { default = "none", choices = { "none", "sinusoidal", "alibi" } },
    "sinusoidal: added to the embedding; alibi: attention only" },
  { "dropout", share(), "of the embedding and of each mixer's output" },
  { "layer_dropout", field { type = "number", min = 0, max = 0.999, optional = true },
    "of the mixers alone (dropout; 0 for structure gtu, as published)" },
  { "tied", true, "the output map is the embedding" },
  { "embed_scale", true, "multiply the embedding by sqrt(dim)" },
  { "pad", field { type = "int", min = 0, optional = true }, "token whose embedding starts at 0" },
  { "init", field { default = "auto", choices = { "auto", "torch", "normal", "bert" } },
    "of the mixers' linear maps; auto: normal for the GTU of layout B, else torch" },
}

-- A language model: embedding, blocks, norm, output map. The defaults are the sizes of TNN's causal
-- model; it was trained with dropout 0.1, which is 0 here, and with a padding token, here unset.
--   model(ids [b,n]) -> logits [b,n,vocab]   model:hidden(ids) -> [b,n,dim]
--   model:loss(ids, targets) -> nats
-- Every length n >= 1 works.
local TnnLM = class("TnnLM", spec, { "vocab" })

local function gtu(o)
  local init = o.init
  if init == "auto" then init = o.layout == "B" and "normal" or "torch" end
  return nn.GTU(o.dim, {
    expand = o.expand, act = o.act, init = init, norm = o.mixer_norm,
    tno = {
      causal = o.causal, heads = o.heads, backend = o.backend, backend_options = o.backend_options,
      encoder = o.encoder, table_length = o.table_length, act = o.coef_act,
      decay = o.decay, decay_mean = o.decay_mean, decay_floor = o.decay_floor,
      rpe = o.encoder == "mlp" and {
        hidden = o.rpe_dim, layers = o.rpe_layers, act = o.rpe_act, norm = o.rpe_norm,
        input = o.rpe_input, residual = o.rpe_residual, init = init == "bert" and init or "torch",
      } or nil,
    },
  })
end

local function plain_init(o)
  return o.init == "auto" and "torch" or o.init
end

local function attention(o)
  local more = { heads = o.heads, causal = o.causal, init = plain_init(o) }
  if o.positions == "alibi" then more.positions = "alibi" end
  if o.structure == "mha+glu" then return nn.Attention(o.dim, more) end
  more.expand, more.act = o.expand, o.act
  return nn.GatedAttention(o.dim, more)
end

local function block(o)
  local isgtu = o.structure:find "^gtu" ~= nil
  local token = o.mixer and o.mixer(o.dim) or (isgtu and gtu or attention)(o)
  local feature = nil
  if o.structure ~= "gtu" then
    feature = nn.GLU(o.dim, { hidden = o.glu_dim, act = o.act, init = plain_init(o) })
  end
  return nn.Block(o.dim, token, feature, {
    layout = o.layout, norm = o.norm,
    dropout = o.layer_dropout or (o.structure == "gtu" and 0 or o.dropout),
  })
end

function TnnLM:build(o)
  if o.positions == "alibi" and o.structure:find "^gtu" then
    error("TnnLM: positions = 'alibi' biases attention, and this structure has none", 0)
  end
  self.causal = o.causal
  self.embed = nn.Embedding(o.vocab, o.dim, {
    pad = o.pad, deviation = o.init == "bert" and 0.02 or nil,
  })
  if o.positions == "sinusoidal" then self.position = nn.Sinusoidal(o.dim) end
  self.drop = nn.Dropout(o.dropout)
  self.layers = nn.ModuleList()
  for _ = 1, o.layers do self.layers:append(block(o)) end
  self.final_norm = nn.norm(o.final_norm, o.dim)
  if not o.tied then
    self.head = nn.Linear(o.dim, o.vocab, { bias = false, init = plain_init(o) })
  end
end

-- The state of each token after the last norm.   ids [b,n] int32   [b,n,dim]
function TnnLM:hidden(ids)
  local x = self.embed(ids)
  if self.opt.embed_scale then x = core.affine(x, math.sqrt(self.opt.dim), 0) end
  if self.position then x = self.position(x) end
  x = self.drop(x)
  for _, layer in self.layers:each() do x = layer(x) end
  return self.final_norm(x)
end

local function output(self)
  return self.head and self.head.weight or self.embed.weight
end

-- Logits of states: [..,dim] -> [..,vocab].
function TnnLM:logits(hidden)
  return core.linear(hidden, output(self))
end

function TnnLM:forward(ids)
  return self:logits(self:hidden(ids))
end

-- Mean cross entropy in nats of targets [b,n] (those equal to ignore left out); logits are never
-- all stored.
function TnnLM:loss(ids, targets, ignore)
  return core.linear_cross_entropy(self:hidden(ids), output(self), nil, targets, ignore)
end

-- Numbers per token that backward keeps, by token mixer and channel mixer.
local function kept(o)
  local inside = math.floor(o.expand * o.dim)
  local feature = o.structure == "gtu" and 0 or 2 * o.dim + 3 * (o.glu_dim or o.dim)
  local token = 2 * o.dim + 5 * inside
  if o.structure == "attention+glu" then token = token + 2 * o.dim end
  if o.structure == "mha+glu" then token = 7 * o.dim end
  return token + feature + (o.layout == "B" and o.dim or 0)
end

-- Bytes to train a tnn_lm on batch sequences of length n, by formula: a table of parameters,
-- parameter_bytes, gradient_bytes, optimizer_bytes (Adam), activation_bytes and total_bytes. Custom
-- mixers are not counted.
local function estimate(model, n, batch)
  local o = model.opt
  local parameters, trained = model:count()
  n, batch = n + 0.0, batch + 0.0 -- products of integers would wrap
  local tokens, inside = batch * n, math.floor(o.expand * o.dim)
  local numbers = tokens * (o.layers * kept(o) + 4 * o.dim) -- kept by the tape
  numbers = numbers + tokens * 4 * math.max(inside, o.dim)  -- gradients on their way
  if o.structure:find "^gtu" then
    local points = o.causal and n or 2 * n - 1
    local encoder = o.encoder == "mlp" and 3 * (o.rpe_layers + 1) * o.rpe_dim or 0
    numbers = numbers + o.layers * points * (encoder + 2 * inside)
  else
    numbers = numbers + (o.layers + 3) * batch * o.heads * n * n
  end
  local e = {
    parameters = parameters, parameter_bytes = 4 * parameters, gradient_bytes = 4 * trained,
    optimizer_bytes = 8 * trained, activation_bytes = 4 * numbers,
  }
  e.total_bytes = e.parameter_bytes + e.gradient_bytes + e.optimizer_bytes + e.activation_bytes
  return e
end

local kinds = { tnn_lm = TnnLM }

-- preset: the options of a published model: tl.models.tnn_lm(tl.models.preset("gtu-only-9",
-- { vocab = 100 })); presets: all of them, for lists.
local models = {
  tnn_lm = TnnLM, estimate = estimate, preset = presets.options, presets = presets.list,
}

-- The names of all models, sorted.
function models.names()
  return suggest.keys(kinds)
end

-- The name under which a module is a model here, or nil.
function models.name_of(module)
  for name, kind in pairs(kinds) do
    if getmetatable(module) == kind then return name end
  end
end

-- The declared options of a model, for options.parse and options.describe.
function models.options(name)
  return suggest.strict("models", kinds)[name].spec
end

-- A model that is only looked at: its random parameters are left at 0. One that memory cannot hold
-- is an error before anything is made.
function models.describe(name, given)
  local kind = suggest.strict("models", kinds)[name]
  sizes.check(options.check(kind.kind, kind.spec, given))
  return initial.without_init(kind, given)
end

return suggest.strict("models", models)
