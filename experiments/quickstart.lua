-- quickstart.lua: how well does a small causal TNN, trained for three minutes, predict English
-- characters, at its training length and beyond?
local tl = require "toeplab"

local function ngram_orders(c)
  local orders = {}
  for order = c.ngram_first, c.ngram_last do orders[#orders + 1] = order end
  return orders
end

local function least(key, value, bound)
  if value < bound then error(("%s must be at least %s, not %s"):format(key, bound, value), 0) end
end

local function within(key, value, low, high)
  least(key, value, low)
  if value <= high then return end
  error(("%s must be at most %s, not %s"):format(key, high, value), 0)
end

local function corpus(c)
  return tl.corpus(c.corpus, { length = c.length, batch = c.batch, valid = 0.0, test = 0.05 })
end

-- Returns decay rates from low to high, evenly spaced in log(1 - decay), so that every channel
-- looks back by another distance.
local function decays(low, high, channels)
  local first, last, list = math.log(1 - low), math.log(1 - high), {}
  for i = 1, channels do
    local part = channels > 1 and (i - 1) / (channels - 1) or 0
    list[i] = 1 - math.exp(first + part * (last - first))
  end
  return list
end

return tl.experiment "quickstart" {
  fixed = {
    corpus = "bible-kjv",
    layers = 4, dim = 128, expand = 2, glu_dim = 192, mixer_norm = "simplermsnorm",
    rpe_dim = 32, rpe_layers = 2, rpe_input = "sincos",
    decay_low = 0.3, decay_high = 0.98,        -- channels look back a few to a few hundred letters
    backend = "rac",
    length = 256, batch = 8, steps = 2400,
    lr = 5e-3, warmup = 60, weight_decay = 0.1, clip = 1.0,
    lengths = { 256, 512, 1024, 2048 },        -- where the trained model is evaluated
    ngram_first = 4, ngram_last = 6,           -- orders of the n-grams to compare with
    prompt = "In the beginning", sample = 500, -- characters to generate
    temperature = 0.8,
  },

  scale = {
    smoke = {
      layers = 1, dim = 16, glu_dim = 16, rpe_dim = 8, rpe_layers = 1, length = 32, batch = 4,
      steps = 20, warmup = 5, lengths = { 32, 64 }, ngram_last = 4, sample = 40,
      corpus = "text:" .. ("In the beginning was the word, and the word was with us. "):rep(60),
    },
  },

  checkpoint = { seconds = 30 },

  check = function(c)
    for _, key in ipairs { "layers", "dim", "glu_dim", "length", "batch", "steps", "expand" } do
      least(key, c[key], 1)
    end
    within("ngram_first", c.ngram_first, 1, 32)
    within("ngram_last", c.ngram_last, 0, 32)
    least("lr", c.lr, 1e-12)
    for _, key in ipairs { "clip", "weight_decay", "warmup" } do least(key, c[key], 0) end
    for _, key in ipairs { "decay_low", "decay_high" } do within(key, c[key], 1e-4, 0.9999) end
    local data = corpus(c)
    for _, length in ipairs(c.lengths) do within("lengths", length, 1, data.test:numel()) end
    least("sample", c.sample, 0)
    within("temperature", c.temperature, 0, 1000000)
    least("the prompt's length", #c.prompt, 1)
    local known, why = pcall(data.vocab.encode, data.vocab, c.prompt)
    if not known then error(("prompt: %s"):format(why), 0) end
    tl.lm.check(c) -- an error if the model or the optimiser would refuse a key
  end,

  trial = function(t, c)
    local n = c.length
    local data = corpus(c)

    local model = tl.models.tnn_lm {
      vocab = data.vocab:size(), layers = c.layers, dim = c.dim, expand = c.expand,
      glu_dim = c.glu_dim, mixer_norm = c.mixer_norm, rpe_dim = c.rpe_dim,
      rpe_layers = c.rpe_layers, rpe_input = c.rpe_input, backend = c.backend,
      decay = decays(c.decay_low, c.decay_high, c.expand * c.dim),
    }
    local opt = tl.optim.adam(model, {
      kind = "adamw", betas = { 0.9, 0.98 }, lr = c.lr, weight_decay = c.weight_decay,
      clip = c.clip, schedule = "cosine", warmup = c.warmup, steps = c.steps, end_lr = 0.02 * c.lr,
    })
    t:say("%d characters to train on, %d to test on; %d parameters", data.train:numel(),
      data.test:numel(), model:count())

    -- The training loop. After a kill it resumes from the last checkpoint with bitwise equal
    -- results.
    for step in t:steps(c.steps, model, opt, data) do
      local ids = data:batch(step)                            -- [batch, n+1]
      local inputs, targets = ids:narrow(2, 1, n), ids:narrow(2, 2, n)
      opt:zero_grad()
      local loss = model:loss(inputs, targets)                -- nats per character
      loss:backward()
      local update = opt:step()
      t:log { loss = loss:item(), lr = update.lr, grad_norm = update.grad_norm }
    end

    for _, length in ipairs(c.lengths) do
      t:say("evaluating at length %d", length)
      t:log { ["bits@" .. length] = tl.eval.bits_per_token(model, data:stream "test", length,
        { batch_tokens = 8192 }) }
    end
    for _, order in ipairs(ngram_orders(c)) do
      t:log { ["bits of n-gram " .. order] =
        tl.ngram_bits(data.train, data.test, order, data.vocab:size()) }
    end
    t:text("sample", tl.generate(model, data.vocab, c.prompt,
      { tokens = c.sample, temperature = c.temperature, window = n }))
  end,

  -- Prints the bits per character on the last 5 % of the text, and the generated sample.
  report = function(trials, report)
    for _, t in ipairs(trials) do
      local c, rows = t.config, {}
      for _, length in ipairs(c.lengths) do
        local name = ("TNN at %d%s"):format(length, length == c.length and ", as trained" or "")
        rows[#rows + 1] = { name, t.metrics["bits@" .. length] }
      end
      for _, order in ipairs(ngram_orders(c)) do
        rows[#rows + 1] = { "n-gram of order " .. order, t.metrics["bits of n-gram " .. order] }
      end
      report.print({ "model", "bits per character" }, rows)
      print("\n" .. t.texts.sample .. "\n")
    end
  end,
}
