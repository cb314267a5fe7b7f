-- tnn-lm.lua: do the language models of TNN's Tables 2 and 7 to 10, trained on WikiText-103 as they
-- were, reach the published perplexities, at the training length and beyond it?
--
-- It takes WikiText-103 (toeplab data fetch wikitext-103-raw gpt2-bpe) and a machine that makes
-- 3.3e9 tokens in a time one can wait for. preset=gtu-only-9,without-rpe-5 trains other rows;
-- toeplab model tnn_lm --presets lists them.
local tl = require "toeplab"

return tl.experiment "tnn-lm" {
  answers = "tnn/table2",
  fixed = {
    corpus = "wikitext-103-raw", tokenizer = "gpt2", vocab_size = 8192, -- of tokenizer bpe
    layers = 0, dim = 512,                          -- layers 0: those of the preset
    backend = "rac",
    length = 512, batch = 128, micro = 8, steps = 50000,
    kind = "fairseq", betas = { 0.9, 0.98 }, eps = 1e-8,      -- of Adam
    weight_decay = 0.2, clip = 1.0,                           -- TNN; the papers' others: 0.1
    lr = 5e-4, schedule = "inverse_sqrt", warmup = 4000, warmup_init_lr = 1e-7,
    lengths = { 512, 768, 1024, 1280, 1536, 1792, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 9216,
      10240, 11264, 12288, 13312, 14336 },
  },
  grid = { preset = { "tnn-7/6" } },

  scale = {
    smoke = {
      layers = 1, dim = 16, length = 16, batch = 4, micro = 2, steps = 20, warmup = 5,
      lengths = { 16, 32 }, tokenizer = "bpe", vocab_size = 270,
      corpus = "text:" .. ("the old man told the moon a tale of the young sea .\n"):rep(240),
    },
  },

  checkpoint = { seconds = 600 },

  trial = function(t, c)
    local data = tl.corpus(c.corpus, c)
    data:check_lengths("valid", { c.length })
    data:check_lengths("test", c.lengths)
    local blocks = tl.blocks(data:stream "train", c)
    local model = tl.models.tnn_lm(tl.models.preset(c.preset, {
      vocab = data.vocab:size(), dim = c.dim, layers = c.layers > 0 and c.layers or nil,
      backend = c.backend,
    }))
    local opt = tl.train.graph(model, tl.optim.adam(model, c))
    t:say("%d tokens to train on; %d parameters; %d updates in an epoch", blocks.targets,
      model:count(), blocks:steps())

    for step in t:steps(c.steps, model, opt, data) do
      local loss, info = tl.train.lm_step(model, opt, blocks:batch(step))
      t:log { loss = loss, lr = info.lr, grad_norm = info.grad_norm }
      if blocks:ends_epoch(step) or step == c.steps then
        local ppl = tl.eval.perplexity(model, data:stream "valid", c.length)
        t:log { val_ppl = ppl }
        t:best(ppl)
      end
    end

    local step, ppl = t:load_best()
    t:log { best_step = step, best_val_ppl = ppl, parameters = (model:count()) }
    local sum = 0.0
    for _, length in ipairs(c.lengths) do
      t:say("evaluating at length %d", length)
      local at = tl.eval.perplexity(model, data:stream "test", length, { batch_tokens = 1 })
      t:log { ["ppl@" .. length] = at }
      if length == c.length then t:log { test_ppl = at } end
      sum = sum + at
    end
    t:log { mean_extrapolation_ppl = sum / #c.lengths }
  end,

  report = { rows = "preset",
    columns = { "parameters", "best_val_ppl", "test_ppl", "mean_extrapolation_ppl" } },
}
