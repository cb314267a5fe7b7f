-- trials/lm.lua: defines what the language-model ablations share: their configuration at three
-- scales and their trial, so that an ablation's file states only what it varies.
--
--   return tl.experiment "tnn-table10" {
--     answers = "tnn/table10",
--     fixed = tl.lm.fixed {}, grid = { decay = { 0.99, "none" } }, seeds = 3,
--     scale = tl.lm.scales {}, trial = tl.lm.trial, report = { ... },
--   }
local blocks = require "toeplab.tasks.blocks"
local corpus = require "toeplab.tasks.corpus"
local eval = require "toeplab.train.eval"
local models = require "toeplab.models"
local optim = require "toeplab.train.optim"
local suggest = require "toeplab.base.suggest"
local train = require "toeplab.train"

local lm = {}

-- The sizes of scale laptop, at which a trial takes less than a minute on two processors. Compared
-- to the papers it reduces the text (WikiText-2, not 103), the vocabulary (1,024 byte pairs learnt
-- from the text, not 50,264), the width (96, not 512), the depth, the length and the number of
-- training tokens (0.6 M, not 3.3 G), and evaluates on a fraction of the validation and test parts.
local laptop = {
  corpus = "wikitext-2", tokenizer = "bpe", vocab_size = 1024,
  layers = 3, dim = 96, expand = 3.0, glu_dim = 96, rpe_dim = 32, rpe_layers = 3, layout = "B",
  structure = "gtu+glu", causal = true, positions = "none", encoder = "mlp", table_length = 128,
  rpe_input = "integer", decay = 0.99, dropout = 0.0, backend = "rac",
  length = 128, batch = 16, micro = 16, steps = 300,
  kind = "fairseq", betas = { 0.9, 0.98 }, eps = 1e-8, weight_decay = 0.2, clip = 1.0,
  lr = 3e-3, schedule = "inverse_sqrt", warmup = 50, warmup_init_lr = 1e-7,
  scored = 65536,                                -- most targets to evaluate on, per part
  lengths = { 128, 256, 512, 1024, 2048 },
}

-- The sizes of the papers (TNN, Table 13, as in its code); the text is WikiText-103.
local paper = {
  corpus = "wikitext-103-raw", tokenizer = "gpt2", vocab_size = 8192,
  layers = 7, dim = 512, glu_dim = 512, rpe_dim = 64, rpe_layers = 6, table_length = 512,
  dropout = 0.1, length = 512, batch = 128, micro = 8, steps = 50000, lr = 5e-4, warmup = 4000,
  scored = 1 << 40,
  lengths = { 512, 768, 1024, 1280, 1536, 1792, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 9216,
    10240, 11264, 12288, 13312, 14336 },
}

-- The sizes of scale smoke, at which a trial takes seconds.
local smoke = {
  corpus = "text:" .. ("the old man told the moon a tale of the young sea .\n"):rep(240),
  vocab_size = 270, layers = 1, dim = 16, glu_dim = 16, rpe_dim = 8, rpe_layers = 1,
  table_length = 16, length = 16, batch = 4, micro = 4, steps = 12, warmup = 4, scored = 512,
  lengths = { 16, 32, 64 },
}

local function over(base, more)
  local values = {}
  for key, value in pairs(base) do values[key] = value end
  for key, value in pairs(more or {}) do values[key] = value end
  return values
end

-- Returns the fixed keys of an ablation: those of scale laptop, overridden by more. A key that more
-- sets to false is left out, because the experiment varies it.
function lm.fixed(more)
  local values = over(laptop, more)
  for key, value in pairs(more or {}) do
    if value == false then values[key] = nil end
  end
  return values
end

-- Returns the scales smoke, laptop and paper, overridden by more, which maps a scale to values or
-- axes. The list without names keys to leave out of the scales, because the experiment varies them.
function lm.scales(more, without)
  local scales = {}
  for name, values in pairs { smoke = smoke, laptop = {}, paper = paper } do
    scales[name] = over(values)
    for _, key in ipairs(without or {}) do scales[name][key] = nil end
    scales[name] = over(scales[name], more and more[name])
  end
  return scales
end

-- Trains a causal language model on c.corpus in trial t, and loads the parameters that were best on
-- the validation part, which is evaluated at the end of every epoch and after the last step. Logs
-- loss, lr, grad_norm, val_ppl, best_step, best_val_ppl and parameters. Returns the model and the
-- corpus. The optional fields of o are
--   make       a function vocab -> model, by default tnn_lm with the options in c
--   optimizer  a function (model, c) -> its optimiser, by default Adam with the options in c
--   every      also evaluates after every so many steps
--   blocks     the most blocks to evaluate on
--   patience   as in t:best
function lm.train(t, c, o)
  o = o or {}
  local data = corpus(c.corpus, c)
  data:check_lengths("valid", { c.length })
  data:check_lengths("test", c.lengths)
  local batches, vocab = blocks(data:stream "train", c), data.vocab:size()
  local model = o.make and o.make(vocab) or models.tnn_lm(vocab, c)
  local opt = train.graph(model, (o.optimizer or optim.adam)(model, c))
  t:say("%d tokens to train on, of %d kinds; %d parameters; %d updates in an epoch",
    batches.targets, vocab, model:count(), batches:steps())

  for step in t:steps(c.steps, model, opt, data) do
    local loss, info = train.lm_step(model, opt, batches:batch(step))
    t:log { loss = loss, lr = info.lr, grad_norm = info.grad_norm }
    if batches:ends_epoch(step) or step == c.steps or o.every and step % o.every == 0 then
      local ppl = eval.perplexity(model, data:stream "valid", c.length, { blocks = o.blocks })
      t:log { val_ppl = ppl }
      t:best(ppl, o.patience)
    end
  end

  local step, ppl = t:load_best()
  t:log { best_step = step, best_val_ppl = ppl, parameters = (model:count()) }
  return model, data
end

-- Evaluates a model on the test part of data at the lengths c.lengths: logs ppl@LENGTH for each,
-- test_ppl (that of c.length, if it is among them) and mean_extrapolation_ppl, the mean over all of
-- them. options(length) returns the options of eval.perplexity; nil: the defaults.
function lm.test(t, c, model, data, options)
  local sum = 0.0
  for _, length in ipairs(c.lengths) do
    t:say("evaluating at length %d", length)
    local at = eval.perplexity(model, data:stream "test", length, options and options(length))
    t:log { ["ppl@" .. length] = at }
    if length == c.length then t:log { test_ppl = at } end
    sum = sum + at
  end
  t:log { mean_extrapolation_ppl = sum / #c.lengths }
end

-- Runs the trial of an ablation: lm.train and lm.test, on at most c.scored targets per part.
function lm.trial(t, c)
  local function scored(length) return { blocks = math.max(1, c.scored // length) } end
  local model, data = lm.train(t, c, { every = math.max(c.steps // 8, 1),
    blocks = scored(c.length).blocks })
  lm.test(t, c, model, data, scored)
end

return suggest.strict("lm", lm)
