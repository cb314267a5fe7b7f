-- models/published_options.lua: finds the options with which the published PyTorch code computes
-- the function of one of our modules.
--
-- The place of a norm, an activation and other options leave no trace in the names and shapes of
-- parameters. A state dictionary therefore loads even into a model with other options, which then
-- computes a different function.

local overlay = require "toeplab.base.overlay"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

-- ---- What the published code has ----------------------------------------------------------------
-- For each kind of state dictionary (published.lua), our options: the name of the published option
-- that takes the same value, or {our value = {published option = its value}}.

-- Maps an option to a published one of another name with these values.
local function choice(name, values)
  local known = {}
  for _, value in ipairs(values) do known[value] = { [name] = value } end
  return known
end

local acts = { "none", "silu", "relu", "gelu", "elu", "sigmoid" }
local norms = { "simplermsnorm", "layernorm" } -- their other norms differ from ours

local tno = {
  causal = "causal", heads = "h", coef_act = choice("act_type", acts), decay_floor = "gamma",
  decay = {
    fixed = { use_decay = true, use_multi_decay = false }, -- gamma itself is a parameter
    learnable = { use_decay = false, use_multi_decay = true },
    none = { use_decay = false, use_multi_decay = false },
  },
  rpe_act = choice("act", acts), rpe_norm = choice("norm_type", norms), rpe_residual = "residual",
  rpe_input = { integer = { par_type = 1 }, normalised = { par_type = 2 }, exp = { par_type = 3 } },
  bias = "bias", normalize = { [false] = {} }, act_first = { [false] = {} },
}

-- TnnLayer of tnn-pytorch exposes few options of its parts.
local layer = {
  layout = { A = { prenorm = true }, ["C-tnn"] = { prenorm = false } },
  norm = choice("norm_type", norms), glu_act = choice("glu_act", acts),
  act = choice("gtu_act", acts), mixer_norm = { none = {} }, gtu_form = { gtu = {} },
  glu_form = { glu = {} },
  causal = "causal", heads = "num_heads", coef_act = { none = {} },
  decay = { fixed = { use_decay = true }, none = { use_decay = false } },
  rpe_act = choice("rpe_act", acts), rpe_norm = tno.rpe_norm, rpe_residual = { [false] = {} },
  rpe_input = { integer = {} }, bias = { [true] = {} }, final_act = { none = {} },
  normalize = tno.normalize, act_first = tno.act_first, feature_first = { [false] = {} },
}

local fairseq = overlay(tno, {
  norm = layer.norm, glu_act = layer.glu_act, act = choice("act_fun", acts),
  mixer_norm = { none = { use_norm = false },
    simplermsnorm = { use_norm = true, norm_type = "simplermsnorm" },
    layernorm = { use_norm = true, norm_type = "layernorm" } },
  rpe_act = layer.rpe_act, final_act = choice("fina_act", acts), bias = layer.bias,
  normalize = "normalize", gtu_form = layer.gtu_form, glu_form = layer.glu_form,
  feature_first = layer.feature_first,
})

local kinds = suggest.strict("published", {
  tno = tno, tno_multi = tno, layer = layer,
  train = overlay(layer, { final_norm = choice("final_norm", norms), embed_scale = "embed_scale",
    tied = { [true] = {} } }),
  fairseq_lm = overlay(fairseq, {
    heads = "decoder_attention_heads",
    layout = {
      A = { model = "tnn_v2_lm", decoder_normalize_before = true },
      B = { model = "tnn_lm", decoder_normalize_before = true },
      ["C-fairseq"] = { model = "tnn_v2_lm", decoder_normalize_before = false,
        no_decoder_final_norm = true },
    },
    final_norm = { layernorm = { no_decoder_final_norm = false },
      none = { no_decoder_final_norm = true } },
    embed_scale = { [true] = { no_scale_embedding = false },
      [false] = { no_scale_embedding = true } },
    tied = "share_decoder_input_output_embed",
  }),
  fairseq_mlm = overlay(fairseq, {
    heads = "encoder_attention_heads",
    layout = { ["C-fairseq"] = { model = "roberta_tnn_v2", encoder_normalize_before = false } },
    pad = { [1] = {} }, -- fairseq's dictionary counts <s>, <pad>, </s>, <unk>
  }),
})

