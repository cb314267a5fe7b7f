-- figure7b.lua: validation perplexity against iterations, causal.
return {
  title = "validation perplexity against steps, causal",
  caption = "Validation perplexity vs iterations. In the causal setting, FD-TNN converges to an "
    .. "equivalent quality at the same rate.",
  source = "Moreno, Mei, Walters, SKI to go Faster, 2023, Figure 7b",
  rows_are = "model",
  columns = {
    { id = "val", name = "PPL (val) at the end", better = "lower", metrics = { "best_val_ppl" } },
  },
  rows = {
    { "TNN", 23.96,
      where = { { model = "tnn" }, { preset = "tnn-7/3" }, { backend = { "fft", "rac" } } } },
    { "FD-TNN", 23.97, where = { { model = "fd" }, { preset = "fd-7/3" }, { backend = "fd" } } },
  },
  claims = {
    { says = "FD-TNN converges to the perplexity of TNN: within 2 %.",
      row = "FD-TNN", over = "TNN", column = "val", within = 1.02 },
  },
  draw = "plot tnn-table2 model=tnn,fd --metric val_ppl --by model --log y",
  notes = { "The paper draws the curves; the numbers at their end are those of its Table 1." },
}
