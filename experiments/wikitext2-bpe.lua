-- wikitext2-bpe.lua: does a small causal TNN predict WikiText-2 better in GPT-2's byte pairs or in
-- fewer ones learnt from the text itself? Bits per byte make the two comparable.
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

return tl.experiment "wikitext2-bpe" {
  fixed = {
    corpus = "wikitext-2", vocab_size = 8192,    -- of the pairs learnt from the text
    layers = 4, dim = 256, expand = 2, rpe_dim = 32, rpe_layers = 3, decay = 0.99, dropout = 0.0,
    backend = "fft",
    length = 512, batch = 4, steps = 1500,       -- 1.1 to 1.3 epochs
    lr = 2e-3, warmup = 200, weight_decay = 0.1, clip = 1.0,
    lengths = { 512, 4096 },
  },
  grid = { tokenizer = { "bpe", "gpt2" } },      -- gpt2 needs: toeplab data fetch gpt2-bpe

  scale = {
    smoke = {
      layers = 1, dim = 16, rpe_dim = 8, rpe_layers = 1, length = 16, batch = 4, steps = 50,
      warmup = 5, lengths = { 16, 128 }, vocab_size = 270, tokenizer = { "bpe" },
      corpus = "text:" .. words,
    },
  },

  trial = function(t, c)
    local n = c.length
    local data = tl.corpus(c.corpus, { tokenizer = c.tokenizer, length = n,
      vocab_size = c.tokenizer == "bpe" and c.vocab_size or nil })
    check_lengths(data, n, c.lengths)
    local blocks = tl.blocks(data.train, { length = n, batch = c.batch,
      before = data.train_before })
    local model = tl.models.tnn_lm {
      vocab = data.vocab:size(), layers = c.layers, dim = c.dim, expand = c.expand,
      rpe_dim = c.rpe_dim, rpe_layers = c.rpe_layers, decay = c.decay, dropout = c.dropout,
      backend = c.backend,
    }
    local opt = tl.optim.adam(model, {
      lr = c.lr, weight_decay = c.weight_decay, clip = c.clip,
      schedule = "cosine", warmup = c.warmup, steps = c.steps, end_lr = 0.02 * c.lr,
    })
    t:say("%d tokens to train on, of %d kinds, %.2f bytes each; %d parameters", blocks.targets,
      data.vocab:size(), data.bytes_per_token.train, model:count())

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

    t:load_best()
    t:log { parameters = (model:count()) }
    for _, length in ipairs(c.lengths) do
      t:say("evaluating at length %d", length)
      local bits = tl.eval.bits_per_token(model, data.test, length, { before = data.test_before })
      t:log { ["ppl@" .. length] = 2 ^ bits,
        ["bits per byte@" .. length] = bits / data.bytes_per_token.test }
    end
    t:text("sample", tl.generate(model, data.vocab, "the ", { tokens = 60, window = n }))
  end,

  report = function(trials, report)
    local header, rows = { "tokenizer", "parameters" }, {}
    local lengths = trials[1].config.lengths
    for _, n in ipairs(lengths) do
      table.move({ "perplexity at " .. n, "bits per byte at " .. n }, 1, 2, #header + 1, header)
    end
    for i, t in ipairs(trials) do
      rows[i] = { t.config.tokenizer, t.metrics.parameters }
      for _, n in ipairs(lengths) do
        table.move({ t.metrics["ppl@" .. n], t.metrics["bits per byte@" .. n] }, 1, 2,
          #rows[i] + 1, rows[i])
      end
    end
    report.print(header, rows)
  end,
}
