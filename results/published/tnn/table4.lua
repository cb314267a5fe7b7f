-- table4.lua: Long Range Arena, small models.
return {
  title = "Long Range Arena, small models",
  caption = "Performances Comparison on the Long Range Arena benchmark.",
  source = "Qin et al., Toeplitz Neural Network for Sequence Modeling, ICLR 2023, Table 4",
  rows_are = "model",
  columns = {
    { id = "text", name = "Text", better = "higher", unit = "%",
      metrics = { "test_accuracy" }, times = 100, where = { task = "imdb" } },
    { id = "listops", name = "ListOps", better = "higher", unit = "%",
      metrics = { "test_accuracy" }, times = 100, where = { task = "listops" } },
    { id = "retrieval", name = "Retrieval", better = "higher", unit = "%",
      metrics = { "test_accuracy" }, times = 100, where = { task = "retrieval" } },
    { id = "pathfinder", name = "Pathfinder", better = "higher", unit = "%",
      metrics = { "test_accuracy" }, times = 100, where = { task = "pathfinder" } },
    { id = "image", name = "Image", better = "higher", unit = "%",
      metrics = { "test_accuracy" }, times = 100, where = { task = { "cifar", "cifar-part" } } },
    { id = "avg", name = "AVG", better = "higher", unit = "%" },
  },
  rows = {
    { "Transformer", 61.95, 38.37, 80.69, 65.26, 40.57, 57.37, where = { model = "transformer" } },
    { "Kernelized Attention", 60.22, 38.78, 81.77, 70.73, 41.29, 58.56,
      where = { model = "kernelized-attention" } },
    { "Nystromformer", 64.83, 38.51, 80.52, 69.48, 41.30, 58.93,
      where = { model = "nystromformer" } },
    { "Linformer", 58.93, 37.45, 78.19, 60.93, 37.96, 54.69, where = { model = "linformer" } },
    { "Informer", 62.64, 32.53, 77.57, 57.83, 38.10, 53.73, where = { model = "informer" } },
    { "Performer", 64.19, 38.02, 80.04, 66.30, 41.43, 58.00, where = { model = "performer" } },
    { "Reformer", 62.93, 37.68, 78.99, 66.49, 48.87, 58.99, where = { model = "reformer" } },
    { "BigBird", 63.86, 39.25, 80.28, 68.72, 43.16, 59.05, where = { model = "bigbird" } },
    { "Skyformer", 64.70, 38.69, 82.06, 70.73, 40.77, 59.39, where = { model = "skyformer" } },
    { "LS", 66.62, 40.30, 81.68, 69.98, 47.60, 61.24, where = { model = "transformer-ls" } },
    { "cosFormer", 67.70, 36.50, 83.15, 71.96, 51.23, 62.11, where = { model = "cosformer" } },
    { "FLASH", 64.10, 38.70, 86.10, 70.25, 47.40, 61.31, where = { model = "flash" } },
    { "S4", 85.92, 50.60, 67.30, 72.44, 78.07, 70.87, where = { model = "s4" } },
    { "TNN", 86.39, 47.33, 89.40, 73.89, 77.84, 74.97, where = { model = "tnn" } },
  },
  average = { of = 5, column = "avg" },
  setting = { layers = 2, dim = 64, expand = 1, glu_dim = 96, rpe_dim = 16, dropout = 0.0,
    steps = 50000 },
  notes = {
    "Rows up to Skyformer are copied from the Skyformer paper, which has another code "
      .. "base; the others were run in S4's: the table mixes pipelines.",
    "The test part of Text was also its validation part. Evaluation dropped the last "
      .. "partial batch.",
    "Learning rates were searched in fine grids for each task; decay 1 (Text, Image, "
      .. "Pathfinder) or 0.95 (ListOps, Retrieval). These settings are inferred from deleted "
      .. "run scripts.",
  },
  claims = {
    { says = "TNN is the best of all on Text, Retrieval and Pathfinder.",
      row = "TNN", over = "others", column = { "text", "retrieval", "pathfinder" }, above = 1 },
    { says = "On ListOps and Image, S4 alone is better than TNN.",
      row = "S4", over = "TNN", column = { "listops", "image" }, above = 1 },
    { says = "Over all five tasks TNN is better than every other, S4 included.",
      row = "TNN", over = "others",
      mean_of = { "text", "listops", "retrieval", "pathfinder", "image" }, above = 1 },
  },
}
