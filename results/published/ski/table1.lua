-- table1.lua: FD-TNN and others on WikiText-103.
return {
  title = "FD-TNN and others on WikiText-103",
  caption = "Performance on Wikitext-103, Causal Language Model. All rows but the last two are "
    .. "those of TNN's Table 2; TNN (reproduced) and FD-TNN have an RPE of 3 layers.",
  source = "Moreno, Mei, Walters, SKI to go Faster, 2023, Table 1",
  rows_are = "architecture",
  columns = {
    { id = "val", name = "PPL (val)", better = "lower",
      metrics = { "best_val_ppl", "val_ppl" } },
    { id = "test", name = "PPL (test)", better = "lower",
      metrics = { "test_ppl" } },
    { id = "parameters", name = "parameters", unit = "M",
      metrics = { "parameters" }, times = 1e-6 },
  },
  rows = {
    { "Trans", 24.40, 24.78, 44.65, where = { model = "transformer" } },
    { "LS", 23.56, 24.05, 47.89, where = { model = "transformer-ls" } },
    { "Flash", 25.92, 26.70, 42.17, where = { model = "flash" } },
    { "1+elu", 27.44, 28.05, 44.65, where = { model = "1+elu" } },
    { "Performer", 62.50, 63.16, 44.65, where = { model = "performer" } },
    { "Cosformer", 26.53, 27.06, 44.65, where = { model = "cosformer" } },
    { "Syn(D)", 31.31, 32.43, 46.75, where = { model = "syn-d" } },
    { "Syn(R)", 33.68, 34.78, 44.65, where = { model = "syn-r" } },
    { "gMLP", 28.08, 29.13, 47.83, where = { model = "gmlp" } },
    { "S4", 38.34, 39.66, 45.69, where = { model = "s4" } },
    { "DSS", 39.39, 41.07, 45.73, where = { model = "dss" } },
    { "GSS", 29.61, 30.74, 43.84, where = { model = "gss" } },
    { "TNN", 23.98, 24.67, 48.68, where = { preset = "tnn-7/6" } },
    { "TNN (reproduced, 3 layers)", 23.96, 24.61, 48.59,
      where = { { model = "tnn" }, { preset = "tnn-7/3" }, { backend = { "fft", "rac" } } } },
    { "FD-TNN: Ours, 3 layers", 23.97, 24.56, 48.58,
      where = { { model = "fd" }, { preset = "fd-7/3" }, { backend = "fd" } } },
  },
  bytes_per_token = 4.5, -- WikiText-103 in byte pairs of GPT-2
  setting = { corpus = "wikitext-103-raw", tokenizer = "gpt2", layers = 7, dim = 512, expand = 3,
    glu_dim = 512, rpe_dim = 64, rpe_layers = 3, dropout = 0.1, length = 512, batch = 128,
    steps = 50000, lr = 5e-4, warmup = 4000, weight_decay = 0.2, clip = 1.0 },
  notes = {
    "The paper prints TNN and its reproduction in one row, the latter in parentheses.",
    "FD-TNN has no decay and learning rate 1e-3; TNN has decay 0.99 and 5e-4.",
    "7 layers, as the paper says in its Appendix F.",
  },
  claims = {
    { says = "FD-TNN almost exactly matches the perplexity of TNN: within 2 %.",
      row = "FD-TNN: Ours, 3 layers", over = "TNN (reproduced, 3 layers)",
      column = { "val", "test" }, within = 1.02 },
  },
}
