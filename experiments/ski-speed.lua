-- ski-speed.lua: how much time and memory of a language model's training step do FD and SKI save
-- over TNN, and which part of SKI takes them? (SKI, Figures 1b, 10 and 11)
--
-- It measures time: run it alone, with one worker (-j1), on a machine that does nothing else. The
-- tokens are random, because time does not depend on their values. Each trial trains TNN and
-- another model in turns, so that other load slows both equally. TNN is this library's, whose
-- operator (rac) is faster than the published one; backend=fft is closer to that. The memory is
-- used by models, gradients, optimisers and steps.
local tl = require "toeplab"

-- Returns a row of the axis model: whether it is causal, the layers of the encoder of TNN and FD,
-- and the options in which it differs from TNN. SKI has no such encoder; it is compared with TNN's
-- encoder of 6 layers.
local function fd(name, causal, layers)
  return { name, causal = causal, rpe_layers = layers,
    options = { backend = "fd", encoder = "mlp", decay = "none" } }
end
local function ski(name, parts)
  return { name, causal = false, rpe_layers = 6, options = { backend = "ski", decay = "none",
    encoder = "piecewise", backend_options = { parts = parts, inducing = 32, taps = 16 } } }
end

-- Returns a function that makes the model with these options, and returns one that trains it for a
-- step of length n.
local function maker(c, n, options)
  local o = tl.overlay({ layers = c.layers, dim = c.dim, expand = c.expand, rpe_dim = c.rpe_dim,
    rpe_layers = c.rpe_layers, dropout = c.dropout }, options)
  local function adam(model) return tl.optim.adam(model, { kind = "fairseq", lr = 1e-4 }) end
  if c.causal then
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
  label = { step = "length n" },
  answers = { "ski/figure1b", "ski/figure10", "ski/figure11" },
  fixed = {
    lengths = { 512, 1024, 2048, 4096 },
    layers = 2, dim = 128, expand = 3.0, rpe_dim = 64, vocab = 1024, batch = 4,
    dropout = 0.0, backend = "rac",
    seconds = 5.0,                             -- of timing at each length
  },
  rows = { model = {
    fd("fd-causal-3", true, 3), fd("fd-causal-6", true, 6),
    fd("fd-bidirectional-3", false, 3), fd("fd-bidirectional-6", false, 6),
    ski("ski", "both"), ski("ski-low-rank", "low-rank"),
  } },
  data = {},
  scale = {
    smoke = { lengths = { 32, 64 }, layers = 1, dim = 16, rpe_dim = 8, vocab = 50, batch = 2,
      options = { backend_options = { inducing = 8, taps = 4 } }, seconds = 0.01 },
    laptop = {},
    paper = { lengths = { 512, 2048 }, layers = 12, dim = 768, vocab = 50262, dropout = 0.1,
      batch = 8 },
  },

  check = function(c)
    if c.batch < 1 then error("batch must be at least 1", 0) end
    if c.seconds <= 0 then error("seconds must be above 0", 0) end
  end,

  trial = function(t, c)
    for _, n in ipairs(c.lengths) do
      local tnn, model = table.unpack(tl.cost.in_turns({
        maker(c, n, { backend = c.backend, encoder = "mlp", decay = 0.99 }),
        maker(c, n, c.options) }, c.seconds))
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
