-- figure6.lua: frequency and impulse responses of a trained FD encoder with ReLU.
return {
  title = "responses of a trained FD encoder with ReLU",
  caption = "Frequency and impulse responses from an FD RPE MLP with ReLU activations, taken from "
    .. "one layer of a trained FD TNN.",
  source = "Moreno, Mei, Walters, SKI to go Faster, 2023, Figure 6",
  numbers = "ski/figure4",
}
