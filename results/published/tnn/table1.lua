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
    { "CNN", "n e d", "n d", "yes" },
    { "RNN", "n d^2", "n d", "no" },
    { "Vanilla Attention", "n^2 d", "n^2 d", "yes" },
    { "Linear Attention", "n d^2", "n d", "yes" },
    { "MLP", "n^2 d", "n^2 d", "yes" },
    { "FFT", "n d log n", "n d", "yes" },
    { "State space", "n d log n", "n d", "yes" },
    { "TNN", "n d log n", "n d", "yes", where = { backend = { "fft", "rac" } } },
  },
  notes = {
    "The numbers measured here are exponents e of n^e, fitted to the lengths from 1,024 on, where "
      .. "n log n is as n^1.1; the backends that are not the paper's have rows of their own.",
  },
}
