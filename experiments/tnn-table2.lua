-- tnn-table2.lua: which token mixer predicts text best, at equal size and with equal training, also
-- beyond the training length? (TNN, Tables 2 and 15, Figure 1; SKI, Table 1 and Figure 7)
--
-- The published models are trained as their code was run: S4 and DSS have no shortcut and no norm,
-- Performer draws new projections at every step, cosFormer divides by the length of its input.
-- Three rows follow the mixers' own papers instead: performer-kept, and S4 and DSS in the
-- Transformer's layer. Three more belong to other tables: TNN without decay, FD, and a causal SKI,
-- which neither paper trains.
--
-- All rows have the same weight decay, and their rates are tuned alike, except at scale paper,
-- where FD has twice the rate, and all rows except TNN, FD and SKI half the weight decay, as
-- published.
local tl = require "toeplab"

-- The layer of the Transformer, for mixers that were published without one.
local layer = { layout = "A", channel = "ffn", positions = "none", embed_dim = false }

-- Of each model: base, its preset; where models are small (c.small), the layers that make it about
-- as large as the others, and options of its mixer; and, everywhere, options of its model and of
-- its mixer that differ from the preset. published_rate and published_decay are factors of lr and
-- weight_decay where models are not small.
local models = {
  { "tnn", base = "tnn-7/6", options = { decay = 0.99 }, published_decay = 1.0 },
  { "transformer", base = "transformer" },
  { "alibi", base = "alibi" },
  { "transformer-ls", base = "transformer-ls", small_mixer = { chunk = 16, window = 32 } },
  { "flash", base = "flash", layers = 5, small_mixer = { shared = 32, chunk = 32 } },
  { "1+elu", base = "linear-attention" },
  { "performer", base = "performer" },
  { "cosformer", base = "cosformer" },
  { "syn-d", base = "synthesizer-dense", layers = 4 },
  { "syn-r", base = "synthesizer-random", layers = 4 },
  { "gmlp", base = "gmlp", layers = 5, small_mixer = { ffn_dim = 384 } },
  { "s4", base = "s4" },
  { "dss", base = "dss", layers = 5 },
  { "gss", base = "gss", small_mixer = { state = 64, inner = 48 } },
  { "performer-kept", base = "performer", mixer_options = { as_published = false } },
  { "s4-residual", base = "s4", mixer_options = { as_published = false }, options = layer },
  { "dss-residual", base = "dss", mixer_options = { as_published = false }, options = layer },
  { "tnn-no-decay", base = "tnn-7/6", options = { decay = "none" }, published_decay = 1.0 },
  { "fd", base = "fd-7/3", published_rate = 2, published_decay = 1.0 },
  { "ski", base = "tnn-7/6", published_decay = 1.0, options = {
    backend = "ski", encoder = "piecewise", decay = "none",
    backend_options = { inducing = 32, taps = 16, lambda = 0.99 } } },
}

-- Makes the model that the options o describe as small as the keys c say.
local function shrink(o, c)
  o.layers, o.dim, o.glu_dim = c.layers, c.dim, o.mixer and 4 * c.dim or c.dim
  o.max_length = math.max(c.length, 128) -- flash needs at least its chunk
  if o.embed_dim then o.dim, o.embed_dim = 2 * c.dim, c.dim end -- state spaces are wider inside
  if o.mixer then
    o.heads = c.heads
  else
    o.heads, o.rpe_dim, o.rpe_layers = nil, c.rpe_dim, c.rpe_layers
  end
end

-- Returns the options of the model c.model with vocab tokens.
local function options_of(c, vocab)
  local function own(key) return tl.options.given(c, key) end
  local o = tl.overlay(tl.models.preset(c.base, { vocab = vocab, dropout = c.dropout,
    embed_scale = c.embed_scale }), own "options")
  if o.mixer then
    o.mixer_options = tl.overlay(o.mixer_options, own "mixer_options",
      c.small and own "small_mixer")
  else
    o.backend = o.backend or c.backend
  end
  if c.small then shrink(o, c) end
  o.embed_dim = o.embed_dim or nil
  return o
end

-- The keys of other ablations that the presets decide.
local decided = { "expand", "glu_dim", "layout", "structure", "causal", "positions",
  "encoder", "table_length", "rpe_input", "decay" }

return tl.experiment "tnn-table2" {
  answers = { "tnn/table2", "tnn/table15", "tnn/figure1b", "ski/table1", "ski/figure7a",
    "ski/figure7b" },
  fixed = tl.lm.fixed({ small = true, heads = 4, published_rate = 1,
    published_decay = 0.5 }, decided),
  rows = { model = models },
  seeds = 5,
  tune = tl.lm.tune(),
  scale = tl.lm.scales({
    smoke = { heads = 2, steps = 4, options = { backend_options = { inducing = 4, taps = 4 } } },
    paper = { small = false },
  }, { "layers", table.unpack(decided) }),
  check = function(c)
    if c.small and c.dim % c.heads ~= 0 then error("heads must divide dim", 0) end
    tl.lm.check(c)
  end,

  trial = function(t, c)
    tl.lm.trial(t, c, {
      make = function(vocab) return tl.models.tnn_lm(options_of(c, vocab)) end,
      optimizer = function(model)
        return tl.optim.adam(model, c.small and c or tl.options.over(c, {
          lr = c.lr * c.published_rate, weight_decay = c.weight_decay * c.published_decay }))
      end })
  end,

  report = { rows = "model",
    columns = { "best_val_ppl", "test_ppl", "mean_extrapolation_ppl", "parameters" } },
}
