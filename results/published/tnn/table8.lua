-- table8.lua: inputs of the relative position encoder.
return {
  title = "inputs of the relative position encoder",
  caption = "Results comparison with different RPE inputs.",
  source = "Qin et al., Toeplitz Neural Network for Sequence Modeling, ICLR 2023, Table 8",
  rows_are = "input",
  columns = {
    { id = "val", name = "PPL (val)", better = "lower",
      metrics = { "best_val_ppl", "val_ppl" } },
  },
  rows = {
    { "(-(n-1),...,(n-1))", 23.98,
      where = { { rpe_input = "integer", decay = 0.99 },
        { preset = { "tnn-7/6", "decay-0.99" } } } },
    { "(-(n-1),...,(n-1))/n", 24.11,
      where = { { rpe_input = "normalised", decay = "none" }, { preset = "normalised" } } },
    { "sin, cos", 24.04,
      where = { { rpe_input = "sincos", decay = "none" }, { preset = "sincos" } } },
  },
  bytes_per_token = 4.5, -- WikiText-103 in byte pairs of GPT-2
  setting = { corpus = "wikitext-103-raw", tokenizer = "gpt2", layers = 7, dim = 512, expand = 3,
    glu_dim = 512, rpe_dim = 64, rpe_layers = 6, dropout = 0.1, length = 512, batch = 128,
    steps = 50000, lr = 5e-4, warmup = 4000, weight_decay = 0.2, clip = 1.0 },
  notes = {
    "The rows were not run alike: the integers had decay 0.99, the other two inputs no "
      .. "decay. Their fair comparator is the integers without decay, 24.03 in Table 10, so "
      .. "sin, cos (24.04) is a tie.",
    "The normalised input is k/(n-1) in the released code, not k/n.",
    "All rows have a second shortcut inside the GTU (layout B), which the released "
      .. "training script has not.",
    "7 layers, though its Table 13 says 6: only 7 make 48.68 M parameters.",
    "Learning rate 5e-4 (Table 12 and the released scripts); Section 4.1 says 0.005. "
      .. "Gradients are clipped at norm 1.0, though Table 12 says '-'.",
  },
  claims = {
    { says = "The integers as they are lead to better predictions than the normalised ones, and "
        .. "than sines and cosines (the integers with decay 0.99, the others without, as run).",
      row = "(-(n-1),...,(n-1))", over = { "(-(n-1),...,(n-1))/n", "sin, cos" }, column = "val",
      below = 1 },
    { says = "(Not in the paper:) So they do if no input has a decay.",
      row = { rpe_input = "integer", decay = "none" },
      over = { "(-(n-1),...,(n-1))/n", "sin, cos" }, column = "val", below = 1 },
  },
}
