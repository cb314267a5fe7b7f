-- figure1a.lua: speed, score and memory on the Long Range Arena.
return {
  title = "speed, score and memory on LRA (left)",
  caption = "The training speed (x axis), performance (y axis) and GPU memory footprint (circle "
    .. "size) of TNN and competing methods on the Long-Range Arena benchmark.",
  source = "Qin et al., Toeplitz Neural Network for Sequence Modeling, ICLR 2023, Figure 1, left",
  rows_are = "model",
  columns = {
    { id = "speed", name = "training speed", better = "higher" },
    { id = "score", name = "score", better = "higher", unit = "%" },
    { id = "memory", name = "memory", better = "lower" },
  },
  rows = {
    { "TNN", "drawn", "drawn", "drawn" },
    { "other methods", "drawn", "drawn", "drawn" },
  },
  instead = "speeds: tnn/table5, scores: tnn/table4; nothing measures memory",
  notes = {
    "The paper prints speeds in its Table 5 and scores in its Table 4, and no memory at all.",
  },
}
