-- models/stack.lua: makes the stack of blocks of every model, and declares its options.
--
--   local spec = { { "vocab", "int" } }
--   stack.fields(spec, { causal = false, norm = "batchnorm" })  -- the model's own defaults
--   local Model = nn.class("Model", spec)
--   function Model:build(o) self.layers = stack.layers("Model", o) end

local encoders = require "toeplab.nn.encoders"
local mixers = require "toeplab.nn.mixers"
local nn = require "toeplab.nn"
local options = require "toeplab.base.options"
local recompute = require "toeplab.models.recompute"
local suggest = require "toeplab.base.suggest"

local stack = {}

local field = options.field
local positive = function(default, most)
  return field { default = default, min = 1, max = most }
end
-- The option by which a model calls its blocks through stack.through, {name, field, help}.
stack.recompute = { "recompute", false, "compute each block again in the backward pass instead of "
  .. "storing what its gradients need: less memory, more time, the same results" }

local structures = { "gtu+glu", "gtu", "attention+glu", "mha+glu" }
local positions = { "none", "sinusoidal", "sinusoidal-fairseq", "learned", "learned-fairseq",
  "alibi" }

-- Checks the option mixer: a list must hold names and functions only.
local function is_mixer(mixer)
  if type(mixer) ~= "table" then return true end
  if getmetatable(mixer) then
    return false, "is a class or a module: give function(dim) return MyMixer(dim) end"
  end
  if #mixer == 0 then return false, "is a list without a mixer" end
  for key in pairs(mixer) do
    if math.type(key) ~= "integer" then
      return false, ("is a list, but has a key '%s'"):format(key)
    end
  end
  for i = 1, #mixer do
    local one = mixer[i]
    if type(one) == "string" then
      local ok, why = suggest.choose("mixer", one, mixers.names)
      if not ok then return false, ("at #%d: %s"):format(i, why) end
    elseif type(one) ~= "function" then
      return false, ("at #%d must be a name or a function, got %s"):format(i,
        one == nil and "nothing" or "a " .. type(one))
    end
  end
  return true
end

-- Returns the options of blocks, {name, field, help}. Every model needs its own copy of the fields.
local function blocks()
  return {
    { "layers", positive(7, 1000), "number of blocks" },
    { "dim", positive(512, 1 << 24), "channels of the residual stream" },
    { "structure", field { default = "gtu+glu", choices = structures }, "mixers of a block" },
    { "mixer", field { type = "function|table|string", optional = true, choices = mixers.names,
      check = is_mixer }, "token mixer instead of the structure's: a name, a function dim -> "
      .. "module, or a list of these, which the blocks take in turn" },
    { "mixer_options", {},
      "options of a named mixer; for a list: by the names in it" },
    { "channel", field { type = "string", optional = true, choices = { "glu", "ffn", "none" } },
      "channel mixer (as structure: none for gtu, else glu)" },
    { "layout", nn.layout_option "A", "place of norms and residual connections in a block" },
    { "norm", nn.norm_option "simplermsnorm", "norm of the blocks" },
    { "inner_norm", field { type = "string", optional = true,
      choices = nn.norm_option("none").choices }, "second norm of layout B (as norm)" },
    { "mixer_norm", nn.norm_option "none",
      "norm inside the token mixer, before its output map (use_norm of the published code)" },
    { "expand", field { default = 3.0, min = 0, max = 1024 }, "width of the token mixer over dim" },
    { "glu_dim", field { type = "int", min = 1, max = 1 << 31, optional = true },
      "width inside the channel mixer (as dim)" },
    { "act", nn.act_option "silu", "activation of the structure's mixers and the channel mixer" },
    { "feature_first", false, "the channel mixer of a block acts before the token mixer" },
    { "final_act", nn.act_option "none", "activation of the result of the channel mixer glu" },
    { "glu_form", nn.GLU.spec.fields.form, "shared: both factors of the channel mixer glu are of "
      .. "one linear map" },
    { "bias", true, "the linear maps of GTUs, of their encoders mlp and lra and of the channel "
      .. "mixer have biases" },
    { "heads", positive(1), "heads of attention and of the decay alibi" },
    { "causal", true, "a token sees itself and earlier ones only" },
  }
end

