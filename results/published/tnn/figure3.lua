-- figure3.lua: Toeplitz matrices of the layers of a trained bidirectional model.
return {
  title = "Toeplitz matrices of a trained model's layers",
  caption = "Visualization of the Toeplitz matrix used by each layer in Roberta; each element of "
    .. "the matrix represents the interaction between tokens.",
  source = "Qin et al., Toeplitz Neural Network for Sequence Modeling, ICLR 2023, Figure 3",
  rows_are = "layer",
  columns = { { id = "matrix", name = "matrix" } },
  rows = { { "1 to 12", "drawn" } },
  draw = "plot mlm model=tnn seed=1 matrix",
  notes = {
    "The paper does not say how its picture reduces the channels of a layer to one matrix. Ours "
      .. "is the mean over channels; plot --channel N draws single ones.",
  },
}
