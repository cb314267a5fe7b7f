-- tnn-table7.lua: does a language model need the GTU and the GLU, and is attention better? (TNN,
-- Table 7)
--
-- The published attention has neither a mask nor positions, so it sees the tokens that it is to
-- predict. This experiment adds attention with a mask, and with a mask and ALiBi. As published, the
-- GTU alone is in layout A, x + GTU(norm(x)), with the start of layout B, which the others have.
local tl = require "toeplab"

-- Returns the rows that are deeper than the first one at a scale.
local function deeper(gtu, attention)
  return { { "gtu", layers = gtu }, { "attention", layers = attention },
    { "attention-masked", layers = attention }, { "attention-alibi", layers = attention } }
end

return tl.experiment "tnn-table7" {
  answers = "tnn/table7",
  fixed = tl.lm.fixed { init = "lra" },
  rows = { -- the depths give about equal numbers of parameters
    { "gtu+glu" },
    { "gtu", structure = "gtu", layout = "A", layers = 4 },
    { "attention", structure = "attention+glu", causal = false, expand = 2.0 },
    { "attention-masked", structure = "attention+glu", expand = 2.0 },
    { "attention-alibi", structure = "attention+glu", positions = "alibi", expand = 2.0 },
  },
  seeds = 5,
  tune = tl.lm.tune(),
  scale = tl.lm.scales({
    gpu = { rows = deeper(8, 7) },
    paper = { rows = deeper(9, 8) },
  }),
  trial = tl.lm.trial,
  report = { rows = "row",
    columns = { "best_val_ppl", "test_ppl", "parameters" } },
}
