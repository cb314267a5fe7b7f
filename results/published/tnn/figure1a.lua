-- figure1a.lua: speed, score and memory on the Long Range Arena.
return {
  title = "speed, score and memory on LRA (left)",
  caption = "The training speed (x axis), performance (y axis) and GPU memory footprint (circle "
    .. "size) of TNN and competing methods on the Long-Range Arena benchmark.",
  source = "Qin et al., Toeplitz Neural Network for Sequence Modeling, ICLR 2023, Figure 1, left",
  rows_are = "model",
  columns = {
    { id = "speed", name = "training speed on Text", better = "higher", unit = "steps/s",
      metrics = { "steps_per_second" }, where = { task = "imdb" } },
    { id = "score", name = "score", better = "higher", unit = "%",
      metrics = { "test_accuracy" }, times = 100, where = { task = { "imdb", "listops",
        "retrieval", "pathfinder", "cifar", "cifar-part" } } },
    { id = "memory", name = "peak memory on Text", better = "lower", unit = "MiB",
      metrics = { "peak_mib" }, where = { task = "imdb" } },
  },
  rows = {
    { "Transformer", "drawn", "drawn", "drawn", where = { model = "transformer" } },
    { "Kernelized Attention", "drawn", "drawn", "drawn",
      where = { model = "kernelized-attention" } },
    { "Nystromformer", "drawn", "drawn", "drawn", where = { model = "nystromformer" } },
    { "Linformer", "drawn", "drawn", "drawn", where = { model = "linformer" } },
    { "Informer", "drawn", "drawn", "drawn", where = { model = "informer" } },
    { "Performer", "drawn", "drawn", "drawn", where = { model = "performer" } },
    { "Reformer", "drawn", "drawn", "drawn", where = { model = "reformer" } },
    { "BigBird", "drawn", "drawn", "drawn", where = { model = "bigbird" } },
    { "Skyformer", "drawn", "drawn", "drawn", where = { model = "skyformer" } },
    { "LS", "drawn", "drawn", "drawn", where = { model = "transformer-ls" } },
    { "cosFormer", "drawn", "drawn", "drawn", where = { model = "cosformer" } },
    { "FLASH", "drawn", "drawn", "drawn", where = { model = "flash" } },
    { "S4", "drawn", "drawn", "drawn", where = { model = "s4" } },
    { "TNN", "drawn", "drawn", "drawn", where = { model = "tnn" } },
  },
  draw = "plot lra task=imdb --metric test_accuracy --metric peak_mib --against steps_per_second "
    .. "--by model",
  notes = {
    "The paper prints speeds in its Table 5 and scores in its Table 4, and no memory at all. The "
      .. "rows are those of Table 4; which models the figure shows is not said.",
    "The score measured here is the mean over the tasks that were run; a trial's speed includes "
      .. "what else the machine did, so run it alone (-j1).",
    "Our plot has the accuracy and the memory on Text in a panel each, with a point for each seed, "
      .. "where the paper draws the memory as the size of a circle.",
  },
}
