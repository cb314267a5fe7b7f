-- lra-speed.lua: how much faster than TNN do SKI and FD train on the long one-dimensional tasks of
-- the Long Range Arena, and with how much memory? (SKI, Figure 1a; for other models tnn-table5.lua)
--
-- It measures time: run it alone, with one worker (-j1), on a machine that does nothing else. The
-- tokens are random, because time does not depend on their values. Each trial trains TNN and
-- another model in turns, so that other load slows both equally.
--
-- The models have the sizes of the released training script, in which TNN's coefficients end at lag
-- 1,024. Retrieval has two documents per label; here each row is one document with its own label.
local tl = require "toeplab"

-- Returns a function that makes the model with these options and returns one that trains it for a
-- step.
local function maker(options, c)
  local rows, dim = math.max(1, c.batch // c.fewer_rows), c.dim // c.narrower
  local ids, classes = tl.cost.tokens(rows, c.length // c.shorter, c.vocab), {}
  for i = 1, rows do classes[i] = i % c.classes end
  local batch = { ids = ids, labels = tl.ids(classes) }
  return function()
    local model = tl.models.tnn_classifier(tl.overlay({ vocab = c.vocab, classes = c.classes,
      layers = c.layers, dim = dim, expand = 1.0, glu_dim = math.floor(c.glu * dim),
      rpe_dim = c.rpe_dim, dropout = c.dropout }, options))
    local opt = tl.optim.adam(model, { kind = "adamw", lr = 1e-4 })
    return function() tl.classify.step(model, opt, batch) end
  end
end

return tl.experiment "lra-speed" {
  answers = "ski/figure1a",
  fixed = {
    shorter = 1, narrower = 1, fewer_rows = 8, -- divide the published lengths, widths and batches
    backend = "rac",
    seconds = 20.0,                            -- of timing in a trial
  },
  rows = {
    model = {
      { "ski", options = { backend = "ski", encoder = "piecewise",
        backend_options = { inducing = 64, taps = 32, lambda = 0.99 } } },
      { "fd", options = { backend = "fd", encoder = "mlp", rpe_layers = 3 } },
    },
    task = { -- the length, tokens and classes, the model's size, and rows of a batch, as published
      { "imdb", length = 4096, vocab = 135, classes = 2, layers = 4, dim = 128, glu = 2.0,
        rpe_dim = 32, batch = 16, dropout = 0.1 },
      { "listops", length = 2048, vocab = 20, classes = 10, layers = 4, dim = 128, glu = 1.0,
        rpe_dim = 32, batch = 64, dropout = 0.0 },
      { "retrieval", length = 4000, vocab = 100, classes = 2, layers = 2, dim = 64, glu = 1.5,
        rpe_dim = 16, batch = 64, dropout = 0.0 },
    },
  },
  data = {},
  scale = {
    smoke = { shorter = 32, narrower = 8, fewer_rows = 16, seconds = 0.01,
      options = { backend_options = { inducing = 8, taps = 4 } } },
    laptop = {},
    paper = { fewer_rows = 1 },
  },

  check = function(c)
    for _, key in ipairs { "shorter", "narrower", "fewer_rows" } do
      if c[key] < 1 then error(key .. " must be at least 1", 0) end
    end
    if not (c.seconds > 0) then error("seconds must be above 0", 0) end
    if c.length // c.shorter < 16 then
      error(("shorter leaves %d tokens, wanted at least 16"):format(c.length // c.shorter), 0)
    end
  end,

  trial = function(t, c)
    local tnn, model = table.unpack(tl.cost.in_turns({
      maker({ backend = c.backend, encoder = "lra", max_lag = 1024 }, c), maker(c.options, c),
    }, c.seconds))
    t:log { speedup_percent = 100 * (tnn.seconds / model.seconds - 1),
      steps_per_second = 1 / model.seconds, tnn_steps_per_second = 1 / tnn.seconds,
      peak_mib = model.bytes / 2 ^ 20, tnn_peak_mib = tnn.bytes / 2 ^ 20 }
  end,

  report = { rows = { "task", "model" }, columns = { "speedup_percent", "steps_per_second",
    "tnn_steps_per_second", "peak_mib", "tnn_peak_mib" } },
}
