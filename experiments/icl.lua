-- icl.lua: which token mixers recall earlier tokens, at the setting in which published code reports
-- all of its models, and does this laboratory reach those numbers?
--
-- Associative recall and induction heads (Fu et al. 2023, H3) as the code of seq_icl (commit
-- ec42595, after HazyResearch/safari) runs them: 5,000 fixed examples of 20 kinds of tokens, 400
-- epochs of batches of 32, two layers of 32 channels with feed-forward layers of 128, dropout 0.1
-- on the embedding and, in attention, on its weights. All tokens are training targets; only the
-- answer is scored, after the last step.
--
-- The rows attention and s4d are its Transformer and S4D. Differences: test and validation examples
-- are distinct; weight decay applies to all parameters, S4D's too; residual branches do not start
-- smaller; the cosine begins after the warm-up. H3, GILR and LRU have no mixer here; hyena has
-- H3's gated convolutions. TNN and FD have GTUs and GLUs of about the same size. All models share
-- one learning rate, which was not tuned for them.
--
-- From the published start of linear maps, N(0, 0.02), a Transformer can stay for thousands of
-- steps at the level of guessing among the values of an example, a quarter of the answers: it still
-- did after 8,000 of the 62,800 steps. init=torch lr=1e-3 steps=6000 warmup=600 answers 0.974 of
-- associative recall.
local tl = require "toeplab"

-- The accuracy that the code's README reports, which trials log, so that a claim can compare with
-- it (results/published/field/icl.lua).
local PUBLISHED = {
  associative_recall = { attention = 1.0, s4d = 0.324 },
  induction_heads = { attention = 0.972, s4d = 0.088 },
}

local plain = { channel = "ffn", glu_dim = 128, act = "gelu_tanh", init = "bert" }
local gated = { expand = 2.0, channel = "glu", glu_dim = 84, rpe_dim = 32, rpe_layers = 3 }

return tl.experiment "icl" {
  answers = "field/icl",
  fixed = {
    vocab = 20, train = 5000, valid = 500, test = 500, batch = 32, steps = 62800,
    layers = 2, dim = 32, dropout = 0.1, layer_dropout = 0.0, norm = "layernorm",
    embed_scale = false, kind = "adamw", weight_decay = 0.1, lr = 5e-4, warmup = 6280,
  },
  rows = {
    model = {
      tl.overlay({ "attention", mixer = "attention", mixer_options = { dropout = 0.1 },
        positions = "learned", max_length = 64 }, plain),
      tl.overlay({ "s4d", mixer = "s4d", mixer_options = { state = 64 } }, plain),
      tl.overlay({ "hyena", mixer = "hyena", mixer_options = { length = 42 } }, plain),
      tl.overlay({ "tnn", backend = "rac", decay = 0.99 }, gated),
      tl.overlay({ "fd", backend = "fd", decay = "none" }, gated),
    },
    task = {
      { "associative_recall", length = 40, schedule = "polynomial", end_lr = 0.0 },
      { "induction_heads", length = 30, schedule = "cosine", end_lr = 5e-5 },
    },
  },
  seeds = 3,
  success = { metric = "test_accuracy", above = 0.9 },
  scale = {
    smoke = { train = 20, valid = 16, test = 16, batch = 8, steps = 6, layers = 1, warmup = 2 },
    laptop = {},
  },

  trial = function(t, c)
    local data = tl.recall[c.task] { vocab = c.vocab, length = c.length, train = c.train,
      valid = c.valid, test = c.test, batch = c.batch }
    local model = tl.models.tnn_lm(c.vocab, c)
    local opt = tl.optim.adam(model, c)
    local every = math.max(c.steps // 20, 1)
    for step in t:steps(c.steps, model, opt) do
      local loss, info = tl.recall.step(model, opt, data:batch(step))
      t:log { loss = loss, lr = info.lr }
      if step % every == 0 or step == c.steps then
        t:log { val_accuracy = tl.recall.accuracy(model, data, "valid", 100) }
      end
    end
    local accuracy, nats = tl.recall.accuracy(model, data, "test", 100)
    t:log { test_accuracy = accuracy, test_loss = nats, parameters = (model:count()),
      published_accuracy = PUBLISHED[c.task][c.model] }
  end,

  report = { rows = { "task", "model" },
    columns = { "test_accuracy", "published_accuracy", "val_accuracy", "parameters" } },
}
