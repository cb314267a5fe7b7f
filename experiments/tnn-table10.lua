-- tnn-table10.lua: how do decay rates change the perplexity at the training length, and beyond it?
-- (TNN, Tables 10 and 15)
local tl = require "toeplab"

return tl.experiment "tnn-table10" {
  answers = { "tnn/table10", "tnn/table15" },
  fixed = tl.lm.fixed { decay = false },
  grid = { decay = { 0.99, 0.90, 0.95, 0.999, "none", "learnable" } },
  seeds = 5,
  tune = tl.lm.tune(),
  scale = tl.lm.scales(),
  trial = tl.lm.trial,
  title = "Perplexity of texts longer than in training",
  label = { ppl = "perplexity", ["N of ppl@N"] = "tokens of a text",
    decay = { "λ", tex = "$\\lambda$" }, ["decay=none"] = "no decay",
    ["decay=learnable"] = "learnable" },
  report = { rows = "decay", columns = { "best_val_ppl", "test_ppl", "mean_extrapolation_ppl" } },
}
