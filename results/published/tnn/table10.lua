-- table10.lua: exponential decay rates.
return {
  title = "exponential decay rates",
  caption = "Ablation of exponential decay rates in input length extrapolation. The model "
    .. "variants are trained on a fixed sequence length of 512 and tested on a series of "
    .. "sequence lengths ranging from 512 to 14336. We compute the average PPL for all "
    .. "sequence lengths.",
  source = "Qin et al., Toeplitz Neural Network for Sequence Modeling, ICLR 2023, Table 10",
  rows_are = "decay rate",
  columns = {
    { id = "val", name = "PPL (val)", better = "lower",
      metrics = { "best_val_ppl", "val_ppl" } },
    { id = "extrapolation", name = "Avg PPL (extrapolation)", better = "lower",
      metrics = { "mean_extrapolation_ppl" } },
  },
  rows = {
    { "0.99 (ours)", 23.98, 23.70,
      where = { { decay = 0.99 }, { preset = { "tnn-7/6", "decay-0.99" } } } },
    { "0.90", 25.28, 25.22, where = { { decay = 0.9 }, { preset = "decay-0.90" } } },
    { "0.95", 24.56, 24.63, where = { { decay = 0.95 }, { preset = "decay-0.95" } } },
    { "0.999", 23.98, 24.56, where = { { decay = 0.999 }, { preset = "decay-0.999" } } },
    { "1 (no decay)", 24.03, 672.72,
      where = { { decay = { "none", 1 } }, { preset = "no-decay" } } },
    { "learnable", 27.65, 24.39,
      where = { { decay = "learnable" }, { preset = "learnable-decay" } } },
  },
  bytes_per_token = 4.5, -- WikiText-103 in byte pairs of GPT-2
  setting = { corpus = "wikitext-103-raw", tokenizer = "gpt2", layers = 7, dim = 512, expand = 3,
    glu_dim = 512, rpe_dim = 64, rpe_layers = 6, dropout = 0.1, length = 512, batch = 128,
    steps = 50000, lr = 5e-4, warmup = 4000, weight_decay = 0.2, clip = 1.0, lengths = { 512,
    768, 1024, 1280, 1536, 1792, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 9216, 10240, 11264,
    12288, 13312, 14336 } },
  notes = {
    "learnable: 27.65 at 512 on the validation part against a mean of 24.39 on the test "
      .. "part; every other row differs by less than 0.6. Probably a misprint (24.65?).",
    "The average is the plain mean over the 19 lengths of Table 15, on the test part.",
    "The learnable decay is sigmoid(3 + N(0,1)) per channel at the start.",
    "All rows have a second shortcut inside the GTU (layout B), which the released "
      .. "training script has not.",
    "7 layers, though its Table 13 says 6: only 7 make 48.68 M parameters.",
    "Learning rate 5e-4 (Table 12 and the released scripts); Section 4.1 says 0.005. "
      .. "Gradients are clipped at norm 1.0, though Table 12 says '-'.",
  },
  claims = {
    { says = "At the training length the model without decay is as good as with 0.99: within 2 %.",
      row = "1 (no decay)", over = "0.99 (ours)", column = "val", within = 1.02 },
    { says = "At the training length 0.999 is as good as 0.99: within 2 %.",
      row = "0.999", over = "0.99 (ours)", column = "val", within = 1.02 },
    { says = "Without decay the model fails to extrapolate: its perplexity at 16 times the training "
        .. "length, and the mean over the lengths, is more than 1.5 times that with 0.99.",
      row = "1 (no decay)", over = "0.99 (ours)", metric = { "ppl@16x", "mean_extrapolation_ppl" },
      above = 1.5 },
    { says = "A stronger decay than 0.99 predicts worse at the training length.",
      row = "0.99 (ours)", over = { "0.90", "0.95" }, column = "val", below = 1 },
    { says = "0.99 has the lowest mean over the lengths.",
      row = "0.99 (ours)", over = { "0.90", "0.95", "0.999", "learnable" },
      column = "extrapolation", below = 1 },
    { says = "A learnable decay is not better than 0.99, by more than 2 %.",
      row = "learnable", over = "0.99 (ours)", column = { "val", "extrapolation" }, above = 0.98 },
  },
}
