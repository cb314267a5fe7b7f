-- wikitext103.lua: perplexity on WikiText-103 in the setting of TNN's paper, from several papers.
return {
  title = "WikiText-103 in TNN's setting, the field",
  caption = "Perplexity of causal language models on WikiText-103 as TNN's paper trains them, "
    .. "collected from several papers. The letter behind a name says where its numbers were read.",
  source = "several papers, see below; collected in November 2026",
  instead = "numbers of many papers, each with its source",
  rows_are = "model",
  columns = {
    { id = "val", name = "PPL (val)", better = "lower",
      metrics = { "best_val_ppl", "val_ppl" } },
    { id = "test", name = "PPL (test)", better = "lower",
      metrics = { "test_ppl" } },
    { id = "parameters", name = "parameters", unit = "M",
      metrics = { "parameters" }, times = 1e-6 },
  },
  rows = {
    { "Transformer [R]", 24.40, 24.78, 44.65, where = { model = "transformer" } },
    { "HGRN [S]", 24.14, 24.82, false },
    { "TNN [R]", 23.98, 24.67, 48.68, where = { { model = "tnn" }, { preset = "tnn-7/6" } } },
    { "FD-TNN [R]", 23.97, 24.56, 48.58, where = { { model = "fd" }, { preset = "fd-7/3" } } },
    { "Mamba [S]", 22.58, 23.19, 44.39 },
  },
  notes = {
    "[R] read in the paper whose table is here too: TNN's Table 2, and SKI's Table 1 for FD-TNN.",
    "[S] second hand, from the table of another paper than the model's own, which was not "
      .. "recorded: look a number up before you cite it.",
    "The numbers hold for this setting only: byte pairs of GPT-2, 512 tokens, 50,000 steps. "
      .. "Perplexities of WikiText-103 by words are not comparable.",
    "Transformer and TNN differ in weight decay (0.1 and 0.2) and in size.",
  },
}
