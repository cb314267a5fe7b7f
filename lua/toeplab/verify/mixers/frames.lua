-- verify/mixers/frames.lua: runs the reference cases of the layers and whole models in which the
-- papers compare token mixers: the Transformer's layer and the language models.

local core = require "toeplab.core"
local forms = require "toeplab.verify.mixers.forms"
local mixers = require "toeplab.nn.mixers"
local models = require "toeplab.models"
local module_case = require "toeplab.verify.module_case"
local nn = require "toeplab.nn"

local kinds = {}

-- ---- The Transformer's layer --------------------------------------------------------------------

-- The published names of a layer and ours, without those inside the token mixer.
local layer_names = {
  { "self_attn_layer_norm%.(%a+)", "token_norm.%1" },
  { "final_layer_norm%.(%a+)", "feature_norm.%1" },
  { "fc([12])%.(%a+)", "feature.fc%1.%2" },
  { "norm1%.(%a+)", "token_norm.%1" }, -- these three of transformer_ls
  { "norm2%.(%a+)", "feature_norm.%1" },
  { "ff%.fc([12])%.(%a+)", "feature.fc%1.%2" },
}

-- Returns names with prefix before each pattern and place before each of our names.
local function nested(names, prefix, place)
  local list = {}
  for i, pair in ipairs(names) do
    list[i] = { prefix .. pair[1], pair[2] and place .. pair[2] }
  end
  return list
end

local function join(...)
  local list = {}
  for _, names in ipairs { ... } do table.move(names, 1, #names, #list + 1, list) end
  return list
end

function kinds.transformer_layer(case)
  local a = case.attributes
  local token = mixers.make("attention", a.dim, { causal = a.causal }, { heads = a.heads })
  local block = nn.Block(a.dim, token, nn.FeedForward(a.dim, { hidden = a.ffn_dim, act = a.act }), {
    layout = a.norm_position == "pre" and "A" or "C-fairseq", norm = "layernorm",
  })
  local inside = nested(forms.transformer.names, "self_attn%.", "token.")
  return module_case.run(case, block, join(inside, layer_names))
end

-- ---- Whole models -------------------------------------------------------------------------------

-- The mixers whose released layer is the mixer alone, without norm, shortcut and channel mixer.
local alone = { flash = true, flash_quad = true, gmlp = true, gss = true, fnet = true, s4 = true,
  dss = true }

-- The part of a name between self_attn and a mixer's parameters.
local places = { synthesizer_dense = "synthesizer", synthesizer_random = "synthesizer",
  gmlp = "gmlp", s4 = "s4", dss = "dss", gss = "gss", fnet = "fnet", gfnet = "gfn", afno = "afno" }

-- Returns the options of blocks that the case has, and the names of its layers at prefix, with the
-- further state of their mixers.
local function blocks(a, prefix, act, layout)
  local form, state = forms[a.model], {}
  if not form then error(("the model '%s' has no form"):format(a.model), 0) end
  local options = {
    dim = a.dim, vocab = a.vocab, layers = a.layers, heads = a.heads, causal = a.causal, act = act,
    mixer = form.mixer or a.model, mixer_options = form.options(a), norm = "layernorm",
    layout = alone[a.model] and "none" or layout, glu_dim = a.ffn_dim,
    channel = alone[a.model] and "none" or "ffn",
  }
  local inner, names = places[a.model] and places[a.model] .. "%." or "", {}
  for layer = 0, a.layers - 1 do
    local theirs, place = prefix .. "layers%." .. layer .. "%.", ("layers.%d."):format(layer + 1)
    local inside = theirs .. (a.model == "transformer_ls" and "attn%." or "self_attn%.") .. inner
    names[#names + 1] = nested(form.names, inside, place .. "token.")
    names[#names + 1] = { { inside .. "(.+)", place .. "token.%1" } }
    names[#names + 1] = nested(layer_names, theirs, place)
    for name, t in pairs(form.state and form.state(a) or {}) do
      state[place .. "token." .. name] = t
    end
  end
  return options, join(table.unpack(names)), state
end

-- Runs model, or the function forward in its place, on the ids of the case, backpropagates dy, and
-- returns the results.
local function run(case, model, names, forward)
  local form = forms[case.attributes.model]
  if form.joined then case = module_case.joined(case, form.joined) end
  module_case.load(case, model:eval(), names)
  local results, y = {}, (forward or model)(case:read "ids");
  (y * case:read "dy"):sum():backward()
  module_case.compare(case, results, "y", y)
  module_case.gradients(case, model, module_case.renaming(names), results)
  return results
end

local without_positions = { alibi = true, s4 = true, dss = true, gss = true }

-- Long-short attention has a frame of its own. Its layers also see their own inputs of the last
-- segment, which the case holds.
local function transformer_ls(case)
  local a = case.attributes
  local options, names = blocks(a, "decoder%.model%.", "relu", "C-fairseq")
  options.final_norm, options.output_bias = "none", true
  local model = models.tnn_lm(options)
  names = join(names, {
    { "decoder%.model%.in_emb%.weight", "embed.weight" },
    { "decoder%.model%.out_emb%.bias", "output_bias" },
  })
  return run(case, model, names, function(ids)
    local x = core.affine(model.embed(ids), math.sqrt(a.dim), 0)
    for i, layer in model.layers:each() do
      local z = layer.token_norm(x + layer.token(x, case:read("before" .. i)))
      x = layer.feature_norm(z + layer.feature(z))
    end
    return core.log_softmax(model:logits(x))
  end)
end

function kinds.lm(case)
  local a = case.attributes
  if a.model == "transformer_ls" then return transformer_ls(case) end
  local options, names, state = blocks(a, "decoder%.", "relu", "A")
  options.final_norm = "layernorm"
  options.embed_dim = a.embedding_dim ~= a.dim and a.embedding_dim or nil
  options.positions = (a.model == "s4" or not without_positions[a.model]) and "sinusoidal-fairseq"
    or a.model == "alibi" and "alibi" or "none"
  names = join(names, {
    { "decoder%.embed_tokens%.weight", "embed.weight" },
    { "decoder%.layer_norm%.(%a+)", "final_norm.%1" },
    { "decoder%.project_(%a+)_dim%.weight", "project_%1.weight" },
  })
  names.state = state
  return run(case, models.tnn_lm(options), names)
end

function kinds.mlm(case)
  local a = case.attributes
  local options, names, state = blocks(a, "encoder%.sentence_encoder%.", "gelu", "C-fairseq")
  options.pad = a.pad
  if not without_positions[a.model] then
    options.positions = "learned-fairseq"
    options.max_length = case:read("param/encoder.sentence_encoder.embed_positions.weight"):dim(1)
      - 2
  end
  names = join(names, {
    { "encoder%.sentence_encoder%.embed_tokens%.weight", "embed.weight" },
    { "encoder%.sentence_encoder%.embed_positions%.weight", "position.weight" },
    { "encoder%.sentence_encoder%.layernorm_embedding%.(%a+)", "embed_norm.%1" },
    { "encoder%.lm_head%.dense%.(%a+)", "head.%1" },
    { "encoder%.lm_head%.layer_norm%.(%a+)", "head_norm.%1" },
    { "encoder%.lm_head%.bias", "bias" },
  })
  names.state = state
  return run(case, models.tnn_mlm(options), names)
end

return kinds
