-- figure7a.lua: perplexity against evaluation length, TNN and FD-TNN.
return {
  title = "perplexity against evaluation length, causal",
  caption = "In Wikitext-103 causal pretraining, FD-TNN achieves equivalent perplexity vs "
    .. "inference length to TNN.",
  source = "Moreno, Mei, Walters, SKI to go Faster, 2023, Figure 7a",
  rows_are = "model",
  columns = {
    { id = "512", name = "512 (1x)", better = "lower", metrics = { "ppl@1x" } },
    { id = "1024", name = "1024 (2x)", better = "lower", metrics = { "ppl@2x" } },
    { id = "2048", name = "2048 (4x)", better = "lower", metrics = { "ppl@4x" } },
    { id = "4096", name = "4096 (8x)", better = "lower", metrics = { "ppl@8x" } },
    { id = "8192", name = "8192 (16x)", better = "lower", metrics = { "ppl@16x" } },
  },
  rows = {
    { "TNN", 24.61, "drawn", "drawn", "drawn", "drawn",
      where = { { model = "tnn" }, { backend = { "fft", "rac" } } } },
    { "FD-TNN", 24.56, "drawn", "drawn", "drawn", "drawn",
      where = { { model = "fd" }, { backend = "fd" } } },
  },
  setting = { corpus = "wikitext-103-raw", tokenizer = "gpt2", layers = 7, dim = 512, expand = 3,
    glu_dim = 512, rpe_dim = 64, rpe_layers = 3, dropout = 0.1, length = 512, batch = 128,
    steps = 50000, warmup = 4000, weight_decay = 0.2, clip = 1.0 },
  draw = "plot tnn-table2 model=tnn,fd --at ppl@ --by model --log xy",
  claims = {
    { says = "FD-TNN has the perplexity of TNN at every length: within 2 %.",
      row = "FD-TNN", over = "TNN", metric = { "ppl@1x", "ppl@2x", "ppl@4x", "ppl@8x", "ppl@16x" },
      within = 1.02 },
  },
  notes = {
    "1x is the training length, 512; trials of another length stand beside the paper's at the same "
      .. "multiple of theirs.",
    "The numbers at 512 are those of its Table 1; the paper prints no other.",
    "FD-TNN has no decay and learning rate 1e-3; TNN has decay 0.99 and 5e-4.",
  },
}
