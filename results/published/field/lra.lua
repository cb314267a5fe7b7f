-- lra.lua: accuracy on the Long Range Arena by many models, collected from several papers.
return {
  title = "Long Range Arena, the field",
  caption = "Test accuracy on the Long Range Arena, collected from several papers. The letter "
    .. "behind a name says where its numbers were read.",
  source = "several papers, see below; collected in November 2026",
  instead = "numbers of many papers, each with its source",
  rows_are = "model",
  columns = {
    { id = "listops", name = "ListOps", better = "higher", unit = "%",
      metrics = { "test_accuracy" }, times = 100, where = { task = "listops" } },
    { id = "text", name = "Text", better = "higher", unit = "%",
      metrics = { "test_accuracy" }, times = 100, where = { task = "imdb" } },
    { id = "retrieval", name = "Retrieval", better = "higher", unit = "%",
      metrics = { "test_accuracy" }, times = 100, where = { task = "retrieval" } },
    { id = "image", name = "Image", better = "higher", unit = "%",
      metrics = { "test_accuracy" }, times = 100, where = { task = { "cifar", "cifar-part" } } },
    { id = "pathfinder", name = "Pathfinder", better = "higher", unit = "%",
      metrics = { "test_accuracy" }, times = 100, where = { task = "pathfinder" } },
    { id = "pathx", name = "Path-X", better = "higher", unit = "%",
      metrics = { "test_accuracy" }, times = 100, where = { task = "path-x" } },
    { id = "mean", name = "mean", better = "higher", unit = "%" },
  },
  rows = {
    { "Transformer, LRA's code [S]", 36.37, 64.27, 57.46, 42.44, 71.40, false, 54.39 },
    { "Transformer, Skyformer's code [S]", 38.37, 61.95, 80.69, 40.57, 65.26, false, 57.37 },
    { "SKI-TNN [R]", 45.31, 83.19, 88.73, 76.46, 68.30, false, 72.40 },
    { "TNN, small [R]", 47.33, 86.39, 89.40, 77.84, 73.89, false, 74.97 },
    { "FD-TNN [R]", 55.21, 85.00, 90.26, 84.12, 69.45, false, 76.81 },
    { "Mamba, MetaLA's run [S]", 38.02, 82.98, 72.14, 69.82, 69.26, 67.32, 66.59 },
    { "S4 [S]", 59.60, 86.82, 90.90, 88.65, 94.20, 96.35, 86.09 },
    { "TNN, large [R]", 61.04, 87.90, 90.97, 88.24, 93.00, 96.10, 86.21 },
    { "LRU [S]", 60.20, 89.40, 89.90, 89.00, 95.10, 94.20, 86.30 },
    { "HGRN [S]", 59.95, 88.14, 94.23, 88.69, 92.92, 97.50, 86.91 },
    { "SGConv [S]", 61.45, 89.20, 91.11, 87.97, 95.46, 97.83, 87.17 },
    { "S5 [S]", 62.15, 89.31, 91.40, 88.00, 95.33, 98.58, 87.46 },
    { "MEGA [S]", 63.14, 90.43, 91.25, 90.44, 96.01, 97.98, 88.21 },
  },
  notes = {
    "[R] read in the model's own paper, whose table is here too: TNN's Tables 4 (small) and 14 "
      .. "(large), SKI's Table 2.",
    "[S] second hand, from the table of another paper: Mamba from MetaLA's Table 7 (arXiv "
      .. "2411.10741), S4 and Skyformer's Transformer also in TNN's Tables 14 and 4; the others "
      .. "from MEGA's Table 2, MetaLA's Table 7 or Liquid-S4's, and which of them was not "
      .. "recorded: look a number up before you cite it.",
    "The mean is that of the tasks with a number: five without Path-X, else six. Papers also "
      .. "count a failure at Path-X as 0 or 50, so that their means differ.",
    "Pipelines are mixed: models differ in size, code, search and data; Mamba's rows in "
      .. "different papers contradict each other.",
    "Most of the benchmark is short-range (arXiv 2501.14850), and pretrained Transformers "
      .. "match S4 on it (arXiv 2310.02980): it does not rank memory of long contexts.",
    "Of 10 seeds of S5 on Path-X 4 failed (issue 10 of its repository), which a best run "
      .. "does not show: count failed seeds.",
  },
}
