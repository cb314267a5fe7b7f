-- figure1a.lua: accuracy, speed and memory on the one-dimensional tasks of the Long Range Arena.
return {
  title = "accuracy, speed and memory on LRA, relative to TNN",
  caption = "In LRA, SKI and FD-TNN are faster than TNNs for 1d tasks with strong LRA scores. "
    .. "Bubble sizes denote training model memory.",
  source = "Moreno, Mei, Walters, SKI to go Faster, 2023, Figure 1a",
  rows_are = "model and task",
  columns = {
    { id = "speedup", name = "speed-up over TNN", better = "higher", unit = "%",
      metrics = { "speedup_percent" } },
    { id = "memory", name = "peak memory", better = "lower", unit = "MiB",
      metrics = { "peak_mib" } },
    { id = "accuracy", name = "accuracy relative to TNN", better = "higher", unit = "%" },
  },
  rows = {
    { "SKI-TNN, Text", "drawn", "drawn", "drawn", where = { model = "ski", task = "imdb" } },
    { "SKI-TNN, ListOps", "drawn", "drawn", "drawn", where = { model = "ski", task = "listops" } },
    { "SKI-TNN, Retrieval", "drawn", "drawn", "drawn",
      where = { model = "ski", task = "retrieval" } },
    { "FD-TNN, Text", "drawn", "drawn", "drawn", where = { model = "fd", task = "imdb" } },
    { "FD-TNN, ListOps", "drawn", "drawn", "drawn", where = { model = "fd", task = "listops" } },
    { "FD-TNN, Retrieval", "drawn", "drawn", "drawn",
      where = { model = "fd", task = "retrieval" } },
  },
  notes = {
    "Measured on one A100 with the batch sizes of the training runs. The accuracies are those of "
      .. "its Table 2 (ski/table2).",
  },
}
