-- mqar.lua: how wide must a token mixer be to recall the value of a key that it has seen?
--
-- Multi-query associative recall (Arora et al. 2023, Zoology, Figure 2), by models of two layers
-- whose width is swept, on fresh examples at every step. A model first learns which values an
-- example has, and so answers one in `pairs` right; thousands of steps may pass before it learns
-- which of them belongs to a key, and then it soon answers all. So at scale laptop each model has
-- the best of three learning rates for its width after all of the steps, and the task is short
-- enough for that; at scale paper all rates are run, in rows of their own, and the paper takes the
-- best.
local tl = require "toeplab"

-- The token mixers by name, as options of the model. Attention needs positions to find a key's
-- neighbour; the others have them in their coefficients or states.
local mixers = {
  tnn = { backend = "rac" },
  fd = { backend = "fd", decay = "none" },
  ski = { backend = "ski", encoder = "piecewise", decay = "none" },
  attention = { mixer = "attention", positions = "sinusoidal" },
  hyena = { mixer = "hyena" },
  mamba = { mixer = "mamba" },
}

local function names()
  local list = {}
  for name in pairs(mixers) do list[#list + 1] = name end
  table.sort(list)
  return table.concat(list, ", ")
end

local function options_of(c)
  local o = {
    vocab = c.vocab, layers = c.layers, dim = c.dim, expand = c.expand, rpe_dim = c.rpe_dim,
    rpe_layers = c.rpe_layers, init = "torch",
  }
  for key, value in pairs(mixers[c.mixer]) do o[key] = value end
  if c.mixer == "ski" then
    o.backend_options = { inducing = math.min(c.inducing, c.length), taps = c.taps, lambda = 0.99 }
  end
  if c.mixer == "hyena" then o.mixer_options = { length = c.length } end
  return o
end

return tl.experiment "mqar" {
  fixed = {
    vocab = 64, length = 32, pairs = 4, layers = 2, expand = 2.0, rpe_dim = 16, rpe_layers = 1,
    inducing = 16, taps = 16, batch = 64, steps = 10000, lr = 3e-3, warmup = 100,
    weight_decay = 0.1, valid = 500, test = 1000,
  },
  grid = {
    mixer = { "tnn", "fd", "ski", "attention", "hyena", "mamba" }, dim = { 16, 32, 64 },
  },
  seeds = 3,
  tune = { key = "lr", values = { 1e-3, 3e-3, 1e-2 }, metric = "val_accuracy",
    seed = 101, fixed = { test = 64 }, without = { "smoke", "paper" } },
  scale = {
    smoke = {
      vocab = 32, length = 16, pairs = 2, layers = 1, dim = { 8, 16 }, rpe_dim = 8,
      inducing = 4, taps = 4, batch = 8, steps = 6, warmup = 2, valid = 16, test = 16,
    },
    laptop = {},
    paper = {
      vocab = 8192, length = 256, pairs = 16, dim = { 64, 128, 256, 512 },
      lr = { 1e-4, 4.6e-4, 2.2e-3, 1e-2 }, steps = 100000, batch = 64, test = 3000,
    },
  },

  check = function(c)
    if not mixers[c.mixer] then error("mixer: known are " .. names(), 0) end
  end,

  trial = function(t, c)
    local data = tl.recall.mqar { vocab = c.vocab, length = c.length, pairs = c.pairs,
      batch = c.batch, valid = c.valid, test = c.test }
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

  report = { rows = { "mixer", "dim", "lr" },
    columns = { "test_accuracy", "val_accuracy", "parameters" } },
}
