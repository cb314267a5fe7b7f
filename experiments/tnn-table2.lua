-- tnn-table2.lua: which token mixer predicts text best, at equal size and with equal training?
-- (TNN, Table 2)
--
-- The scale paper trains the published models as their code was run: S4 and DSS have no shortcut
-- and no norm, Performer draws its projections anew at every step, cosFormer divides by the length
-- that it sees. The scale laptop has the same models of about equal size, and what their papers
-- mean: performer-kept, cosformer-fixed, and S4 and DSS in the Transformer's layer.
local tl = require "toeplab"

-- The layer of the Transformer, for mixers that were published without one.
local layer = { layout = "A", channel = "ffn", positions = "none", embed_dim = false }

-- The preset of each model; its layers at the scale laptop, which make it about as large as the
-- others; the options of its mixer there; and other options that differ from its preset.
local models = {
  tnn = { "tnn-7/6", 3 },
  transformer = { "transformer", 3 },
  ["transformer-ls"] = { "transformer-ls", 3, { chunk = 16, window = 32 } },
  flash = { "flash", 5, { shared = 32, chunk = 32, max_length = 128 } },
  ["1+elu"] = { "linear-attention", 3 },
  performer = { "performer", 3 },
  ["performer-kept"] = { "performer", 3, { as_published = false } },
  cosformer = { "cosformer", 3 },
  ["cosformer-fixed"] = { "cosformer", 3, { as_published = false, length = 128 } },
  ["syn-d"] = { "synthesizer-dense", 4, { max_length = 128 } },
  ["syn-r"] = { "synthesizer-random", 4, { max_length = 128 } },
  gmlp = { "gmlp", 5, { ffn_dim = 384, max_length = 128 } },
  s4 = { "s4", 3 },
  ["s4-residual"] = { "s4", 3, { as_published = false }, layer },
  dss = { "dss", 5 },
  ["dss-residual"] = { "dss", 3, { as_published = false }, layer },
  gss = { "gss", 3, { state = 64, inner = 48 } },
}

local order = { "tnn", "transformer", "transformer-ls", "flash", "1+elu", "performer",
  "performer-kept", "cosformer", "cosformer-fixed", "syn-d", "syn-r", "gmlp", "s4", "s4-residual",
  "dss", "dss-residual", "gss" }

local function over(base, more)
  local all = {}
  for key, value in pairs(base or {}) do all[key] = value end
  for key, value in pairs(more or {}) do all[key] = value end
  return all
end

-- Returns the options of the model c.model with so many tokens.
local function options_of(c, vocab)
  local preset, layers, mixer, more = table.unpack(models[c.model])
  local o = tl.models.preset(preset, { vocab = vocab, dropout = c.dropout, backend = c.backend })
  if not c.small then return o end
  local wide = o.embed_dim and not more
  o = over(over(o, { layers = layers, dim = wide and 2 * c.dim or c.dim, heads = c.heads,
    embed_dim = wide and c.dim or nil }), more)
  o.glu_dim = o.mixer and 4 * c.dim or c.dim
  if o.mixer then
    o.mixer_options = over(o.mixer_options, mixer)
    o.embed_dim = o.embed_dim or nil
  else
    o.rpe_dim, o.rpe_layers, o.heads = c.rpe_dim, c.rpe_layers, nil
  end
  return o
end

-- The keys of other ablations that the presets decide.
local decided = { "layers", "expand", "glu_dim", "layout", "structure", "causal", "positions",
  "encoder", "table_length", "rpe_input", "decay" }

return tl.experiment "tnn-table2" {
  answers = "tnn/table2",
  fixed = tl.lm.fixed({ small = true, heads = 4, steps = 1000, warmup = 50, lengths = { 128 } },
    decided),
  grid = { model = order },
  seeds = 3,
  scale = tl.lm.scales({
    smoke = { dim = 32, heads = 2, steps = 4, lengths = { 16 } },
    paper = { small = false, lengths = { 512 } },
  }, decided),
  check = function(c)
    if not models[c.model] then error("model: known are " .. table.concat(order, ", "), 0) end
  end,

  -- Weight decay is twice as strong for the TNN as for all others, as in the published training.
  trial = function(t, c)
    local scored = { blocks = math.max(1, c.scored // c.length) }
    local model, data = tl.lm.train(t, c, { every = math.max(c.steps // 8, 1),
      blocks = scored.blocks,
      make = function(vocab) return tl.models.tnn_lm(options_of(c, vocab)) end,
      optimizer = function(model)
        return tl.optim.adam(model, { kind = c.kind, betas = c.betas, eps = c.eps, clip = c.clip,
          lr = c.lr, schedule = c.schedule, warmup = c.warmup, warmup_init_lr = c.warmup_init_lr,
          weight_decay = c.model == "tnn" and c.weight_decay or c.weight_decay / 2 })
      end })
    tl.lm.test(t, c, model, data, function() return scored end)
  end,

  report = { rows = "model", columns = { "parameters", "best_val_ppl", "test_ppl" } },
}
