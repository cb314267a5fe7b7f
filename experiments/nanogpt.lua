-- nanogpt.lua: does this laboratory reach a published number that anyone can check in minutes?
-- nanoGPT's run for a laptop without a GPU: characters of tiny Shakespeare, where its README
-- (commit 3adf61e) reports a loss of 1.88 after 2,000 steps.
--
-- The row attention is that run: the same architecture, start, text, batches at random positions,
-- optimiser and schedule. There are three differences: the whole held-out tenth is scored, where
-- nanoGPT draws 20 batches (whose mean has a standard error of about 0.015); linear maps and norms
-- have biases; weight decay applies to all parameters, not only to matrices. TNN and FD have about
-- as many parameters, and attention's rate and schedule.
--
-- The held-out tenth chooses nothing: the state after the last step is scored. n-grams of the same
-- text (modified Kneser-Ney) serve as a baseline.
local tl = require "toeplab"

-- What nanoGPT's README reports, which every trial logs, so that a claim can compare with it
-- (results/published/field/nanogpt.lua).
local PUBLISHED = 1.88

return tl.experiment "nanogpt" {
  answers = "field/nanogpt",
  fixed = {
    corpus = "tinyshakespeare", tokenizer = "char", order = "random", valid = 0.1, test = 0.0,
    layers = 4, dim = 128, dropout = 0.0, embed_scale = false,
    length = 64, batch = 12, steps = 2000,
    kind = "adamw", betas = { 0.9, 0.99 }, weight_decay = 0.1, clip = 1.0,
    lr = 1e-3, schedule = "cosine", warmup = 100, end_lr = 1e-4,
  },
  rows = { model = {
    { "attention", mixer = "attention", heads = 4, channel = "ffn", glu_dim = 512, act = "gelu",
      norm = "layernorm", positions = "learned", max_length = 64, init = "bert" },
    { "tnn", expand = 2.0, glu_dim = 224, rpe_dim = 32, rpe_layers = 3, backend = "rac",
      decay = 0.99 },
    { "fd", expand = 2.0, glu_dim = 224, rpe_dim = 32, rpe_layers = 3, backend = "fd",
      decay = "none" },
  } },
  seeds = 3,
  scale = {
    smoke = {
      corpus = "text:" .. ("the old man told the moon a tale of the young sea .\n"):rep(60),
      layers = 1, dim = 16, glu_dim = 16, length = 16, batch = 2, steps = 6, warmup = 2,
    },
    laptop = {},
  },
  check = tl.lm.check,

  trial = function(t, c)
    local data = tl.corpus(c.corpus, c)
    local vocab = data.vocab:size()
    local model = tl.models.tnn_lm(vocab, c)
    local opt = tl.optim.adam(model, c)
    for step in t:steps(c.steps, model, opt, data) do
      local loss, info = tl.train.lm_step(model, opt, data:batch(step))
      t:log { loss = loss, lr = info.lr, grad_norm = info.grad_norm }
    end
    t:log { val_loss = tl.eval.nats_per_token(model, data:stream "valid", c.length),
      published_loss = PUBLISHED, parameters = (model:count()) }
    for name, order in pairs { bigram_loss = 2, fivegram_loss = 5 } do
      t:log { [name] = math.log(2)
        * tl.ngram_bits(data.train, data.valid, order, vocab, "kneser-ney") }
    end
  end,

  report = { rows = "model", columns = { "val_loss", "fivegram_loss", "parameters" } },
}
