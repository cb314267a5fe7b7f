-- tnn-lm.lua: do the language models of TNN's Tables 2 and 7 to 10, trained on WikiText-103 as they
-- were, reach the published perplexities, at the training length and beyond it?
--
-- It takes WikiText-103 (toeplab data fetch wikitext-103-raw gpt2-bpe) and a machine that makes
-- 3.3e9 tokens in a time one can wait for. preset=gtu-only-9,without-rpe-5 trains other rows;
-- toeplab model tnn_lm --presets lists them.
local tl = require "toeplab"

local words = ("the old man of the sea told the young man a tale of the sea .\n"
  .. "the young man told it to the moon , and the moon to the old sea .\n"):rep(60)

-- Lengths that the parts do not have are told before the training, not after it.
local function check_lengths(data, length, lengths)
  local function check(part, n)
    local tokens = data[part] and data[part]:numel() or 0
    if n >= 1 and n <= tokens then return end
    error(("length %d is not from 1 to %d, the tokens of the %s part"):format(n, tokens, part), 0)
  end
  check("valid", length)
  for _, n in ipairs(lengths) do check("test", n) end
end

return tl.experiment "tnn-lm" {
  answers = "tnn/table2",
  fixed = {
    corpus = "wikitext-103-raw", tokenizer = "gpt2", vocab_size = 0, -- of tokenizer bpe
    layers = 0, dim = 512,                          -- layers 0: those of the preset
    backend = "fft",
    length = 512, batch = 128, micro = 8, steps = 50000,
    lr = 5e-4, warmup = 4000, weight_decay = 0.2, clip = 1.0, -- the papers' others: 0.1
    lengths = { 512, 768, 1024, 1280, 1536, 1792, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 9216,
      10240, 11264, 12288, 13312, 14336 },
  },
  grid = { preset = { "tnn-7/6" } },

  scale = {
    smoke = {
      corpus = "text:" .. words, tokenizer = "bpe", vocab_size = 270, layers = 1, dim = 16,
      length = 16, batch = 4, micro = 2, steps = 20, warmup = 5, lengths = { 16, 32 },
    },
  },

  checkpoint = { seconds = 600 },

  trial = function(t, c)
    local n = c.length
    local data = tl.corpus(c.corpus, { tokenizer = c.tokenizer, length = n,
      vocab_size = c.tokenizer == "bpe" and c.vocab_size or nil })
    check_lengths(data, n, c.lengths)
    local blocks = tl.blocks(data.train, { length = n, batch = c.batch, micro = c.micro,
      before = data.train_before })
    local model = tl.models.tnn_lm(tl.models.preset(c.preset, {
      vocab = data.vocab:size(), dim = c.dim, layers = c.layers > 0 and c.layers or nil,
      backend = c.backend,
    }))
    local opt = tl.optim.adam(model, {
      kind = "fairseq", betas = { 0.9, 0.98 }, eps = 1e-8, lr = c.lr, clip = c.clip,
      weight_decay = c.weight_decay, schedule = "inverse_sqrt", warmup = c.warmup,
      warmup_init_lr = 1e-7,
    })
    t:say("%d tokens to train on; %d parameters; %d updates in an epoch", blocks.targets,
      model:count(), blocks:steps())

    for step in t:steps(c.steps, model, opt, data) do
      local loss, info = tl.train.lm_step(model, opt, blocks:batch(step))
      t:log { loss = loss, lr = info.lr, grad_norm = info.grad_norm }
      local _, epoch_ends = blocks:epoch(step)
      if epoch_ends or step == c.steps then
        local ppl = tl.eval.perplexity(model, data.valid, n, { before = data.valid_before })
        t:log { val_ppl = ppl }
        t:best(ppl)
      end
    end

    local step, ppl = t:load_best()
    t:log { best_step = step, best_val_ppl = ppl, parameters = (model:count()) }
    local sum = 0.0
    for _, length in ipairs(c.lengths) do
      t:say("evaluating at length %d", length)
      local at = tl.eval.perplexity(model, data.test, length,
        { before = data.test_before, batch_tokens = 1 })
      t:log { ["ppl@" .. length] = at }
      sum = sum + at
    end
    t:log { mean_extrapolation_ppl = sum / #c.lengths }
  end,

  report = { rows = "preset",
    columns = { "parameters", "best_val_ppl", "ppl@512", "mean_extrapolation_ppl" } },
}
