-- table7.lua: network structures.
return {
  title = "network structures",
  caption = "Performances comparison with different structure configurations. GTU+GLU achieves "
    .. "better performance in language modeling.",
  source = "Qin et al., Toeplitz Neural Network for Sequence Modeling, ICLR 2023, Table 7",
  rows_are = "method",
  columns = {
    { id = "val", name = "PPL (val)", better = "lower",
      metrics = { "best_val_ppl", "val_ppl" } },
  },
  rows = {
    { "GTU+GLU", 23.98, where = { { structure = "gtu+glu" }, { preset = "tnn-7/6" } } },
    { "GTU only", 25.19, where = { { structure = "gtu" }, { preset = "gtu-only-9" } } },
    { "Attention+GLU", 27.40,
      where = { { structure = "attention+glu", causal = false },
        { preset = "attention+glu-8" } } },
  },
  bytes_per_token = 4.5, -- WikiText-103 in byte pairs of GPT-2
  setting = { corpus = "wikitext-103-raw", tokenizer = "gpt2", dim = 512, expand = 3,
    glu_dim = 512, rpe_dim = 64, rpe_layers = 6, dropout = 0.1, length = 512, batch = 128,
    steps = 50000, lr = 5e-4, warmup = 4000, weight_decay = 0.2, clip = 1.0, decay = 0.99 },
  notes = {
    "Layers: GTU+GLU 7, GTU only 9, Attention+GLU 8 (to about 48.5 M parameters).",
    "The released Attention+GLU has no positional information and no causal mask: it sees "
      .. "the tokens that it is to predict. Here its row is answered by runs without a mask; "
      .. "runs with one stand below the table's rows. It also has one head, for which the slope "
      .. "of ALiBi is 1/256, next to no positions; with 4 heads, layout A and PyTorch's start it "
      .. "predicts better, and is what the second claim compares with.",
    "GTU+GLU and Attention+GLU are of layout B (a second shortcut inside the mixer), which "
      .. "differs from the released training script's; GTU only has the outer shortcut alone.",
    "Learning rate 5e-4 (Table 12 and the released scripts); Section 4.1 says 0.005. "
      .. "Gradients are clipped at norm 1.0, though Table 12 says '-'.",
  },
  claims = {
    { says = "GTU with GLU predicts better than GTU alone and than attention with GLU.",
      row = "GTU+GLU", over = { "GTU only", "Attention+GLU" }, column = "val", below = 1 },
    { says = "(Not in the paper, whose attention has one head and neither mask nor positions:) GTU "
        .. "with GLU predicts better than attention with a mask, ALiBi, and the heads and the "
        .. "layout of a Transformer.",
      row = "GTU+GLU",
      over = { structure = "attention+glu", positions = "alibi", layout = "A" },
      column = "val", below = 1 },
  },
}
