-- tnn-table9.lua: is a relative position encoder better than a table of free coefficients? (TNN,
-- Table 9)
local tl = require "toeplab"

return tl.experiment "tnn-table9" {
  answers = "tnn/table9",
  fixed = tl.lm.fixed { encoder = false, layers = false },
  zip = { encoder = { "mlp", "table" }, layers = { 3, 2 } }, -- fewer, as a table is larger
  seeds = 5,
  tune = tl.lm.tune(),
  scale = tl.lm.scales({
    smoke = { layers = { 1, 1 } },
    gpu = { layers = { 6, 4 } },
    paper = { layers = { 7, 5 } },
  }, { "layers" }),
  trial = tl.lm.trial,
  report = { rows = "encoder", columns = { "best_val_ppl", "test_ppl", "parameters" } },
}
