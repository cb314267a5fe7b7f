-- tnn-table7.lua: does a language model need the GTU and the GLU, and is attention better? (TNN,
-- Table 7)
--
-- The published attention has neither a mask nor positions, so it sees the tokens that it is to
-- predict. This experiment adds attention with a mask, and with a mask and ALiBi. As published, the
-- GTU alone is in layout A, x + GTU(norm(x)), with the start of layout B, which the others have.
local tl = require "toeplab"

return tl.experiment "tnn-table7" {
  answers = "tnn/table7",
  fixed = tl.lm.fixed { init = "lra" },
  rows = {
    { "gtu+glu" },
    { "gtu", structure = "gtu", layout = "A" },
    { "attention", structure = "attention+glu", causal = false, expand = 2.0 },
    { "attention-masked", structure = "attention+glu", expand = 2.0 },
    { "attention-alibi", structure = "attention+glu", positions = "alibi", expand = 2.0 },
  },
  when = { -- depths of the scales laptop, gpu and paper give about equal numbers of parameters
    { where = { structure = "gtu", layers = 3 }, fixed = { layers = 4 } },
    { where = { structure = "gtu", layers = 7 }, fixed = { layers = 9 } },
    { where = { structure = "gtu", layers = 6 }, fixed = { layers = 8 } },
    { where = { structure = "attention+glu", layers = 7 }, fixed = { layers = 8 } },
    { where = { structure = "attention+glu", layers = 6 }, fixed = { layers = 7 } },
  },
  seeds = 5,
  tune = tl.lm.tune(),
  scale = tl.lm.scales {},
  trial = tl.lm.trial,
  report = { rows = "row",
    columns = { "best_val_ppl", "test_ppl", "parameters" } },
}
