-- state-tracking.lua: which token mixers track a state beyond the training lengths?
--
-- The word problem of a group (Merrill et al. 2024): tokens are elements of the group, and the
-- model predicts their product. z2 is parity, s3 the smallest group in which order matters, a5 the
-- smallest that is not solvable. Models are trained at 3 to 40 tokens, with a target after each,
-- and tested on the last target of 40 to 256 tokens. A linear time-invariant mixer, such as every
-- Toeplitz operator and S4, cannot solve any of these at all lengths, at any depth
-- (arXiv 2508.07395): rows that must fail check the task. The delta rule can, if its steps may
-- reflect a state, as they may here, and so can an LSTM, whose steps are not linear. Attention has
-- no positions: a causal mask shows the length.
local tl = require "toeplab"

local function options_of(c, vocab)
  return tl.overlay({ vocab = vocab, layers = c.layers, dim = c.dim, expand = c.expand,
    rpe_dim = c.rpe_dim, rpe_layers = c.rpe_layers, init = "torch" }, c.options)
end

return tl.experiment "state-tracking" {
  fixed = {
    least = 3, length = 40, test_least = 40, test_most = 256, layers = 2, dim = 32, expand = 2.0,
    rpe_dim = 16, rpe_layers = 1, batch = 32, steps = 3000, lr = 3e-3, warmup = 100,
    weight_decay = 0.1, valid = 512, test = 1024,
  },
  rows = { mixer = {
    { "tnn", options = { backend = "rac" } },
    { "fd", options = { backend = "fd", decay = "none" } },
    { "s4d", options = { mixer = "s4d" } },
    { "attention", options = { mixer = "attention", positions = "none" } },
    { "mamba", options = { mixer = "mamba" } },
    { "gla", options = { mixer = "gla" } },
    { "delta-net", options = { mixer = "delta_net", mixer_options = { beta_max = 2 } } },
    { "lstm", options = { mixer = "lstm" } },
  } },
  grid = { group = { "z2", "s3", "a5" } },
  seeds = 3,
  tune = { key = "lr", values = { 1e-3, 3e-3, 1e-2 }, metric = "val_accuracy", seed = 101,
    fixed = { test = 64 }, without = { "smoke", "paper" } },
  success = { metric = "test_accuracy", above = 0.9 },
  scale = {
    smoke = { length = 8, test_least = 8, test_most = 16, layers = 1, dim = 8, rpe_dim = 8,
      batch = 8, steps = 6, warmup = 2, valid = 16, test = 16, group = { "z2", "s3" } },
    laptop = {},
    -- The settings of xLSTM's published runs; 8,192 examples to test with.
    paper = { dim = 128, rpe_dim = 64, batch = 256, steps = 20000, lr = 1e-3, test = 8192 },
  },

  trial = function(t, c)
    local data = tl.recall.state_tracking { group = c.group, least = c.least, most = c.length,
      test_least = c.test_least, test_most = c.test_most, batch = c.batch, valid = c.valid,
      test = c.test }
    local model = tl.models.tnn_lm(options_of(c, data.vocab))
    local opt = tl.optim.adam(model, { kind = "adamw", lr = c.lr, weight_decay = c.weight_decay,
      clip = 1.0, schedule = "cosine", warmup = c.warmup, steps = c.steps })
    local every = math.max(c.steps // 8, 1)
    for step in t:steps(c.steps, model, opt) do
      local loss, info = tl.recall.step(model, opt, data:batch(step))
      t:log { loss = loss, lr = info.lr }
      if step % every == 0 or step == c.steps then
        t:log { val_accuracy = tl.recall.accuracy(model, data, "valid", 64) }
      end
    end
    local accuracy, nats = tl.recall.accuracy(model, data, "test", 64)
    t:log { test_accuracy = accuracy, test_loss = nats, chance = 1 / data.vocab,
      parameters = (model:count()) }
  end,

  report = { rows = { "group", "mixer" },
    columns = { "test_accuracy", "val_accuracy", "chance", "parameters" } },
}
