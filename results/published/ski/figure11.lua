-- figure11.lua: time and memory of SKI's parts.
return {
  title = "time and memory of a step, SKI's low-rank part and both",
  caption = "Wall clock time per training step and GPU memory allocation for SKI-TNN using either "
    .. "the low rank component only or both the sparse and low rank components.",
  source = "Moreno, Mei, Walters, SKI to go Faster, 2023, Figure 11",
  rows_are = "parts",
  columns = {
    { id = "time512", name = "ms a step at 512", better = "lower",
      metrics = { "step_seconds@512" }, times = 1000 },
    { id = "time2048", name = "ms a step at 2048", better = "lower",
      metrics = { "step_seconds@2048" }, times = 1000 },
    { id = "memory512", name = "MiB at 512", better = "lower", metrics = { "peak_mib@512" } },
    { id = "memory2048", name = "MiB at 2048", better = "lower", metrics = { "peak_mib@2048" } },
  },
  rows = {
    { "low rank", "drawn", "drawn", "drawn", "drawn", where = { model = "ski-low-rank" } },
    { "sparse and low rank", "drawn", "drawn", "drawn", "drawn", where = { model = "ski" } },
  },
  notes = {
    "The text says that the low-rank part takes most of the time and nearly all of the memory, "
      .. "and that the sparse part adds a substantial amount of time.",
  },
}
