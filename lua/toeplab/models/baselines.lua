-- models/baselines.lua: the models that TNN's Tables 2 and 3 compare with, as their code was run:
-- options of tnn_lm and tnn_mlm for models/presets.lua.
--
-- The causal ones are fairseq's Transformer decoder, the bidirectional ones RoBERTa, each with
-- another token mixer. Their code differs from the mixers' own papers in places; the mixers' option
-- as_published reproduces the differences. The counts are the released architectures'.

local overlay = require "toeplab.base.overlay"

local baselines = {}

-- The frames: the layers of fairseq's decoder, pre-norm with relu, and of RoBERTa, post-norm with
-- gelu.
local decoder = { channel = "ffn", glu_dim = 2048, act = "relu", heads = 8, norm = "layernorm",
  positions = "sinusoidal-fairseq", layers = 6 }
local encoder = { channel = "ffn", glu_dim = 3072, act = "gelu", heads = 12, norm = "layernorm",
  positions = "learned-fairseq" }

-- The layer of mixers that were run with no norm, shortcut or channel mixer but their own. S4 and
-- DSS have none at all, so their layers are mere compositions.
local alone = { layout = "none", channel = "none" }

-- S4 and DSS are wider than the embedding of the causal model, and than RoBERTa.
local wide = { dim = 1024, embed_dim = 512 }

-- Returns the options of a model: the mixer's name, its own options, and the tables that follow;
-- later ones override earlier ones.
local function with(mixer, mixer_options, ...)
  return overlay({ mixer = mixer, mixer_options = mixer_options }, ...)
end

local function published(more)
  more.as_published = true
  return more
end

local xavier = { init = "xavier" } -- as fairseq starts queries, keys and values
local no_positions = { positions = "none" }

-- Each row holds the name, the paper and table, the number of parameters, and the options.
baselines.causal = {
  { "transformer", "TNN 2: Transformer", 44650496, with("attention", xavier, decoder) },
  { "alibi", "TNN 15: Transformer with ALiBi", 44650496,
    with("attention", xavier, decoder, { positions = "alibi" }) },
  { "linear-attention", "TNN 2: 1+elu", 44650496, with("linear_attention", {}, decoder) },
  { "performer", "TNN 2", 44650496, with("performer", published {}, decoder) },
  { "cosformer", "TNN 2: as the table's count has it", 44650496,
    with("cosformer", published {}, decoder) },
  { "cosformer-released", "as released: one head, no output map", 45964288,
    with("cosformer", published { output = false }, decoder, { heads = 1, layers = 7 }) },
  { "synthesizer-dense", "TNN 2: Synthesizer (dense)", 46752768,
    with("synthesizer_dense", published {}, decoder, { layers = 8 }) },
  { "synthesizer-random", "TNN 2: Synthesizer (random)", 44647424,
    with("synthesizer_random", published {}, decoder, { layers = 8 }) },
  { "gmlp", "TNN 2: gMLP", 47830016,
    with("gmlp", published { ffn_dim = 2048 }, decoder, alone, { layers = 12 }) },
  { "flash", "TNN 2: FLASH, mixed chunks", 42170112,
    with("flash", published {}, decoder, alone, { layers = 10 }) },
  { "flash-quad", "TNN 15: FLASH, quadratic", 42164992,
    with("flash_quad", published {}, decoder, alone, { layers = 10 }) },
  { "s4", "TNN 2: S4", 45692928,
    with("s4", published { state = 64 }, decoder, alone, wide, { layers = 8 }) },
  { "dss", "TNN 2: DSS", 45727744,
    with("dss", published { state = 64 }, decoder, alone, wide, no_positions, { layers = 16 }) },
  { "gss", "TNN 2: GSS", 43844096,
    with("gss", { expand = 4, state = 512, inner = 256 }, decoder, alone,
      no_positions) },
  { "transformer-ls", "TNN 2: Transformer-LS", 47894664,
    with("transformer_ls", { chunk = 32, rank = 1, window = 64 }, decoder,
      no_positions,
      { layout = "C-fairseq", final_norm = "none", output_bias = true, init = "bert" }) },
}

baselines.bidirectional = { -- layers and width are the defaults of tnn_mlm
  { "blm-transformer", "TNN 3: Transformer", 124696665, with("attention", {}, encoder) },
  { "blm-linear-attention", "TNN 3: 1+elu", 124696665, with("linear_attention", {}, encoder) },
  { "blm-performer", "TNN 3", 124696665, with("performer", published {}, encoder) },
  { "blm-cosformer", "TNN 3", 124696665, with("cosformer", published {}, encoder) },
  { "blm-synthesizer-dense", "TNN 3: Synthesizer (dense)", 130999385,
    with("synthesizer_dense", published {}, encoder, { layers = 16 }) },
  { "blm-synthesizer-random", "TNN 3: Synthesizer (random)", 129419865,
    with("synthesizer_random", published {}, encoder, { layers = 18 }) },
  { "blm-gmlp", "TNN 3: gMLP", 131083353,
    with("gmlp", published { ffn_dim = 3072 }, encoder, alone, { layers = 24 }) },
  { "blm-flash", "TNN 3: FLASH, mixed chunks", 127123521,
    with("flash", published { norm = "layernorm" }, encoder, alone, { layers = 24 }) },
  { "blm-flash-quad", "FLASH, quadratic", 127111233,
    with("flash_quad", published { norm = "layernorm" }, encoder, alone, { layers = 24 }) },
  { "blm-s4", "TNN 3: S4", 131786841,
    with("s4", published { state = 64 }, encoder, alone, no_positions,
      { dim = 1536, layers = 10 }) },
  { "blm-dss", "TNN 3: DSS", 123764825,
    with("dss", published { state = 64 }, encoder, alone, no_positions,
      { dim = 1536, layers = 16 }) },
  { "blm-gss", "TNN 3: GSS, causal as run", 122797657,
    with("gss", { expand = 4, state = 512, inner = 256 }, encoder, alone,
      no_positions, { causal = true, layers = 14 }) },
  { "blm-ls", "TNN 3: Transformer-LS", 128277081,
    with("ls_bidirectional", published { landmarks = 32, window = 8 }, encoder) },
  { "blm-fnet", "TNN 3: FNet", 124701273,
    with("fnet", { ffn_dim = 3072 }, encoder, alone, { layers = 18 }) },
  { "blm-gfnet", "TNN 3: GFNet", 121566297,
    with("gfnet", published {}, encoder, { layers = 16 }) },
  { "blm-afno", "TNN 3: AFNO", 130064985, with("afno", {}, encoder, { layers = 18 }) },
}

return baselines
