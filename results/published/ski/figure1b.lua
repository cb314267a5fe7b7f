-- figure1b.lua: speed of pre-training, FD-TNN against TNN.
return {
  title = "speed of pre-training, FD-TNN against TNN",
  caption = "FD-TNN achieves substantial speed ups in iterations/sec for pre-training both causal "
    .. "and bidirectional models.",
  source = "Moreno, Mei, Walters, SKI to go Faster, 2023, Figure 1b, with the percentages of its "
    .. "Sections 5.1 and F.1",
  rows_are = "model",
  columns = {
    { id = "speedup", name = "speed-up over TNN at 512", better = "higher", unit = "%",
      metrics = { "speedup_percent@512" } },
  },
  rows = {
    { "causal, RPE of 3 layers", 10, where = { model = "fd-causal-3" } },
    { "causal, RPE of 6 layers", 15, where = { model = "fd-causal-6" } },
    { "bidirectional, RPE of 3 layers", 35, where = { model = "fd-bidirectional-3" } },
    { "bidirectional, RPE of 6 layers", 80, where = { model = "fd-bidirectional-6" } },
  },
  notes = {
    "In iterations per second on an A100. The text says 5 to 15 % in one place for the causal "
      .. "model and 10 % with 3 layers in another; for the bidirectional one 35 to 80 %, nearly "
      .. "80 % with 6 layers, from which the 35 % of 3 layers is inferred.",
    "SKI is not in the figure: it has no MLP as its encoder.",
  },
}
