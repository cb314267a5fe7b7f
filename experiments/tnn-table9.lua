-- tnn-table9.lua: is a relative position encoder better than a table of free coefficients? (TNN,
-- Table 9)
--
-- As published, the model with a table has fewer layers, so that both have about as many
-- parameters. A third row has a table at the encoder's depth, and so more parameters. All rows have
-- the same weight decay, and their rates are tuned alike.
local tl = require "toeplab"

return tl.experiment "tnn-table9" {
  answers = "tnn/table9",
  fixed = tl.lm.fixed { encoder = false, layers = false },
  zip = { encoder = { "mlp", "table", "table" }, layers = { 3, 2, 3 } },
  seeds = 5,
  tune = tl.lm.tune(),
  scale = tl.lm.scales({
    gpu = { layers = { 6, 4, 6 } },
    paper = { layers = { 7, 5, 7 } },
  }, { "layers" }),
  trial = tl.lm.trial,
  report = { rows = { "encoder", "layers" },
    columns = { "best_val_ppl", "test_ppl", "parameters" } },
}
