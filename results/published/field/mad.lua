-- mad.lua: the scores of several token mixers on MAD, collected from three sources.
return {
  title = "MAD",
  caption = "Scores on the six synthetic tasks of MAD: of each setting the best test accuracy of "
    .. "three learning rates and two weight decays, averaged over the settings of the task. The "
    .. "letter behind a name says where its numbers were read.",
  source = "several papers, see below; collected in November 2026",
  instead = "numbers of several papers; experiments/mad.lua prints the score of ours, a best of "
    .. "six runs, which a table of means does not have",
  rows_are = "model",
  columns = {
    { id = "compression", name = "compression", better = "higher", unit = "%" },
    { id = "fuzzy", name = "fuzzy recall", better = "higher", unit = "%" },
    { id = "recall", name = "in-context recall", better = "higher", unit = "%" },
    { id = "memorization", name = "memorization", better = "higher", unit = "%" },
    { id = "noisy", name = "noisy recall", better = "higher", unit = "%" },
    { id = "copying", name = "selective copying", better = "higher", unit = "%" },
    { id = "mean", name = "mean", better = "higher", unit = "%" },
  },
  rows = {
    { "Transformer [D]", 51.6, 29.8, 94.1, 85.2, 86.8, 99.6, 74.5 },
    { "Hyena [D]", 45.2, 7.9, 81.7, 89.5, 78.8, 93.1, 66.0 },
    { "multihead Hyena [D]", 44.8, 14.4, 99.0, 89.4, 98.6, 93.0, 73.2 },
    { "Mamba [D]", 52.7, 6.7, 90.4, 89.5, 90.1, 86.3, 69.3 },
    { "GLA [D]", 38.8, 6.9, 80.8, 63.3, 81.6, 88.6, 60.0 },
    { "DeltaNet [D]", 42.2, 35.7, 100, 52.8, 100, 100, 71.8 },
    { "multihead Hyena [M]", false, false, false, false, false, false, 73.72 },
    { "Mamba [M]", false, false, false, false, false, false, 67.27 },
    { "GLA [M]", false, false, false, false, false, false, 63.33 },
    { "MetaLA [M]", false, false, false, false, false, false, 73.98 },
    { "Transformer [B]", 43.2, 56.5, 90.5, 78.8, 89.7, 99.8, 76.4 },
    { "Mamba [B]", 49.1, 12.3, 99.3, 89.6, 99.7, 88.7, 73.1 },
    { "GLA [B]", 40.8, 15.5, 91.8, 77.1, 93.1, 89.1, 67.9 },
    { "DeltaNet [B]", 39.6, 39.3, 99.9, 39.4, 99.9, 99.7, 69.7 },
  },
  setting = { layers = 2, dim = 128, batch = 128, epochs = 200, test = 1280 },
  notes = {
    "[D] the DeltaNet paper (arXiv 2406.06484), [M] MetaLA's Table A6 (arXiv 2411.10741), [B] "
      .. "https://github.com/HassanJbara/lin-attn-bench at bf9f49a, branch mad.",
    "The sources follow one protocol, github.com/athms/mad-lab, and differ by up to 27 points "
      .. "for one model and task: compare models of one source only.",
    "No Toeplitz operator is among them.",
  },
}
