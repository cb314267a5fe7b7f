-- wikitext2.lua: how well does a small causal TNN predict WikiText-2 word by word, and what does
-- its decay save, or cost, at eight times the length it was trained at?
local tl = require "toeplab"

return tl.experiment "wikitext2" {
  fixed = {
    corpus = "wikitext-2", tokenizer = "word",
    layers = 4, dim = 256, expand = 2, rpe_dim = 32, rpe_layers = 3, dropout = 0.0,
    backend = "rac",
    length = 512, batch = 2, steps = 2400,       -- 1.2 epochs of 2040 batches
    lr = 2e-3, schedule = "cosine", warmup = 200, end_lr = 4e-5, weight_decay = 0.1, clip = 1.0,
    patience = 3,                                -- epochs without a better validation part
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
    local data = tl.corpus(c.corpus, c)
    data:check_lengths("valid", { c.length })
    data:check_lengths("test", c.lengths)
    local blocks = tl.blocks(data:stream "train", c)
    local model = tl.models.tnn_lm(data.vocab:size(), c)
    local opt = tl.train.graph(model, tl.optim.adam(model, c))
    t:say("%d words to train on, of %d kinds; %d parameters; %d batches in an epoch",
      blocks.targets, data.vocab:size(), model:count(), blocks:steps())

    for step in t:steps(c.steps, model, opt, data) do
      local loss, info = tl.train.lm_step(model, opt, blocks:batch(step))
      t:log { loss = loss, lr = info.lr, grad_norm = info.grad_norm }
      if blocks:ends_epoch(step) or step == c.steps then
        local ppl = tl.eval.perplexity(model, data:stream "valid", c.length)
        t:log { val_ppl = ppl }
        t:best(ppl, c.patience)
      end
    end

    local step, ppl = t:load_best()
    t:log { best_step = step, best_val_ppl = ppl, parameters = (model:count()) }
    for _, length in ipairs(c.lengths) do
      t:say("evaluating at length %d", length)
      t:log { ["ppl@" .. length] = tl.eval.perplexity(model, data:stream "test", length) }
    end
  end,

  -- Perplexities of the test part, and how each changes from the first length to the last.
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