-- ---- What a module has --------------------------------------------------------------------------
-- facts.CLASS(module) returns the options on which its result depends, except the usual ones of the
-- published code, such as a backend that takes lags.

local facts = {}

function facts.TNO(module)
  local o, decays = module.opt, { none = "none", learnable = "learnable" }
  local found = {
    backend = module.domain ~= "lag" and o.backend or nil, max_lag = o.max_lag, horizon = o.horizon,
    causal = o.causal, heads = o.heads, coef_act = o.act, decay = decays[o.decay] or "fixed",
    decay_floor = o.decay == "learnable" and o.decay_floor or nil,
    normalize = o.normalize, nodes = o.nodes,
    coef_taps = o.taps > 0 and o.taps or nil, act_first = o.act ~= "none" and o.act_first,
  }
  if o.encoder ~= "mlp" then
    found.encoder = type(o.encoder) == "string" and o.encoder or "code of the script"
    return found
  end
  local rpe = module.encoder.opt
  found.rpe_act, found.rpe_norm, found.rpe_residual = rpe.act, rpe.norm, rpe.residual
  found.rpe_input, found.bias = rpe.input, rpe.bias
  if rpe.output_norm ~= rpe.norm then found.output_norm = rpe.output_norm end
  return found
end

function facts.GTU(module)
  local o = module.opt
  return { act = o.act, bias = o.bias, mixer_norm = o.norm, gtu_form = o.form,
    shift = o.shift > 0 and o.shift or nil,
    grid = o.grid and table.concat(o.grid, " x ") }
end

function facts.GLU(module)
  local o = module.opt
  return { glu_act = o.act, final_act = o.final_act, glu_form = o.form, bias = o.bias }
end

function facts.Block(module)
  local o, mixer, channel = module.opt, module.token.kind, module.feature and module.feature.kind
  local found = { norm = o.norm, layout = o.layout, feature_first = o.feature_first }
  if o.inner_norm ~= o.norm then found.inner_norm = o.inner_norm end
  if mixer ~= "GTU" then found.mixer = mixer end
  if channel ~= "GLU" then found.channel = channel or "none" end
  return found
end

local function embedding(o) return { positions = o.positions ~= "none" and o.positions or nil } end

function facts.TnnLM(module)
  local o = module.opt
  return overlay(embedding(o), { final_norm = o.final_norm, embed_scale = o.embed_scale,
    tied = o.tied })
end

function facts.TnnMLM(module)
  return overlay(embedding(module.opt), { pad = module.opt.pad or "none" })
end

-- ---- Their comparison ---------------------------------------------------------------------------

local function show(value)
  return type(value) == "string" and ("'%s'"):format(value) or tostring(value)
end

-- Returns the end of a message: the values that the published code has for an option.
local function has_instead(known)
  local names = {}
  for value in pairs(type(known) == "table" and known or {}) do names[#names + 1] = show(value) end
  table.sort(names)
  return names[1] and ("; it has %s"):format(table.concat(names, ", ")) or ""
end

-- Adds the published options that correspond to a value of an option of the part `where`.
local function add(options, known, where, option, value)
  local there = type(known) == "string" and { [known] = value } or (known or {})[value]
  if not there then
    error(("%s: the published code has no %s = %s%s"):format(where, option, show(value),
      has_instead(known)), 0)
  end
  for name, other in pairs(there) do
    if options[name] ~= nil and options[name] ~= other then
      error(("%s: the published code has no %s = %s where %s = %s"):format(where, option,
        show(value), name, show(options[name])), 0)
    end
    options[name] = other
  end
end

-- Returns the options of the published code, {name = value}, for a state dictionary of this kind of
-- the module; an error if that code cannot compute the module's function.
return function(kind, module)
  local options = {}
  for _, entry in ipairs(module:modules()) do
    local where = entry.name ~= "" and entry.name or entry.module.kind
    local found = facts[entry.module.kind]
    found = found and found(entry.module) or {}
    for _, option in ipairs(sorted_keys(found)) do
      add(options, kinds[kind][option], where, option, found[option])
    end
  end
  return options
end
