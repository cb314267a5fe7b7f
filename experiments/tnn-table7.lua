-- tnn-table7.lua: does a language model need the GTU and the GLU, and is attention better? (TNN,
-- Table 7)
--
-- The published attention has neither a mask nor positions, so it sees the tokens that it is to
-- predict. This experiment adds attention with a mask, and with a mask and ALiBi. As published, the
-- GTU alone is in layout A, x + GTU(norm(x)), with the start of layout B, which the others have.
local tl = require "toeplab"

return tl.experiment "tnn-table7" {
  answers = "tnn/table7",
  fixed = tl.lm.fixed { init = "lra", structure = false, layers = false, expand = false,
    causal = false, positions = false, layout = false },
  zip = { -- the depths give about equal numbers of parameters
    structure = { "gtu+glu", "gtu", "attention+glu", "attention+glu", "attention+glu" },
    causal = { true, true, false, true, true },
    positions = { "none", "none", "none", "none", "alibi" },
    layout = { "B", "A", "B", "B", "B" },
    layers = { 3, 4, 3, 3, 3 },
    expand = { 3.0, 3.0, 2.0, 2.0, 2.0 },
  },
  seeds = 5,
  tune = tl.lm.tune(),
  scale = tl.lm.scales({
    smoke = { layers = { 1, 1, 1, 1, 1 } },
    gpu = { layers = { 6, 8, 7, 7, 7 } },
    paper = { layers = { 7, 9, 8, 8, 8 } },
  }, { "layers" }),
  trial = tl.lm.trial,
  report = { rows = { "structure", "causal", "positions" },
    columns = { "best_val_ppl", "test_ppl", "parameters" } },
}
