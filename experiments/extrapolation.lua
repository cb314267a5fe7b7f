-- extrapolation.lua: how does the perplexity change at lengths up to 16 times the training length
-- and beyond, for TNN with and without decay, SKI, FD and Transformers?
-- (TNN, Figure 1 right and Table 15; SKI, Figure 7a)
--
-- These are eight of the models. tnn-table2.lua trains all others of Table 15, and evaluates them
-- at several lengths if asked: lengths=128,512,2048.
local tl = require "toeplab"

-- The preset of each model and the options in which it differs from it; also factors of its
-- learning rate and of its layers, of which DSS needs more to be about as large as the others. SKI
-- and FD have no decay; FD has twice the learning rate, as published. Neither paper trains a causal
-- SKI.
local models = {
  tnn = { "tnn-7/6", { decay = 0.99 } },
  ["tnn-no-decay"] = { "tnn-7/6", { decay = "none" } },
  fd = { "fd-7/3", {}, rate = 2 },
  ski = { "tnn-7/6", { backend = "ski", encoder = "piecewise", decay = "none" } },
  transformer = { "transformer" },
  alibi = { "alibi" },
  ["1+elu"] = { "linear-attention" },
  dss = { "dss", deeper = 5 / 3 },
}

local order = { "tnn", "tnn-no-decay", "fd", "ski", "transformer", "alibi", "1+elu", "dss" }

-- The keys of the language models whose values are those of the presets.
local of_presets = { "causal", "decay", "encoder", "expand", "glu_dim", "layout", "positions",
  "rpe_input", "structure", "table_length" }

-- Returns the options of the model c.model with so many tokens.
local function options_of(c, vocab)
  local name, more = table.unpack(models[c.model])
  local o = tl.models.preset(name, { vocab = vocab, dropout = c.dropout })
  if not o.mixer then
    o.backend = o.backend or c.backend
    for key, value in pairs(more) do o[key] = value end
  end
  if o.backend == "ski" then
    o.backend_options = { inducing = c.inducing, taps = c.taps, lambda = c.lambda }
  end
  if not c.small then return o end
  o.layers = math.floor(c.layers * (models[c.model].deeper or 1))
  o.dim, o.glu_dim = c.dim, o.mixer and 4 * c.dim or c.dim
  if o.embed_dim then o.dim, o.embed_dim = 2 * c.dim, c.dim end -- DSS is wider inside
  if o.mixer then o.heads = c.heads else o.rpe_dim, o.rpe_layers = c.rpe_dim, c.rpe_layers end
  return o
end

-- Returns the means over the seeds, model -> length -> perplexity, and the models in their order.
local function means(trials)
  local sums, found = {}, {}
  for _, t in ipairs(trials) do
    local name = t.config.model
    if not sums[name] then
      sums[name], found[#found + 1] = {}, name
    end
    for _, n in ipairs(t.config.lengths) do
      local ppl = t.metrics["ppl@" .. n]
      local at = sums[name][n] or { sum = 0.0, count = 0 }
      sums[name][n] = at
      at.sum, at.count = at.sum + (ppl or 0 / 0), at.count + 1
    end
  end
  return function(name, n)
    local at = sums[name][n]
    return at and at.sum / at.count
  end, found
end

return tl.experiment "extrapolation" {
  answers = { "tnn/figure1b", "tnn/table15", "ski/figure7a" },
  fixed = tl.lm.fixed({
    small = true, heads = 4, inducing = 32, taps = 16, lambda = 0.99, steps = 1000,
    warmup = 50,
    lengths = { 128, 256, 512, 1024, 2048, 4096 },
  }, of_presets),
  grid = { model = order },
  seeds = 3,
  scale = tl.lm.scales({
    smoke = { heads = 2, inducing = 4, taps = 4, steps = 4 },
    paper = { small = false },
  }, of_presets),
  check = function(c)
    if not models[c.model] then error("model: known are " .. table.concat(order, ", "), 0) end
  end,

  -- Weight decay is twice as strong for TNNs as for the others, as in the published training.
  trial = function(t, c)
    tl.lm.trial(t, c, {
      make = function(vocab) return tl.models.tnn_lm(options_of(c, vocab)) end,
      optimizer = function(model)
        return tl.optim.adam(model, { kind = c.kind, betas = c.betas, eps = c.eps, clip = c.clip,
          lr = c.lr * (models[c.model].rate or 1), schedule = c.schedule, warmup = c.warmup,
          warmup_init_lr = c.warmup_init_lr,
          weight_decay = models[c.model][2] and c.weight_decay or c.weight_decay / 2 })
      end })
  end,

  -- Prints and draws the perplexities of the test part, means over the seeds, with the change from
  -- the training length to the longest.
  report = function(trials, report)
    local lengths, trained = trials[1].config.lengths, trials[1].config.length
    local mean, found = means(trials)
    local header, rows, series = { "model" }, {}, {}
    for i, n in ipairs(lengths) do header[1 + i] = "ppl@" .. n end
    header[#header + 1] = "change, %"
    for i, name in ipairs(found) do
      local y = {}
      for k, n in ipairs(lengths) do y[k] = mean(name, n) or 0 / 0 end
      rows[i] = { name, table.unpack(y) }
      local base = mean(name, trained)
      rows[i][#header] = base and 100 * (y[#y] / base - 1)
      series[i] = { name = name, x = lengths, y = y, style = "both" }
    end
    report.table(header, rows)
    report.plot { xlabel = "length of evaluation, tokens", ylabel = "perplexity of the test part",
      logx = 2, logy = true, key = "outside", series = series }
  end,
}
