-- tnn-table7.lua: does a language model need the GTU and the GLU, and is attention better? (TNN,
-- Table 7)
--
-- The released attention has one head, and neither a mask nor positions, so it sees the tokens that
-- it must predict. This experiment adds it with a mask, and with a mask and ALiBi, whose slope for
-- one head, 1/256, is almost zero. The row attention-fair has a Transformer's parts: a mask, ALiBi,
-- several heads, layout A and PyTorch's start. As published, the GTU alone is in layout A,
-- x + GTU(norm(x)), with the start of layout B, which the others have. All rows have the same
-- weight decay, and their rates are tuned alike.
local tl = require "toeplab"

return tl.experiment "tnn-table7" {
  answers = "tnn/table7",
  fixed = tl.lm.fixed { init = "lra" },
  rows = {
    { "gtu+glu" },
    { "gtu", structure = "gtu", layout = "A" },
    { "attention-released", structure = "attention+glu", causal = false, expand = 2.0 },
    { "attention-released-masked", structure = "attention+glu", expand = 2.0 },
    { "attention-released-alibi", structure = "attention+glu", positions = "alibi", expand = 2.0 },
    { "attention-fair", structure = "attention+glu", positions = "alibi", expand = 2.0, heads = 4,
      layout = "A", init = "torch" },
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
