-- nanogpt.lua: the loss that nanoGPT reports for a run on a laptop without a GPU.
return {
  title = "nanoGPT on a laptop",
  caption = "Validation loss (nats a character) on tiny Shakespeare of the run that nanoGPT's "
    .. "README gives for a machine without a GPU.",
  source = "Karpathy, nanoGPT, https://github.com/karpathy/nanoGPT at 3adf61e, README",
  rows_are = "model",
  columns = {
    { id = "val", name = "loss (val)", better = "lower", metrics = { "val_loss" } },
    { id = "parameters", name = "parameters", unit = "M",
      metrics = { "parameters" }, times = 1e-6 },
  },
  rows = {
    { "nanoGPT [R]", 1.88, false, where = { model = "attention" } },
  },
  setting = { corpus = "tinyshakespeare", layers = 4, dim = 128, length = 64, batch = 12,
    steps = 2000, lr = 1e-3, end_lr = 1e-4, warmup = 100, weight_decay = 0.1, clip = 1.0,
    dropout = 0.0 },
  notes = {
    "[R] read in the README: 4 layers of 128, 4 heads, blocks of 64 characters, batches of 12. Its "
      .. "1.88 is the mean over 20 random batches, whose standard error is about 0.015.",
    "The README has one run, and other models are not in it: those of ours stand below its row.",
  },
  claims = {
    { says = "(A check of this laboratory:) the Transformer trained as nanoGPT's reaches the loss "
        .. "that its README reports, 1.88, within 3 %.",
      row = "nanoGPT [R]", metric = "val_loss", over_metric = "published_loss", within = 1.03 },
  },
}
