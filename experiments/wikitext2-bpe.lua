-- wikitext2-bpe.lua: does a small causal TNN predict WikiText-2 better in GPT-2's byte pairs or in
-- fewer ones learnt from the text itself? Bits per byte make the two comparable, except that
-- fairseq's preparation for gpt2 removes the spaces at the ends of lines, which bpe must predict.
local tl = require "toeplab"

return tl.experiment "wikitext2-bpe" {
  fixed = {
    corpus = "wikitext-2", vocab_size = 8192,    -- tokens learnt from the text
    layers = 4, dim = 256, expand = 2, rpe_dim = 32, rpe_layers = 3, decay = 0.99, dropout = 0.0,
    backend = "rac",
    length = 512, batch = 4, steps = 1500,       -- 1.1 to 1.3 epochs
    lr = 2e-3, schedule = "cosine", warmup = 200, end_lr = 4e-5, weight_decay = 0.1, clip = 1.0,
    lengths = { 512, 4096 },
  },
  grid = { tokenizer = { "bpe", "gpt2" } },      -- gpt2 needs: toeplab data fetch gpt2-bpe

  scale = {
    smoke = {
      layers = 1, dim = 16, rpe_dim = 8, rpe_layers = 1, length = 16, batch = 4, steps = 50,
      warmup = 5, lengths = { 16, 128 }, vocab_size = 270, tokenizer = { "bpe" },
      corpus = "text:" .. ("the old man told the moon a tale of the young sea .\n"):rep(240),
    },
  },

  trial = function(t, c)
    local model, data = tl.lm.train(t, c)
    for _, length in ipairs(c.lengths) do
      t:say("evaluating at length %d", length)
      local bits = tl.eval.bits_per_token(model, data:stream "test", length)
      t:log { ["ppl@" .. length] = 2 ^ bits,
        ["bits per byte@" .. length] = bits / data.bytes_per_token.test }
    end
    t:text("sample", tl.generate(model, data.vocab, "the ", { tokens = 60, window = c.length }))
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
