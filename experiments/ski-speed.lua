-- ski-speed.lua: how much time and memory of a language model's training step do FD and SKI save
-- over TNN, and which part of SKI takes them? (SKI, Figures 1b, 10 and 11)
--
-- It measures time: run it alone, with one worker (-j1), on a machine that does nothing else. The
-- tokens are random, because time does not depend on what they say, and nothing is learnt. Each
-- trial trains TNN and another model by turns, so that other work slows both alike. TNN here is
-- that of this library, whose operator (rac) is faster than the published one; backend=fft is
-- nearer to that. The memory is that of models, gradients, optimisers and steps.
local tl = require "toeplab"

-- By model: whether it is causal, the layers of the encoder of TNN and FD, and the options in which
-- it differs from TNN. SKI has no such encoder; it is compared with TNN's encoder of 6 layers.
local function fd(causal, layers)
  return { causal = causal, layers = layers, backend = "fd", encoder = "mlp", options = {} }
end
local function ski(parts)
  return { causal = false, layers = 6, backend = "ski", encoder = "piecewise",
    options = { parts = parts } }
end
local models = {
  ["fd-causal-3"] = fd(true, 3), ["fd-causal-6"] = fd(true, 6),
  ["fd-bidirectional-3"] = fd(false, 3), ["fd-bidirectional-6"] = fd(false, 6),
  ski = ski "both", ["ski-low-rank"] = ski "low-rank",
}
local order = { "fd-causal-3", "fd-causal-6", "fd-bidirectional-3", "fd-bidirectional-6", "ski",
  "ski-low-rank" }

-- Returns a function that makes a model, and returns one that trains it for a step of length n.
-- m: one of models, or nil: TNN in the setting of c.model.
local function maker(c, n, m)
  local like = models[c.model]
  local o = { layers = c.layers, dim = c.dim, expand = c.expand, rpe_dim = c.rpe_dim,
    rpe_layers = like.layers, dropout = c.dropout, backend = m and m.backend or c.backend,
    encoder = m and m.encoder or "mlp", decay = m and "none" or 0.99, backend_options = {} }
  for key, value in pairs(m and m.options or {}) do o.backend_options[key] = value end
  if o.backend == "ski" then
    o.backend_options.inducing, o.backend_options.taps = c.inducing, c.taps
  end
  local function adam(model) return tl.optim.adam(model, { kind = "fairseq", lr = 1e-4 }) end
  if like.causal then
    local ids = tl.cost.tokens(c.batch, n + 1, c.vocab)
    return function()
      o.vocab = c.vocab
      local model = tl.models.tnn_lm(o)
      local opt = adam(model)
      return function() tl.train.lm_step(model, opt, ids) end
    end
  end
  local stream = tl.cost.tokens(1, c.batch * (n - 1), c.vocab):reshape(-1) -- and <s> in each block
  local data = tl.masking(stream, { vocab = c.vocab, length = n, batch = c.batch, seed = 1 })
  local batch = data:batch(1)
  if batch.ids:dim(1) ~= c.batch then error "the batch of tnn_mlm has not `batch` rows" end
  return function()
    o.vocab, o.pad = data.vocab, data.pad
    local model = tl.models.tnn_mlm(o)
    local opt = adam(model)
    return function() tl.masking.step(model, opt, batch) end
  end
end

-- Returns the panel of a metric against the length, a line for each model and TNN's beside SKI's.
local function panel(trials, metric, label, scale)
  local series = {}
  local function add(t, name, of)
    local x, y = t:series(of)
    for i, v in ipairs(y) do y[i] = v * scale end
    series[#series + 1] = { name = name, x = x, y = y, style = "both" }
  end
  for _, t in ipairs(trials) do
    add(t, t.config.model, metric)
    if t.config.model == "ski" then add(t, "tnn", "tnn_" .. metric) end
  end
  return { xlabel = "length n", ylabel = label, logx = 2, logy = true, key = "top left",
    series = series }
end

-- Returns the trials of SKI, which the figures draw.
local function of_ski(trials)
  local list = {}
  for _, t in ipairs(trials) do
    if t.config.model:find "^ski" then list[#list + 1] = t end
  end
  return list
end

return tl.experiment "ski-speed" {
  answers = { "ski/figure1b", "ski/figure10", "ski/figure11" },
  fixed = {
    lengths = { 512, 1024, 2048, 4096 },
    layers = 2, dim = 128, expand = 3.0, rpe_dim = 64, vocab = 1024, batch = 4,
    dropout = 0.0, inducing = 32, taps = 16, backend = "rac",
    seconds = 5.0,                             -- of timing at each length
  },
  grid = { model = order },
  data = {},
  scale = {
    smoke = { lengths = { 32, 64 }, layers = 1, dim = 16, rpe_dim = 8, vocab = 50, batch = 2,
      inducing = 8, taps = 4, seconds = 0.01 },
    laptop = {},
    paper = { lengths = { 512, 2048 }, layers = 12, dim = 768, vocab = 50262, dropout = 0.1,
      batch = 8 },
  },

  check = function(c)
    if not models[c.model] then error("model: known are " .. table.concat(order, ", "), 0) end
    if c.batch < 1 then error("batch must be at least 1", 0) end
  end,

  trial = function(t, c)
    for _, n in ipairs(c.lengths) do
      local tnn, model = table.unpack(tl.cost.in_turns({ maker(c, n), maker(c, n,
        models[c.model]) }, c.seconds))
      local found = { step_seconds = model.seconds, peak_mib = model.bytes / 2 ^ 20,
        tnn_step_seconds = tnn.seconds, tnn_peak_mib = tnn.bytes / 2 ^ 20,
        speedup_percent = 100 * (tnn.seconds / model.seconds - 1),
        time_saved_percent = 100 * (1 - model.seconds / tnn.seconds),
        memory_saved_percent = 100 * (1 - model.bytes / tnn.bytes) }
      t:log(found, n)
      local named = {}
      for key, value in pairs(found) do named[key .. "@" .. n] = value end
      t:log(named)
    end
  end,

  report = function(trials, report)
    local header = { "model", "length", "ms a step", "TNN's", "speed-up, %", "MiB", "TNN's",
      "memory saved, %" }
    local rows = {}
    for _, t in ipairs(trials) do
      for _, n in ipairs(t.config.lengths) do
        local function at(name) return t.metrics[name .. "@" .. n] or 0 / 0 end
        rows[#rows + 1] = { t.config.model, n, 1e3 * at "step_seconds", 1e3 * at "tnn_step_seconds",
          at "speedup_percent", at "peak_mib", at "tnn_peak_mib", at "memory_saved_percent" }
      end
    end
    report.table(header, rows)
    local some = of_ski(trials)
    if #some > 0 then
      report.plot { panels = { panel(some, "step_seconds", "milliseconds a step", 1e3),
        panel(some, "peak_mib", "MiB", 1) } }
    end
  end,
}