local function operators()
  return {
    { "encoder", field { type = "class|function|string", default = "mlp",
      choices = nn.TNO.spec.fields.encoder.choices }, "points -> coefficients" },
    { "rpe_dim", positive(64, 1 << 24), "width of the encoders mlp, lra" },
    { "rpe_layers", field { default = 6, min = 0, max = 1000 },
      "hidden layers of the encoder mlp" },
    { "rpe_act", nn.act_option "relu", "activation of the encoders mlp, lra" },
    { "rpe_norm", nn.norm_option "simplermsnorm", "norm of the encoder mlp" },
    { "rpe_input", field { type = "function|string", default = "integer",
      choices = nn.RPE.spec.fields.input.choices },
      "features of a point for the encoders mlp, lra: a name or a function" },
    { "rpe_residual", false, "residual connections in the encoder mlp" },
    { "table_length", positive(512, 1 << 31), "lags of the encoder table" },
    { "encoder_options", {}, "options of the other encoders" },
    { "max_lag", field { type = "int", min = 1, optional = true },
      "coefficients of this lag and longer ones are 0" },
    { "horizon", nn.TNO.spec.fields.horizon,
      "cut lags that hold less than this fraction of the decay's sum" },
    { "decay", nn.decay_option(0.99, "none"), "gamma: a number, one per channel, or a word" },
    { "decay_mean", 3.0, "mean of the initial parameters of the decay learnable" },
    { "decay_floor", 0.0, "smallest gamma of the decay learnable" },
    { "coef_act", nn.act_option "none", "activation of the coefficients" },
    { "coef_act_first", false, "apply coef_act before the decay" },
    { "normalize", false, "divide the operators' output by that for a sequence of ones" },
    { "nodes", nn.TNO.spec.fields.nodes,
      "lags at which the encoders lra, mlp, piecewise are evaluated; linear between them" },
    { "coef_taps", field { default = 0, min = 0 },
      "lags, from 0 or around it, to whose coefficients free numbers are added" },
    { "backend", "rac", "which plugin applies the operators" },
    { "backend_options", {}, "options of the plugin" },
    { "grid", nn.GTU.spec.fields.grid, "{height, width}: operators along the axes of an image" },
    { "grid_form", nn.GTU.spec.fields.grid_form, "how the operators of the axes are combined" },
    { "grid_shared", false, "one operator for both axes" },
    { "shift", nn.GTU.spec.fields.shift, "share of the position before in the input of GTUs" },
    { "gtu_form", nn.GTU.spec.fields.form, "gates of GTUs (as their option form)" },
  }
end

local function others()
  return {
    { "positions", field { default = "none", choices = positions },
      "added to the embedding, except alibi, which acts on attention only" },
    { "max_length", positive(512, 1 << 31),
      "longest sequence for learned positions and mixers with weights by position" },
    { "dropout", field { default = 0.0, min = 0, max = 0.999 },
      "dropout of the embedding and of each mixer's output" },
    { "layer_dropout", field { type = "number", min = 0, max = 0.999, optional = true },
      "dropout of the mixers alone (as dropout; 0 for structure gtu, as published)" },
    { "drop_path", field { default = 0.0, min = 0, max = 0.999 },
      "probability of leaving out a mixer of the last block for a sequence; grows from 0 over the "
      .. "blocks" },
    { "tno_dropout", field { default = 0.0, min = 0, max = 0.999 },
      "dropout of the operators' output (2-D LRA models)" },
    { "gate_dropout", field { default = 0.0, min = 0, max = 0.999 },
      "dropout of the gate of the channel mixer glu (LRA models), or inside ffn" },
    stack.recompute,
    { "init", field { default = "auto", choices = { "auto", "torch", "normal", "bert", "lra" } },
      "initialiser of linear maps; lra: normal for GTUs and gated attention, else torch; auto: lra "
      .. "in layout B" },
  }
end

local Field = getmetatable(field { default = 0 })

-- Returns a copy of a declared option without its help, with the default own unless nil.
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

