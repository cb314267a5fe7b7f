-- figure4.lua: frequency and impulse responses of FD, for three activations.
return {
  title = "responses of a random FD encoder with GeLU",
  caption = "Frequency and impulse responses for a randomly initialized FD RPE MLP with GeLU "
    .. "activations.",
  source = "Moreno, Mei, Walters, SKI to go Faster, 2023, Figure 4",
  rows_are = "figure",
  columns = {
    { id = "settled", name = "lags to under 1 % of the largest", better = "lower",
      metrics = { "settled" } },
    { id = "exponent", name = "e of |t_j| as j^e", metrics = { "exponent" } },
    { id = "floor", name = "j^2 |t_j|", metrics = { "floor" } },
  },
  rows = {
    { "Figure 4: at random, GeLU", "drawn", "drawn", "drawn", where = { response = "gelu" } },
    { "Figure 5: at random, SiLU", "drawn", "drawn", "drawn", where = { response = "silu" } },
    { "Figure 6: trained, ReLU", "drawn", "drawn", "drawn", where = { response = "trained" } },
  },
  notes = {
    "The paper draws curves on linear axes, from which the decay cannot be read; the numbers "
      .. "measured here say how it goes on. The experiment draws both.",
  },
}
