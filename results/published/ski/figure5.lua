-- figure5.lua: frequency and impulse responses of a random FD encoder with SiLU.
return {
  title = "responses of a random FD encoder with SiLU",
  caption = "Frequency and impulse responses for a randomly initialized FD RPE MLP with SiLU "
    .. "activations.",
  source = "Moreno, Mei, Walters, SKI to go Faster, 2023, Figure 5",
  numbers = "ski/figure4",
}