-- Adds the options of blocks to spec, a list of {name, field, help}, and returns it. defaults maps
-- the names of options to the defaults that differ for this model.
function stack.fields(spec, defaults)
  local known = {}
  for _, part in ipairs { blocks(), operators(), others() } do
    for _, entry in ipairs(part) do
      local name, own = entry[1], (defaults or {})[entry[1]]
      known[name] = true
      spec[#spec + 1] = { name, with_default(entry[2], own), entry[3] }
    end
  end
  for name in pairs(defaults or {}) do
    if not known[name] then error(("stack.fields: no option '%s'"):format(name), 2) end
  end
  return spec
end

-- ---- Making ----

-- Returns the initialiser of all linear maps except in a GTU or gated attention.
function stack.plain_init(o)
  return (o.init == "auto" or o.init == "lra") and "torch" or o.init
end

local function gated_init(o)
  if o.init == "lra" or (o.init == "auto" and o.layout == "B") then return "normal" end
  return stack.plain_init(o)
end

-- Returns the options of the TNO (nn/mixers/tno.lua) of a block.
function stack.tno_options(o)
  local rpe = nil
  if encoders.networks[o.encoder] then
    rpe = { hidden = o.rpe_dim, act = o.rpe_act, input = o.rpe_input, bias = o.bias,
      init = o.init == "bert" and "bert" or "torch" }
  end
  if o.encoder == "mlp" then
    rpe.layers, rpe.norm, rpe.residual = o.rpe_layers, o.rpe_norm, o.rpe_residual
  end
  return {
    causal = o.causal, heads = o.heads, backend = o.backend, backend_options = o.backend_options,
    encoder = o.encoder, rpe = rpe, table_length = o.table_length,
    encoder_options = o.encoder_options, act = o.coef_act, act_first = o.coef_act_first,
    normalize = o.normalize, nodes = o.nodes, taps = o.coef_taps, max_lag = o.max_lag,
    horizon = o.horizon, decay = o.decay, decay_mean = o.decay_mean, decay_floor = o.decay_floor,
  }
end

local function gtu_options(o)
  return {
    expand = o.expand, act = o.act, bias = o.bias, init = gated_init(o),
    norm = o.mixer_norm, causal = o.causal,
    dropout = o.tno_dropout, grid = o.grid, grid_form = o.grid_form,
    grid_shared = o.grid_shared, shift = o.shift, form = o.gtu_form, tno = stack.tno_options(o),
  }
end

local function attention(o)
  local gated = o.structure == "attention+glu"
  local more = { heads = o.heads, causal = o.causal,
    init = gated and gated_init(o) or stack.plain_init(o) }
  if o.positions == "alibi" then more.positions = "alibi" end
  if not gated then return nn.Attention(o.dim, more) end
  more.expand, more.act = o.expand, o.act
  return nn.GatedAttention(o.dim, more)
end

-- Returns the model's options for a named mixer. The GTU takes all options of the structure
-- gtu+glu; others take those that they declare, and their own defaults of init for "auto" and of
-- bias for true.
local function options_of_named(o)
  if o.mixer == "gtu" then return gtu_options(o) end
  local own = {
    causal = o.causal, heads = o.heads, max_length = o.max_length, backend = o.backend,
    init = o.init ~= "auto" and stack.plain_init(o) or nil,
    positions = o.positions == "alibi" and "alibi" or nil,
  }
  if not o.bias then
    if not mixers.class(o.mixer).spec.fields.bias then
      error(("bias = false is not defined for the mixer '%s'"):format(o.mixer), 0)
    end
    own.bias = false
  end
  return own
end

-- Raises an error unless mixer_options of a list of mixers has tables by the names in the list.
local function check_names(o)
  local names = {}
  for _, one in ipairs(o.mixer) do
    if type(one) == "string" then names[#names + 1] = one end
  end
  for name, own in pairs(o.mixer_options) do
    local ok, why = suggest.choose("mixer", name, names)
    if not ok then error("mixer_options of a list must be tables by names: " .. why, 0) end
    if type(own) ~= "table" then
      error(("mixer_options of '%s' must be a table, got %s"):format(name, own), 0)
    end
  end
end

-- Returns the options of block i, which has one mixer.
function stack.of_block(o, i)
  if type(o.mixer) ~= "table" then return o end
  local mixer = o.mixer[(i - 1) % #o.mixer + 1]
  local own = { mixer = mixer, mixer_options = o.mixer_options[mixer] or {} }
  return setmetatable(own, { __index = o })
end

-- Makes the token mixer of a block.
function stack.token(o)
  if type(o.mixer) == "string" then
    return mixers.make(o.mixer, o.dim, options_of_named(o), o.mixer_options)
  end
  if next(o.mixer_options) then
    error("mixer_options requires a named mixer, such as mixer = 'attention'", 0)
  end
  if o.mixer then
    return o.mixer(o.dim) or error("option 'mixer': the function returned no module", 0)
  end
  if not (o.bias or o.structure:find "^gtu") then
    error(("bias = false is not defined for the attention of structure '%s'"):format(
      o.structure), 0)
  end
  return o.structure:find "^gtu" and nn.GTU(o.dim, gtu_options(o)) or attention(o)
end

-- Returns the kind of the channel mixer: "glu", "ffn" or "none".
function stack.channel(o)
  return o.channel or (o.structure == "gtu" and "none" or "glu")
end

local function channel_mixer(o)
  local kind = stack.channel(o)
  local more = { hidden = o.glu_dim, act = o.act, bias = o.bias, init = stack.plain_init(o) }
  for name, usual in pairs { final_act = "none", glu_form = "glu" } do
    if kind ~= "glu" and o[name] ~= usual then
      error(("%s acts in the channel mixer glu, not in %s"):format(name, kind), 0)
    end
  end
  if kind == "none" and o.gate_dropout > 0 then
    error("gate_dropout acts in the channel mixers glu and ffn, and channel is none", 0)
  end
  more.dropout = o.gate_dropout
  if kind == "ffn" then return nn.FeedForward(o.dim, more) end
  more.final_act, more.form = o.final_act, o.glu_form
  return kind == "glu" and nn.GLU(o.dim, more) or nil
end

-- Makes block i.
function stack.block(o, i)
  return nn.Block(o.dim, stack.token(o), channel_mixer(o), {
    layout = o.layout, norm = o.norm, inner_norm = o.inner_norm,
    dropout = o.layer_dropout or (o.structure == "gtu" and 0 or o.dropout),
    feature_first = o.feature_first,
    drop_path = o.drop_path * (o.layers > 1 and (i - 1) / (o.layers - 1) or 1),
  })
end

local FIRST = 2 -- the first position of fairseq, whose tables begin with two rows for padding

-- The modules that add positions to an embedding.
local encodings = {
  sinusoidal = function(o) return nn.Sinusoidal(o.dim) end,
  ["sinusoidal-fairseq"] = function(o)
    return nn.Sinusoidal(o.dim, { form = "halves", first = FIRST })
  end,
  learned = function(o) return nn.Learned(o.dim, o.max_length) end,
  ["learned-fairseq"] = function(o)
    return nn.Learned(o.dim, o.max_length, { first = FIRST })
  end,
}

-- Makes the module of the option positions; nil for "none" and "alibi".
function stack.positions(o)
  return encodings[o.positions] and encodings[o.positions](o)
end

local function takes_alibi(o)
  if type(o.mixer) == "table" then
    for i = 1, #o.mixer do
      if takes_alibi(stack.of_block(o, i)) then return true end
    end
    return false
  end
  if type(o.mixer) ~= "string" then return not o.structure:find "^gtu" end
  return mixers.class(o.mixer).spec.fields.positions ~= nil
end

-- Makes all blocks, an nn.ModuleList. who: the model's name in messages.
function stack.layers(who, o)
  if o.positions == "alibi" and not takes_alibi(o) then
    error(("%s: positions = 'alibi' biases attention, but this %s has none"):format(who,
      o.mixer and "mixer" or "structure"), 0)
  end
  if type(o.mixer) == "table" then check_names(o) end
  local layers = nn.ModuleList()
  for i = 1, o.layers do layers:append(stack.block(stack.of_block(o, i), i)) end
  return layers
end

-- Returns the result of a model's blocks, model.layers, each called with the result of the one
-- before it (first x) and the arguments that follow.
function stack.through(model, x, ...)
  local again = model.opt.recompute
  for _, layer in model.layers:each() do
    if again then x = recompute(layer, x, ...) else x = layer(x, ...) end
  end
  return x
end

-- Returns how many numbers per token the tape stores for all blocks, of which each stores `each`.
function stack.stored(o, each)
  return o.recompute and o.layers * o.dim + each or o.layers * each
end

return stack
