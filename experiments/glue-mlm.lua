-- glue-mlm.lua: how well do the bidirectional models that glue.lua fine-tunes predict masked tokens
-- (TNN, Table 3)?
--
-- model=tnn,transformer,fnet sweeps rows of that table (tl.mlm.models has all), which are about
-- equally large. fd and ski are the models of SKI's Figures 8 and 9.
-- Needs toeplab data fetch wikitext-2. scale=paper is the published recipe, on wikitext-103-raw
-- with gpt2-bpe. The head of glue.lua explains how to fine-tune the trained model.
local tl = require "toeplab"

return tl.experiment "glue-mlm" {
  fixed = tl.mlm.sizes("laptop", {
    dropout = 0.1, length = 128, batch = 32, micro = 32, steps = 5000, evaluations = 10,
    valid_batches = 20, lr = 1e-3, warmup = 300, weight_decay = 0.01, clip = 1.0,
  }),
  grid = { model = { "tnn" } },
  scale = {
    smoke = tl.mlm.sizes("smoke", {
      length = 32, batch = 4, micro = 2, steps = 12, warmup = 2, evaluations = 2,
    }),
    laptop = {},
    paper = tl.mlm.sizes("paper", { -- micro: each of 8 GPUs had 4 blocks at a time
      length = 512, batch = 512, micro = 4, steps = 50000, evaluations = 100,
      valid_batches = 1000000, lr = 5e-4, warmup = 3000, weight_decay = 0.2,
    }),
  },
  check = function(c)
    tl.mlm.check(c)
    tl.mlm.check_model(c)
  end,
  trial = function(t, c) tl.mlm.trial(t, c, tl.mlm.options_of_model) end,
  report = { rows = "model",
    columns = { "best_val_ppl", "test_ppl", "steps_per_second", "peak_mib", "parameters" } },
}
