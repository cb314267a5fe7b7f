-- tnn-table8.lua: what should the relative position encoder be given: the lag, its share of the
-- length, or sines and cosines of it? (TNN, Table 8)
--
-- The published rows were not run alike: the lag had decay 0.99, the others none. Here each has
-- both.
local tl = require "toeplab"

return tl.experiment "tnn-table8" {
  answers = "tnn/table8",
  fixed = tl.lm.fixed { rpe_input = false, decay = false },
  grid = { rpe_input = { "integer", "normalised", "sincos" }, decay = { 0.99, "none" } },
  seeds = 3,
  scale = tl.lm.scales(),
  trial = tl.lm.trial,
  report = { rows = "rpe_input", columns = { "best_val_ppl", "test_ppl" } },
}
