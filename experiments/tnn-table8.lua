-- tnn-table8.lua: which input should the relative position encoder get: the lag, the lag divided by
-- the length, or sines and cosines of it? (TNN, Table 8)
--
-- The published row with the lag had decay 0.99, the others had none. Here each input runs with and
-- without the decay.
local tl = require "toeplab"

return tl.experiment "tnn-table8" {
  answers = "tnn/table8",
  fixed = tl.lm.fixed { rpe_input = false, decay = false },
  grid = { rpe_input = { "integer", "normalised", "sincos" }, decay = { 0.99, "none" } },
  seeds = 5,
  tune = tl.lm.tune(),
  scale = tl.lm.scales(),
  trial = tl.lm.trial,
  report = { rows = { "rpe_input", "decay" }, columns = { "best_val_ppl", "test_ppl" } },
}
