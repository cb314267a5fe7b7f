-- models/presets.lua: the published models by name: rows of TNN's Tables 2, 3 and 6 to 10, and of
-- SKI's paper, as options of tnn_lm, tnn_mlm and tnn_image. Language models with other mixers than
-- the TNN's are in models/baselines.lua.
--
-- The released training script uses layout A; the ablations exist in layout B only (nn/block.lua),
-- except for the row of the GTU alone, which has layout B's initialisation in layout A.
-- Dropout is the published training's. The vocabulary is fairseq's GPT-2 dictionary; the
-- bidirectional models add <mask> to it. Image models have neither.

local baselines = require "toeplab.models.baselines"
local overlay = require "toeplab.base.overlay"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local VOCAB = 50264

-- Each row holds the name, the paper and table, the published number of parameters (nil: none), and
-- the options that differ from the common ones.
local causal = {
  { "tnn-7/6", "TNN 2, 7, 8: encoder of 6 layers", 48677376, {} },
  { "tnn-7/3", "SKI 1: encoder of 3 layers", 48590016, { rpe_layers = 3 } },
  -- Without a decay FD has 7 * 1536 parameters fewer. Its encoder is as large as in the time
  -- domain, because the real part determines a causal response.
  { "fd-7/3", "SKI 1: FD, encoder of 3 layers", 48579264,
    { rpe_layers = 3, backend = "fd", decay = "none" } },
  { "gtu-only-9", "TNN 7: GTU only", 48140288, { structure = "gtu", layers = 9, init = "lra" } },
  { "attention+glu-8", "TNN 7: attention + GLU, no mask, as run", 48845824,
    { structure = "attention+glu", layers = 8, expand = 2.0, layout = "B", causal = false } },
  { "attention+glu-8-causal", "the same with a mask", nil,
    { structure = "attention+glu", layers = 8, expand = 2.0, layout = "B" } },
  { "attention+glu-8-alibi", "the same with a mask and ALiBi", nil,
    { structure = "attention+glu", layers = 8, expand = 2.0, layout = "B", positions = "alibi" } },
  { "normalised", "TNN 8: input k/(n-1), no decay, as run", nil,
    { layout = "B", rpe_input = "normalised", decay = "none" } },
  { "sincos", "TNN 8: input sin, cos; no decay, as run", nil,
    { layout = "B", rpe_input = "sincos", decay = "none" } },
  { "without-rpe-5", "TNN 9: w/o RPE, free coefficients", 49354752,
    { encoder = "table", layers = 5, layout = "B" } },
  { "decay-0.90", "TNN 10", nil, { layout = "B", decay = 0.90 } },
  { "decay-0.95", "TNN 10", nil, { layout = "B", decay = 0.95 } },
  { "decay-0.99", "TNN 10", nil, { layout = "B", decay = 0.99 } },
  { "decay-0.999", "TNN 10", nil, { layout = "B", decay = 0.999 } },
  { "no-decay", "TNN 10: decay 1", nil, { layout = "B", decay = "none" } },
  { "learnable-decay", "TNN 10: sigmoid(3 + N(0,1)) per channel", nil,
    { layout = "B", decay = "learnable" } },
}

local bidirectional = { -- the sizes are the defaults of tnn_mlm
  { "blm-tnn-12", "TNN 3: encoder of 6 layers", 126400089, {} },
  { "blm-fd-12", "SKI Fig. 8: FD, encoder of 3 layers", nil,
    { rpe_layers = 3, backend = "fd", decay = "none" } },
  { "blm-ski-12", "SKI Fig. 9: r = 32 inducing points, 17 taps", nil,
    { backend = "ski", backend_options = { inducing = 32, taps = 17 }, decay = "none",
      encoder = "piecewise", encoder_options = { nodes = 65 } } },
}

-- The Transformers of Table 6 are DeiT's. Ours lacks the class token: it classifies by the mean
-- over the patches and so has 2 dim parameters fewer. It is initialised as DeiT is, but does not
-- cut off the tails of the Gaussians.
local vit = { init = "bert", mixer = "attention", channel = "ffn", act = "gelu",
  norm = "layernorm", positions = "learned", max_length = 196, final_norm = "layernorm" }

local function deit(dim, heads)
  return overlay(vit, { dim = dim, heads = heads, glu_dim = 4 * dim })
end

local images = { -- the sizes of the tiny TNN are the defaults of tnn_image
  { "image-tnn-tiny", "TNN 6, 13; the released script has decay 0.90", 6422056, { decay = 0.95 } },
  { "image-tnn-small", "TNN 6", 23401192, { dim = 384 } },
  { "image-transformer-tiny", "TNN 6: DeiT, without its class token", nil, deit(192, 3) },
  { "image-transformer-small", "TNN 6: DeiT, without its class token", nil, deit(384, 6) },
}

local presets = { list = {} }
local by_name = {}

-- Adds the presets in rows for a model; their options override those in common.
local function add(model, common, rows)
  for _, row in ipairs(rows) do
    local preset = { name = row[1], model = model, source = row[2], parameters = row[3],
      options = overlay(common, row[4]) }
    presets.list[#presets.list + 1] = preset
    by_name[preset.name] = preset
  end
end

local words = { vocab = VOCAB, pad = 1, dropout = 0.1 }
local words_and_mask = { vocab = VOCAB + 1, pad = 1, dropout = 0.1 }

add("tnn_lm", words, causal)
add("tnn_mlm", words_and_mask, bidirectional)
add("tnn_lm", words, baselines.causal)
add("tnn_mlm", words_and_mask, baselines.bidirectional)
add("tnn_image", {}, images)

-- Returns the name of the model that a preset configures, or nil.
function presets.model(name)
  return by_name[name] and by_name[name].model
end

-- Returns the options of a preset, overridden by those in more. An unknown name is an error.
function presets.options(name, more)
  local found = by_name[name]
  if not found then error(select(2, suggest.choose("preset", name, sorted_keys(by_name))), 0) end
  return overlay(found.options, more)
end

return presets
