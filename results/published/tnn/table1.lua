-- table1.lua: theoretical complexity of sequence models.
return {
  title = "theoretical complexity of sequence models",
  caption = "Comparison of theoretical space-time complexity of several models. n is the sequence "
    .. "length, d the feature dimension, e the CNN's kernel size.",
  source = "Qin et al., Toeplitz Neural Network for Sequence Modeling, ICLR 2023, Table 1",
  rows_are = "method",
  columns = {
    { id = "time", name = "time complexity", metrics = { "time_exponent" } },
    { id = "space", name = "space complexity", metrics = { "memory_exponent" } },
    { id = "parallel", name = "parallel training" },
  },
  rows = {
    { "CNN", "n e d", "n d", "yes", where = { mixer = "conv" } },
    { "RNN", "n d^2", "n d", "no", where = { mixer = "gru" } },
    { "Vanilla Attention", "n^2 d", "n^2 d", "yes", where = { mixer = "attention" } },
    { "Linear Attention", "n d^2", "n d", "yes", where = { mixer = "linear_attention" } },
    { "MLP", "n^2 d", "n^2 d", "yes", where = { mixer = "gmlp" } },
    { "FFT", "n d log n", "n d", "yes", where = { mixer = "fnet" } },
    { "State space", "n d log n", "n d", "yes", where = { mixer = "s4" } },
    { "TNN", "n d log n", "n d", "yes",
      where = { { mixer = { "fft", "rac" } }, { backend = { "fft", "rac" } } } },
  },
  notes = {
    "The numbers measured here are exponents e of n^e, fitted to the lengths from 1,024 on, where "
      .. "n log n is as n^1.1; the backends that are not the paper's have rows of their own.",
    "Our attention takes memory in n, because it computes the scores in "
      .. "blocks; State space is S4, RNN a GRU, MLP gMLP and FFT FNet.",
  },
}
