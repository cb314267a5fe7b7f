-- figure9.lua: validation perplexity against steps, bidirectional, TNN and SKI-TNN.
return {
  title = "masked perplexity against steps, SKI-TNN and TNN",
  caption = "In Wikitext-103 bidirectional pretraining, using SKI leads to similar validation "
    .. "loss versus the baseline over 50k steps. The final validation perplexity is slightly "
    .. "worse.",
  source = "Moreno, Mei, Walters, SKI to go Faster, 2023, Figure 9",
  rows_are = "model",
  columns = {
    { id = "val", name = "masked PPL (val) at the end", better = "lower",
      metrics = { "best_val_ppl" } },
  },
  rows = {
    { "TNN", "near 4", where = { model = "tnn" } },
    { "SKI-TNN", "near 4", where = { model = { "ski-published", "ski" } } },
  },
  draw = "plot mlm --metric val_ppl --by model --log y",
  notes = {
    "The text says that both perplexities are close to 4 and that SKI's is slightly higher.",
    "In the published code the low-rank part of SKI is numerically dead; 'ski-published' "
      .. "computes that.",
  },
}
