-- scaling.lua: how do TNN, FD, SKI and a table of free coefficients compare as the text, the width
-- and the steps grow together, each with the best of the same learning rates at every size?
--
-- The steps, and with them the text, are proportional to the square of the width, as are the
-- parameters of the blocks, so the tokens per parameter of the blocks stay constant. Each model
-- reads its text once (at scale paper, as published, several times). The texts are the first tokens
-- of one text, in the byte pairs of the whole text, and all sizes are evaluated on the same tokens,
-- so their losses can be compared. The learning rate falls to 0 with a cosine over the steps of
-- each size, so all are measured at the end of a schedule. Depth and length stay constant: a table
-- has a row for each lag, so a greater length would add rows that only this model must learn.
--
-- Needs toeplab data fetch wikitext-2. Neither paper trains a causal SKI, which takes more time
-- than SKI without a mask (its Appendix B). No machine has run the scales gpu and paper yet.
local tl = require "toeplab"

-- Returns the axes of the path of growth through these widths, of which the last one trains for so
-- many steps.
local function path(widths, steps)
  local list = {}
  for i, width in ipairs(widths) do list[i] = steps * width ^ 2 // widths[#widths] ^ 2 | 0 end
  return { dim = widths, steps = list }
end

local function with(axes, more)
  for key, value in pairs(more) do axes[key] = value end
  return axes
end

return tl.experiment "scaling" {
  fixed = tl.lm.fixed {
    corpus = "wikitext-2", tokenizer = "bpe", scored = 65536,
    dim = false, steps = false, glu_dim = false, warmup = false,
    lengths = { 128 }, passes = 1, share = 1.0,
  },
  rows = { model = { -- SKI and FD have no decay
    { "tnn" },
    { "table", encoder = "table" },
    { "fd", backend = "fd", decay = "none" },
    { "ski", backend = "ski", encoder = "piecewise", decay = "none",
      backend_options = { inducing = 32, taps = 16, lambda = 0.99 } },
  } },
  zip = path({ 24, 32, 48, 64, 96 }, 4000),
  seeds = 3,
  -- A rate at which a training diverges loses.
  guard = { metric = "loss", nan = "rollback", retries = 0 },
  tune = { key = "lr", values = { 4e-3, 8e-3, 16e-3, 32e-3, 64e-3 }, metric = "best_val_ppl",
    seed = 101, fixed = { share = 0.4, test_scored = 65536 },
    without = { "smoke", "quick", "gpu", "paper" } },
  scale = tl.lm.scales({
    smoke = with(path({ 8, 12, 16, 20 }, 12), { lengths = { 16 },
      backend_options = { inducing = 4, taps = 4 } }),
    quick = path({ 24, 32, 48, 64 }, 300),
    gpu = with(path({ 128, 192, 256, 384, 512 }, 3500), { corpus = "wikitext-103-raw",
      tokenizer = "gpt2", backend_options = { inducing = 64 }, lengths = { 512 } }),
    paper = with(path({ 128, 192, 256, 384, 512 }, 50000), { passes = 28, lengths = { 512 },
      backend_options = { inducing = 64 } }),
  }, { "dim", "steps", "glu_dim", "warmup" }),
  check = function(c)
    if c.passes < 1 then error("passes must be at least 1", 0) end
    if c.share <= 0 or c.share > 1 then error("share must be above 0 and at most 1", 0) end
    tl.lm.check(c)
  end,

  trial = function(t, c)
    local steps = math.max(1, math.floor(c.steps * c.share + 0.5))
    local own = { steps = steps, warmup = steps // 10, glu_dim = c.dim,
      train_tokens = steps * c.batch * c.length // c.passes + 1 }
    tl.lm.trial(t, tl.options.over(c, own), { every = steps })
  end,

  report = function(_, report)
    report.scaling { metric = "test_loss", against = "training_flop", by = "model",
      beside = { "bigram_loss", "trigram_loss" } }
  end,
}
