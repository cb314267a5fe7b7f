-- table5.lua: speed on the Long Range Arena.
return {
  title = "speed on the Long Range Arena",
  caption = "Speed comparison on Long-Range Arena benchmark. A dash marks a method that exhausts "
    .. "GPU memory. 1K to 5K are the input sequence lengths.",
  source = "Qin et al., Toeplitz Neural Network for Sequence Modeling, ICLR 2023, Table 5",
  rows_are = "model",
  columns = {
    { id = "1k", name = "1K", better = "higher", unit = "steps/s",
      metrics = { "steps_per_second@1024" } },
    { id = "2k", name = "2K", better = "higher", unit = "steps/s",
      metrics = { "steps_per_second@2048" } },
    { id = "3k", name = "3K", better = "higher", unit = "steps/s",
      metrics = { "steps_per_second@3072" } },
    { id = "4k", name = "4K", better = "higher", unit = "steps/s",
      metrics = { "steps_per_second@4096" } },
    { id = "5k", name = "5K", better = "higher", unit = "steps/s",
      metrics = { "steps_per_second@5120" } },
  },
  rows = {
    { "Transformer", 15.34, 3.05, false, false, false, where = { model = "transformer" } },
    { "FLASH", 20.49, 11.06, 8.47, 7.23, 6.93, where = { model = "flash" } },
    { "LS", 15.43, 8.68, 6.28, 5.24, 4.76, where = { model = "transformer-ls" } },
    { "Performer", 28.41, 16.23, 12.02, 10.04, 9.06, where = { model = "performer" } },
    { "cosFormer", 22.94, 12.82, 9.19, 7.79, 7.14, where = { model = "cosformer" } },
    { "Linformer", 27.17, 15.63, 11.26, 8.77, 7.42, where = { model = "linformer" } },
    { "Reformer", 20.16, 10.87, 7.46, 5.69, 4.70, where = { model = "reformer" } },
    { "Nystorm", 14.12, 9.62, 7.46, 6.11, 5.26, where = { model = "nystorm" } },
    { "State space", 25.99, 14.88, 8.35, 6.66, 5.40, where = { model = "state-space" } },
    { "FNet", 24.61, 14.37, 9.18, 8.39, 7.44, where = { model = "fnet" } },
    { "TNN", 25.72, 15.35, 9.90, 8.07, 7.00, where = { model = "tnn" } },
  },
  setting = { layers = 6, dim = 128, expand = 1, glu_dim = 192, rpe_dim = 16, batch = 20 },
  notes = {
    "Training steps per second on an Nvidia A6000 with 48 GB, batch 20, on the characters "
      .. "of IMDB.",
    "Layers were chosen for 0.72 to 0.81 M parameters: 6 for most, Nystrom 5, Reformer 8, "
      .. "FNet 9.",
  },
}
