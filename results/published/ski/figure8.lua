-- figure8.lua: validation perplexity against steps, bidirectional, TNN and FD-TNN.
return {
  title = "masked perplexity against steps, FD-TNN and TNN",
  caption = "In Wikitext-103 bidirectional pretraining, FD-TNN slightly lags the validation "
    .. "perplexity of the TNN baseline throughout much of the 50k training iterations, but closes "
    .. "this gap during the last 10k iterations.",
  source = "Moreno, Mei, Walters, SKI to go Faster, 2023, Figure 8",
  rows_are = "model",
  columns = {
    { id = "val", name = "masked PPL (val) at the end", better = "lower",
      metrics = { "best_val_ppl" } },
  },
  rows = {
    { "TNN", "drawn", where = { model = "tnn" } },
    { "FD-TNN", "drawn", where = { model = "fd" } },
  },
  claims = {
    { says = "At the end of training FD-TNN has the perplexity of TNN: within 2 %.",
      row = "FD-TNN", over = "TNN", column = "val", within = 1.02 },
  },
  draw = "plot mlm --metric val_ppl --by model --log y",
  notes = { "FD-TNN has learning rate 1e-3, TNN 5e-4." },
}
