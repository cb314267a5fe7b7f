-- tnn-lm.lua: do the language models of TNN's Tables 2 and 7 to 10 and of SKI's Table 1, trained as
-- published on WikiText-103, reach the published perplexities, at that length and beyond it?
--
-- Needs toeplab data fetch wikitext-103-raw gpt2-bpe, and a machine that can train on 3.3e9 tokens.
-- preset=tnn-7/3,fd-7/3 trains the rows of SKI's Table 1, gtu-only-9,without-rpe-5 others;
-- toeplab model tnn_lm --presets lists them.
local tl = require "toeplab"

local function options_of(c, vocab)
  local o = tl.models.preset(c.preset, { vocab = vocab, dim = c.dim,
    layers = c.layers > 0 and c.layers or nil, embed_scale = c.embed_scale })
  if o.backend and o.backend ~= c.backend then
    error(("the preset %s is of backend=%s"):format(c.preset, o.backend), 0)
  end
  o.backend = c.backend
  return o
end

return tl.experiment "tnn-lm" {
  answers = { "tnn/table2", "tnn/table15", "ski/table1", "ski/figure7a", "ski/figure7b" },
  fixed = {
    corpus = "wikitext-103-raw", tokenizer = "gpt2", vocab_size = 8192, -- for tokenizer bpe only
    layers = 0, dim = 512,                          -- layers = 0 takes those of the preset
    backend = "rac", embed_scale = true,
    length = 512, batch = 128, micro = 8, steps = 50000,
    kind = "fairseq", betas = { 0.9, 0.98 }, eps = 1e-8,      -- options of Adam
    weight_decay = 0.2, clip = 1.0,                           -- other models of the papers: 0.1
    lr = 5e-4, schedule = "inverse_sqrt", warmup = 4000, warmup_init_lr = 1e-7,
    lengths = { 512, 768, 1024, 1280, 1536, 1792, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 9216,
      10240, 11264, 12288, 13312, 14336 },
  },
  grid = { preset = { "tnn-7/6" } },
  when = { -- as in the published runs, FD has twice the learning rate
    { where = { preset = "fd-7/3" }, fixed = { lr = 1e-3, backend = "fd" } },
  },

  scale = {
    smoke = {
      layers = 1, dim = 16, length = 16, batch = 4, micro = 2, steps = 20, warmup = 5,
      lengths = { 16, 32 }, tokenizer = "bpe", vocab_size = 270,
      corpus = "text:" .. ("the old man told the moon a tale of the young sea .\n"):rep(240),
    },
  },

  checkpoint = { seconds = 600 },

  check = function(c) options_of(c, 1) end,

  trial = function(t, c)
    local model, data = tl.lm.train(t, c, { make = function(vocab)
      return tl.models.tnn_lm(options_of(c, vocab))
    end })
    tl.lm.test(t, c, model, data, { batch_tokens = 1 })
  end,

  report = { rows = "preset",
    columns = { "best_val_ppl", "test_ppl", "mean_extrapolation_ppl", "parameters" } },
}
