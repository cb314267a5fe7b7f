-- figure1b.lua: perplexity against evaluation length, as a figure.
return {
  title = "perplexity against evaluation length (right)",
  caption = "Extrapolation: the logarithm of the perplexity on the test part against the sequence "
    .. "length, of models that were trained at 512.",
  source = "Qin et al., Toeplitz Neural Network for Sequence Modeling, ICLR 2023, Figure 1, "
    .. "right, with the numbers of its Table 15",
  numbers = "tnn/table15",
  draw = "plot tnn-table2 --at ppl@ --by model --log xy",
}
