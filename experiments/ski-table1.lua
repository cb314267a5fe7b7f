-- ski-table1.lua: does a causal frequency domain TNN predict text as well as a TNN, with one
-- configuration for both? (SKI, Table 1 and Figure 7b)
--
-- SKI has no useful causal form (its Appendix B), so it is absent here; experiments/mlm.lua
-- compares all three in bidirectional models (Figures 8 and 9).
local tl = require "toeplab"

return tl.experiment "ski-table1" {
  answers = { "ski/table1", "ski/figure7b" },
  fixed = tl.lm.fixed { layout = "A", backend = false, decay = false, lr = false },
  zip = { -- as in the published runs, FD has twice the learning rate
    backend = { "rac", "fd" }, decay = { 0.99, "none" }, lr = { 3e-3, 6e-3 },
  },
  seeds = 3,
  scale = tl.lm.scales({
    paper = { rpe_layers = 3, lr = { 5e-4, 1e-3 } },
  }, { "lr" }),
  trial = tl.lm.trial,
  report = { rows = "backend", columns = { "best_val_ppl", "test_ppl", "mean_extrapolation_ppl" } },
}
