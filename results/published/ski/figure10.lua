-- figure10.lua: time and memory of a training step, SKI-TNN against TNN.
return {
  title = "time and memory of a step, SKI-TNN against TNN",
  caption = "Wall clock time per training step and GPU memory allocation for SKI-TNN at sequence "
    .. "lengths 512 and 2048 vs the baseline with a 6 layer RPE.",
  source = "Moreno, Mei, Walters, SKI to go Faster, 2023, Figure 10",
  rows_are = "model",
  columns = {
    { id = "time512", name = "time saved at 512", better = "higher", unit = "%",
      metrics = { "time_saved_percent@512" } },
    { id = "time2048", name = "time saved at 2048", better = "higher", unit = "%",
      metrics = { "time_saved_percent@2048" } },
    { id = "memory512", name = "memory saved at 512", better = "higher", unit = "%",
      metrics = { "memory_saved_percent@512" } },
    { id = "memory2048", name = "memory saved at 2048", better = "higher", unit = "%",
      metrics = { "memory_saved_percent@2048" } },
  },
  rows = { { "SKI-TNN", 25, 30, 17, 42, where = { model = "ski" } } },
  notes = { "Approximate, as the text states them, on an A100; the paper draws the curves." },
}
