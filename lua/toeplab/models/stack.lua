-- models/stack.lua -- the blocks that all models are made of: their options, and what makes them.
--
--   local spec = { { "vocab", "int" } }
--   mixer.fields(spec, { causal = false, norm = "batchnorm" })  -- with defaults of its own
--   local Model = nn.class("Model", spec)
--   function Model:build(o) self.layers = mixer.layers("Model", o) end

local encoders = require "toeplab.nn.encoders"
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"

local mixer = {}

local field = options.field
local positive = function(default, most)
  return field { default = default, min = 1, max = most }
end
local structures = { "gtu+glu", "gtu", "attention+glu", "mha+glu" }

-- The options of blocks: {name, field, help}, made anew.
local function blocks()
  return {
    { "layers", positive(7, 1000), "blocks" },
    { "dim", positive(512, 1 << 24), "channels of the residual stream" },
    { "structure", field { default = "gtu+glu", choices = structures }, "what a block is made of" },
    { "mixer", field { type = "function", optional = true },
      "token mixer: dim -> module, instead of the structure's" },
    { "layout", nn.layout_option "A", "norms and shortcuts of a block" },
    { "norm", nn.norm_option "simplermsnorm", "norm of the blocks" },
    { "inner_norm", field { type = "string", optional = true,
      choices = nn.norm_option("none").choices }, "second norm of layout B (norm)" },
    { "mixer_norm", nn.norm_option "none",
      "norm inside the token mixer, before its output map (use_norm of the published code)" },
    { "expand", field { default = 3.0, min = 0, max = 1024 }, "width of the token mixer over dim" },
    { "glu_dim", field { type = "int", min = 1, max = 1 << 31, optional = true },
      "width inside the channel mixer (dim)" },
    { "act", nn.act_option "silu", "activation of the mixers" },
    { "heads", positive(1), "heads" },
    { "causal", true, "a token sees only those before it" },
  }
end

-- Those of the Toeplitz operators.
local function operators()
  return {
    { "encoder", field { type = "class|function|string", default = "mlp",
      choices = nn.TNO.spec.fields.encoder.choices }, "points -> coefficients (nn/tno.lua)" },
    { "rpe_dim", positive(64, 1 << 24), "width of the encoders mlp, lra" },
    { "rpe_layers", field { default = 6, min = 0, max = 1000 },
      "hidden layers of the encoder mlp" },
    { "rpe_act", nn.act_option "relu", "activation of the encoders mlp, lra" },
    { "rpe_norm", nn.norm_option "simplermsnorm", "norm of the encoder mlp" },
    { "rpe_input", field { default = "integer", choices = nn.RPE.spec.fields.input.choices },
      "what the encoders mlp, lra are given for a point" },
    { "rpe_residual", false, "shortcuts in the encoder mlp" },
    { "table_length", positive(512, 1 << 31), "lags of the encoder table" },
    { "encoder_options", {}, "options of the other encoders" },
    { "max_lag", field { type = "int", min = 1, optional = true },
      "coefficients of this lag and longer ones are 0" },
    { "horizon", nn.TNO.spec.fields.horizon,
      "cut where this share of the decay's sum is left (nn/horizon.lua)" },
    { "decay", nn.decay_option(0.99, "none"), "a number, a list, or one of the words" },
    { "decay_mean", 3.0, "of the decay learnable" },
    { "decay_floor", 0.0, "of the decay learnable" },
    { "coef_act", nn.act_option "none", "activation of the coefficients" },
    { "backend", "rac", "which plugin applies the operators" },
    { "backend_options", {}, "options of the plugin" },
    { "grid", nn.GTU.spec.fields.grid, "{height, width}: operators along the axes of an image" },
    { "grid_form", nn.GTU.spec.fields.grid_form, "of the two axes' results" },
  }
end

local function rest()
  return {
    { "positions", field { default = "none", choices = { "none", "sinusoidal", "alibi" } },
      "sinusoidal: added to the embedding; alibi: attention only" },
    { "dropout", field { default = 0.0, min = 0, max = 0.999 },
      "of the embedding and of each mixer's output" },
    { "layer_dropout", field { type = "number", min = 0, max = 0.999, optional = true },
      "of the mixers alone (dropout; 0 for structure gtu, as published)" },
    { "tno_dropout", field { default = 0.0, min = 0, max = 0.999 },
      "of the operators' output (2-D LRA models)" },
    { "gate_dropout", field { default = 0.0, min = 0, max = 0.999 },
      "of the gate of the channel mixer (LRA models)" },
    { "init", field { default = "auto", choices = { "auto", "torch", "normal", "bert", "lra" } },
      "of the mixers' linear maps; lra: normal for the GTU, else torch; auto: so in layout B" },
  }
