-- mlm.lua: how well do small bidirectional TNNs, SKI-TNNs and FD-TNNs predict the masked tokens of
-- WikiText-2, trained alike? (SKI, Figures 8 and 9)
--
-- Needs toeplab data fetch wikitext-2. The tokens are 1,024 byte pairs learnt from that text, so
-- that a step spends most of its time in the blocks and not in the output map. scale=paper has the
-- published text, sizes, steps and learning rates: GPT-2's byte pairs of WikiText-103, which need
-- toeplab data fetch wikitext-103-raw gpt2-bpe. Its encoders have 3 layers, as in Figure 9; the TNN
-- of TNN's Figure 3 has rpe_layers=6.
local tl = require "toeplab"

local function ski(name, as_published)
  return { name, backend = "ski", encoder = "piecewise", decay = "none", backend_options = {
    inducing = 32, taps = 16, lambda = 0.99, as_published = as_published } }
end

return tl.experiment "mlm" {
  answers = { "ski/figure8", "ski/figure9", "tnn/figure3" },
  fixed = {
    small = true, corpus = "wikitext-2", tokenizer = "bpe", vocab_size = 1024,
    layers = 2, dim = 128, expand = 2.0, rpe_dim = 32, rpe_layers = 3, dropout = 0.0,
    backend = "rac", encoder = "mlp", decay = 0.99, published_rate = 1,
    length = 128, batch = 32, micro = 32, steps = 3000, evaluations = 8, valid_batches = 20,
    lr = 2e-3, warmup = 300, weight_decay = 0.01, clip = 1.0,
  },
  -- SKI and FD have no decay. FD was published with twice the learning rate, which it has where
  -- models are not small.
  rows = { model = { { "tnn" }, ski("ski", false), ski("ski-published", true),
    { "fd", backend = "fd", decay = "none", published_rate = 2 } } },
  seeds = 5,
  tune = { key = "lr", values = { 1e-3, 2e-3, 4e-3, 8e-3 }, metric = "best_val_ppl", seed = 101,
    fixed = { steps = 1000 }, without = { "smoke", "quick", "paper" } },

  scale = {
    smoke = tl.mlm.sizes("smoke", {
      tokenizer = "word", backend_options = { inducing = 4, taps = 4 }, length = 32, batch = 4,
      micro = 2, steps = 12, warmup = 2, evaluations = 2,
    }),
    quick = { steps = 400, warmup = 40, seeds = 3 },
    laptop = {},
    paper = {
      small = false, corpus = "wikitext-103-raw", tokenizer = "gpt2", layers = 12, dim = 768,
      expand = 3.0, rpe_dim = 64, rpe_layers = 3, dropout = 0.1, length = 512, batch = 512,
      micro = 4, steps = 50000, warmup = 3000, lr = 5e-4, weight_decay = 0.2, evaluations = 100,
      valid_batches = 1000000,
    },
  },

  check = tl.mlm.check,

  trial = function(t, c)
    local times = c.small and 1 or c.published_rate
    tl.mlm.trial(t, tl.options.over(c, { lr = c.lr * times }), tl.mlm.options)
  end,

  report = { rows = "model",
    columns = { "best_val_ppl", "test_ppl", "steps_per_second", "peak_mib", "parameters" } },
}
