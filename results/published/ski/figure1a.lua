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
    { id = "accuracy", name = "accuracy", better = "higher", unit = "%",
      metrics = { "test_accuracy" }, times = 100 },
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
  draw = "plot lra model=tnn,ski,fd --metric test_accuracy --metric peak_mib "
    .. "--against steps_per_second --by model --panels task",
  notes = {
    "Measured on one A100 with the batch sizes of the training runs. The accuracies are those of "
      .. "its Table 2 (ski/table2); the paper draws them relative to TNN's.",
    "lra-speed.lua measures the speed-up and the memory beside TNN's, on random tokens; lra.lua "
      .. "trains, and has the accuracy and the memory. The table shows one of them at a time: "
      .. "experiment=lra or experiment=lra-speed chooses. model=ski is SKI as the paper defines "
      .. "it; ski/table2 compares what its code computes.",
    "Our plot has the accuracy and the memory against steps per second in a panel each, where "
      .. "the paper draws the memory as the size of a bubble.",
  },
}