end

local Field = getmetatable(field { default = 0 })

-- What was declared, with a default of its own, and a help of its own.
local function with_default(declared, own)
  if getmetatable(declared) ~= Field then
    if own == nil then return declared end
    return own
  end
  local copy = {}
  for key, value in pairs(declared) do copy[key] = value end
  copy.help = nil
  if own ~= nil then copy.default = own end
  return field(copy)
end

-- Adds the options of blocks to a spec, a list of {name, field, help}. defaults: name -> default
-- where a model has its own. Returns spec.
function mixer.fields(spec, defaults)
  local known = {}
  for _, part in ipairs { blocks(), operators(), rest() } do
    for _, entry in ipairs(part) do
      local name, own = entry[1], (defaults or {})[entry[1]]
      known[name] = true
      spec[#spec + 1] = { name, with_default(entry[2], own), entry[3] }
    end
  end
  for name in pairs(defaults or {}) do
    if not known[name] then error(("mixer.fields: no option '%s'"):format(name), 2) end
  end
  return spec
end

-- ---- Making ----

-- The init of plain linear maps under o, and that of a GTU's.
function mixer.plain_init(o)
  return (o.init == "auto" or o.init == "lra") and "torch" or o.init
end

local function gtu_init(o)
  if o.init == "lra" or (o.init == "auto" and o.layout == "B") then return "normal" end
  return mixer.plain_init(o)
end

-- The options of the TNO (nn/tno.lua) of a block.
function mixer.tno_options(o)
  local rpe = nil
  if encoders.networks[o.encoder] then
    rpe = { hidden = o.rpe_dim, act = o.rpe_act, input = o.rpe_input,
      init = o.init == "bert" and "bert" or "torch" }
  end
  if o.encoder == "mlp" then
    rpe.layers, rpe.norm, rpe.residual = o.rpe_layers, o.rpe_norm, o.rpe_residual
  end
  return {
    causal = o.causal, heads = o.heads, backend = o.backend, backend_options = o.backend_options,
    encoder = o.encoder, rpe = rpe, table_length = o.table_length,
    encoder_options = o.encoder_options, act = o.coef_act, max_lag = o.max_lag,
    horizon = o.horizon, decay = o.decay, decay_mean = o.decay_mean, decay_floor = o.decay_floor,
  }
end

local function gtu(o)
  return nn.GTU(o.dim, {
    expand = o.expand, act = o.act, init = gtu_init(o), norm = o.mixer_norm,
    dropout = o.tno_dropout, grid = o.grid, grid_form = o.grid_form, tno = mixer.tno_options(o),
  })
end

local function attention(o)
  local more = { heads = o.heads, causal = o.causal, init = mixer.plain_init(o) }
  if o.positions == "alibi" then more.positions = "alibi" end
  if o.structure == "mha+glu" then return nn.Attention(o.dim, more) end
  more.expand, more.act = o.expand, o.act
  return nn.GatedAttention(o.dim, more)
end

-- One block of resolved options o.
function mixer.block(o)
  local isgtu = o.structure:find "^gtu" ~= nil
  local token = o.mixer and o.mixer(o.dim) or (isgtu and gtu or attention)(o)
  local feature = nil
  if o.structure ~= "gtu" then
    feature = nn.GLU(o.dim, { hidden = o.glu_dim, act = o.act, init = mixer.plain_init(o),
      dropout = o.gate_dropout })
  end
  return nn.Block(o.dim, token, feature, {
    layout = o.layout, norm = o.norm, inner_norm = o.inner_norm,
    dropout = o.layer_dropout or (o.structure == "gtu" and 0 or o.dropout),
  })
end

-- All of them, an nn.ModuleList. who: the model, for messages.
function mixer.layers(who, o)
  if o.positions == "alibi" and o.structure:find "^gtu" then
    error(who .. ": positions = 'alibi' biases attention, and this structure has none", 0)
  end
  local layers = nn.ModuleList()
  for _ = 1, o.layers do layers:append(mixer.block(o)) end
  return layers
end

return mixer
