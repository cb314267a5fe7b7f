-- models/presets.lua: lists the published language models by name: rows of TNN's Tables 2, 3 and 7
-- to 10, and of SKI's paper, as options of tnn_lm and tnn_mlm. Those of other mixers than the TNN's
-- are in models/baselines.lua.
--
-- The released training script uses layout A; the ablations exist in layout B only (nn/block.lua).
-- Dropout is that of the published training. The vocabulary is fairseq's GPT-2 dictionary; the
-- bidirectional models add <mask> to it.

local baselines = require "toeplab.models.baselines"
local suggest = require "toeplab.base.suggest"

local VOCAB = 50264

-- Each row holds the name, the paper and table, the published number of parameters (nil: none), and
-- the options that differ from the common ones.
local causal = {
  { "tnn-7/6", "TNN 2, 7, 8: encoder of 6 layers", 48677376, {} },
  { "tnn-7/3", "SKI 1: encoder of 3 layers", 48590016, { rpe_layers = 3 } },
  -- Without a decay FD has 7 * 1536 parameters fewer. Its encoder is as large as that of the time
  -- domain, because a causal response is given by its real part.
  { "fd-7/3", "SKI 1: FD, encoder of 3 layers", 48579264,
    { rpe_layers = 3, backend = "fd", decay = "none" } },
  { "gtu-only-9", "TNN 7: GTU only", 48140288, { structure = "gtu", layers = 9 } },
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

local presets = { list = {} }
local by_name = {}

local function add(model, vocab, rows)
  for _, row in ipairs(rows) do
    local options = { vocab = vocab, pad = 1, dropout = 0.1 }
    for key, value in pairs(row[4]) do options[key] = value end
    local preset = { name = row[1], model = model, source = row[2], parameters = row[3],
      options = options }
    presets.list[#presets.list + 1] = preset
    by_name[preset.name] = preset
  end
end

add("tnn_lm", VOCAB, causal)
add("tnn_mlm", VOCAB + 1, bidirectional)
add("tnn_lm", VOCAB, baselines.causal)
add("tnn_mlm", VOCAB + 1, baselines.bidirectional)

-- Returns the name of the model that a preset configures, or nil.
function presets.model(name)
  return by_name[name] and by_name[name].model
end

-- Returns the options of a preset, overridden by those in more. An unknown name is an error.
function presets.options(name, more)
  local found = by_name[name]
  if not found then error(select(2, suggest.choose("preset", name, suggest.keys(by_name))), 0) end
  local options = {}
  for key, value in pairs(found.options) do options[key] = value end
  for key, value in pairs(more or {}) do options[key] = value end
  return options
end

return presets
