-- mqar.lua: how wide must a token mixer be to recall the value of a key that it has seen?
--
-- Multi-query associative recall (Arora et al. 2023, Zoology, Figure 2), with models of two layers
-- of varying width. A model first learns which values an example has, and so answers one in `pairs`
-- right. Thousands of steps may pass before it learns which of them belongs to a key; then it soon
-- answers all. So at scale laptop each model has the best of three learning rates for its width
-- after all of the steps, on fresh examples at every step, and the task is short enough for that.
--
-- Scale zoology is the setting of the paper's released code: 64 epochs of 100,000 fixed examples of
-- 64 to 256 tokens with 4 to 16 pairs, token 0 between the queries, no channel mixer, dropout 0.1
-- on the embedding. The paper takes the best of four rates;
-- lr=1e-4,4.6416e-4,2.1544e-3,1e-2 runs them as separate rows. Differences: the paper's runs end
-- once the accuracy exceeds 0.99, ours run all epochs; attention's weights have no dropout here.
local tl = require "toeplab"

local function options_of(c)
  return tl.overlay({
    vocab = c.vocab, layers = c.layers, dim = c.dim, expand = c.expand, rpe_dim = c.rpe_dim,
    rpe_layers = c.rpe_layers, init = "torch", channel = c.channel, dropout = c.dropout,
    layer_dropout = 0.0,
    mixer_options = c.mixer == "hyena" and { length = c.length } or nil,
  }, c.options)
end

return tl.experiment "mqar" {
  fixed = {
    vocab = 64, filler = "random", train = 0, layers = 2, expand = 2.0, rpe_dim = 16,
    rpe_layers = 1, channel = "glu", dropout = 0.0, lr = 3e-3, warmup = 100, weight_decay = 0.1,
    valid = 500, test = 1000,
  },
  zip = { length = { 32 }, pairs = { 4 }, batch = { 64 }, steps = { 10000 } },
  -- Attention needs positions to find a key's neighbour; the others have them in their coefficients
  -- or states.
  rows = { mixer = {
    { "tnn", options = { backend = "rac" } },
    { "fd", options = { backend = "fd", decay = "none" } },
    { "ski", options = { backend = "ski", encoder = "piecewise", decay = "none",
      backend_options = { inducing = 16, taps = 16, lambda = 0.99 } } },
    { "attention", options = { mixer = "attention", positions = "sinusoidal" } },
    { "tnn+attention", options = { mixer = { "gtu", "attention" }, backend = "rac" } },
    { "hyena", options = { mixer = "hyena" } },
    { "mamba", options = { mixer = "mamba" } },
  } },
  grid = { dim = { 16, 32, 64 } },
  seeds = 3,
  tune = { key = "lr", values = { 1e-3, 3e-3, 1e-2 }, metric = "val_accuracy",
    seed = 101, fixed = { test = 64 }, without = { "smoke", "zoology" } },
  success = { metric = "test_accuracy", above = 0.8 },
  scale = {
    smoke = {
      vocab = 32, length = { 16 }, pairs = { 2 }, layers = 1, dim = { 8, 16 }, rpe_dim = 8,
      batch = { 8 }, steps = { 6 }, warmup = 2, valid = 16, test = 16,
      options = { backend_options = { inducing = 4, taps = 4 } },
    },
    laptop = {},
    zoology = {
      vocab = 8192, filler = "zero", train = 100000, channel = "none", dropout = 0.1, warmup = 0,
      rpe_dim = 32, rpe_layers = 3, dim = { 64, 128, 256, 512 }, seeds = 1, test = 3000,
      length = { 64, 128, 256 }, pairs = { 4, 8, 16 }, batch = { 512, 512, 256 },
      steps = { 64 * 196, 64 * 196, 64 * 391 },
    },
  },

  trial = function(t, c)
    local data = tl.recall.mqar { vocab = c.vocab, length = c.length, pairs = c.pairs,
      filler = c.filler, train = c.train > 0 and c.train or nil, batch = c.batch, valid = c.valid,
      test = c.test }
    local model = tl.models.tnn_lm(options_of(c))
    local opt = tl.optim.adam(model, { kind = "adamw", lr = c.lr, weight_decay = c.weight_decay,
      clip = 1.0, schedule = "cosine", warmup = c.warmup, steps = c.steps })
    local every = math.max(c.steps // 8, 1)
    for step in t:steps(c.steps, model, opt) do
      local loss, info = tl.recall.step(model, opt, data:batch(step))
      t:log { loss = loss, lr = info.lr }
      if step % every == 0 or step == c.steps then
        t:log { val_accuracy = tl.recall.accuracy(model, data, "valid", c.batch) }
      end
    end
    local accuracy, nats = tl.recall.accuracy(model, data, "test", c.batch)
    t:log { test_accuracy = accuracy, test_loss = nats, parameters = (model:count()) }
  end,

  report = { rows = { "mixer", "length", "dim", "lr" },
    columns = { "test_accuracy", "val_accuracy", "parameters" } },
}
