-- wikitext2.lua: how well does a small causal TNN predict WikiText-2 by words, and how does its
-- decay change that at up to eight times the training length?
local tl = require "toeplab"

return tl.experiment "wikitext2" {
  fixed = {
    corpus = "wikitext-2", tokenizer = "word",
    layers = 4, dim = 256, expand = 2, rpe_dim = 32, rpe_layers = 3, dropout = 0.0,
    backend = "rac",
    length = 512, batch = 2, steps = 2400,       -- 1.2 epochs of 2040 batches
    lr = 2e-3, schedule = "cosine", warmup = 200, end_lr = 4e-5, weight_decay = 0.1, clip = 1.0,
    patience = 3,                                -- epochs without improvement before it stops
    lengths = { 512, 1024, 2048, 4096 },         -- where the best model is evaluated
  },
  grid = { decay = { 0.99, "none" } },

  scale = {
    smoke = {
      layers = 1, dim = 16, rpe_dim = 8, rpe_layers = 1, length = 16, batch = 4, steps = 50,
      warmup = 5, lengths = { 16, 128 },
      corpus = "text:" .. ("the old man told the moon a tale of the young sea .\n"):rep(240),
    },
  },

  check = function(c)
    if c.patience < 1 then error(("patience must be at least 1, not %d"):format(c.patience), 0) end
  end,

  trial = function(t, c)
    local model, data = tl.lm.train(t, c, { patience = c.patience })
    tl.lm.test(t, c, model, data)
  end,

  -- Prints the perplexities of the test part, and their change from the first length to the last.
  report = function(trials, report)
    local lengths, rows = trials[1].config.lengths, {}
    local header = { "decay", "validation" }
    for _, n in ipairs(lengths) do header[#header + 1] = "test at " .. n end
    for i, t in ipairs(trials) do
      rows[i] = { tostring(t.config.decay), t.metrics.best_val_ppl }
      for _, n in ipairs(lengths) do rows[i][#rows[i] + 1] = t.metrics["ppl@" .. n] end
    end
    report.print(header, rows)
    for _, t in ipairs(trials) do
      local first, last = lengths[1], lengths[#lengths]
      print(("decay %s: perplexity at %d tokens is %+.1f %% of that at %d"):format(t.config.decay,
        last, 100 * (t.metrics["ppl@" .. last] / t.metrics["ppl@" .. first] - 1), first))
    end
  end,
}
