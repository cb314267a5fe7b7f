-- recipes/lm.lua: defines the shared parts of the language-model ablations: their configuration at
-- five scales and their trial. The file of an ablation then declares only the keys that it varies.
--
--   return tl.experiment "tnn-table10" {
--     answers = "tnn/table10",
--     fixed = tl.lm.fixed { decay = false }, grid = { decay = { 0.99, "none" } }, seeds = 3,
--     scale = tl.lm.scales {}, trial = tl.lm.trial, report = { ... },
--   }
local blocks = require "toeplab.tasks.blocks"
local carried = require "toeplab.models.carried"
local core = require "toeplab.core"
local cost = require "toeplab.train.cost"
local corpus = require "toeplab.tasks.corpus"
local eval = require "toeplab.train.eval"
local models = require "toeplab.models"
local options = require "toeplab.base.options"
local optim = require "toeplab.train.optim"
local overlay = require "toeplab.base.overlay"
local overrides = require "toeplab.trials.overrides"
local plan = require "toeplab.trials.plan"
local recorded = require "toeplab.tasks.recorded"
local source = require "toeplab.tasks.source"
local suggest = require "toeplab.base.suggest"
local train = require "toeplab.train"

local lm = {}

local field = options.field

-- The sizes of scale laptop. Tables 7 to 10 of TNN take an evening on two processors, and the
-- better models beat a Kneser-Ney 5-gram of the same text. Compared to the papers it reduces the
-- text (the King James Bible, not WikiText-103), the tokens (characters, not 50,264 byte pairs),
-- the width (96, not 512), the depth, the length and the number of training tokens (3 M, not 3.3
-- G). The schedule ends at 0, so that trainings of 1,000 and 3,000 steps have about the same best
-- rate.
local laptop = {
  corpus = "bible-kjv", tokenizer = "char",
  vocab_size = 1024,                             -- of tokenizer bpe
  layers = 3, dim = 96, expand = 3.0, glu_dim = 96, rpe_dim = 32, rpe_layers = 3, layout = "B",
  structure = "gtu+glu", causal = true, positions = "none", embed_scale = true, encoder = "mlp",
  table_length = 128, rpe_input = "integer", decay = 0.99, dropout = 0.0, backend = "rac",
  length = 128, batch = 8, micro = 8, shuffle = "blocks", steps = 3000,
  kind = "fairseq", betas = { 0.9, 0.98 }, eps = 1e-8, weight_decay = 0.2, clip = 1.0,
  lr = 3e-3, schedule = "cosine", warmup = 300, warmup_init_lr = 1e-7,
  scored = 1 << 40,                              -- most targets of the validation part
  test_scored = 0,                               -- most targets of the test part; 0: all
  lengths = { 128, 256, 512, 1024, 2048 },
}

-- The most targets of a part on which scale quick, and trainings that choose a rate, evaluate.
local FEW = 65536

-- The steps of scale quick, which shows in minutes that everything works. Most models are then
-- worse than bigrams, and the order of rows is meaningless. Evaluating the whole test part at five
-- lengths would take longer than the training.
local quick = { steps = 300, warmup = 50, seeds = 3, scored = FEW, test_scored = FEW }

-- The sizes of scale gpu, intended for ten minutes per trial on one large GPU. No GPU has run them
-- yet.
local gpu = {
  corpus = "wikitext-2", tokenizer = "bpe", vocab_size = 8192,
  layers = 6, dim = 256, glu_dim = 256, rpe_dim = 64, rpe_layers = 3,
  table_length = 512, length = 512, batch = 64, micro = 64, steps = 5000, warmup = 500,
  scored = 1 << 18, lengths = { 512, 1024, 2048, 4096, 8192 },
}

-- The sizes of the papers (TNN, Table 13, as in its code); the text is WikiText-103.
local paper = {
  corpus = "wikitext-103-raw", tokenizer = "gpt2", vocab_size = 8192,
  layers = 7, dim = 512, glu_dim = 512, rpe_dim = 64, rpe_layers = 6, table_length = 512,
  dropout = 0.1, length = 512, batch = 128, micro = 8, shuffle = "batches", steps = 50000,
  lr = 5e-4, schedule = "inverse_sqrt", warmup = 4000,
  lengths = { 512, 768, 1024, 1280, 1536, 1792, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 9216,
    10240, 11264, 12288, 13312, 14336 },
}

-- The sizes of scale smoke, at which a trial takes seconds.
local smoke = {
  corpus = "text:" .. ("the old man told the moon a tale of the young sea .\n"):rep(240),
  tokenizer = "bpe", vocab_size = 270, layers = 1, dim = 16, glu_dim = 16, rpe_dim = 8,
  rpe_layers = 1, table_length = 16, length = 16, batch = 4, micro = 4, steps = 12, warmup = 4,
  scored = 512, lengths = { 16, 32, 64 },
}

-- Returns the fixed keys of an ablation: those of scale laptop, overridden by more. Removes keys
-- that more sets to false, because the experiment varies them, unless they are true or false
-- anyway, such as recompute; and keys in the list without, which the models of the experiment
-- decide (lm.scales).
function lm.fixed(more, without)
  local values = overlay(laptop, more)
  for key, value in pairs(more or {}) do
    local known = laptop[key]
    if value == false and known ~= nil and type(known) ~= "boolean" then values[key] = nil end
  end
  for _, key in ipairs(without or {}) do values[key] = nil end
  return values
end

-- Returns the scales smoke, quick, laptop, gpu and paper, overridden by more, which maps a scale to
-- values or axes. Removes the keys in the list without, because the experiment varies them or its
-- models decide them.
function lm.scales(more, without)
  local scales = {}
  for name, values in pairs { smoke = smoke, quick = quick, laptop = {}, gpu = gpu,
    paper = paper } do
    scales[name] = overlay(values)
    for _, key in ipairs(without or {}) do scales[name][key] = nil end
    scales[name] = overlay(scales[name], more and more[name])
  end
  return scales
end

-- Returns the field tune of an ablation at scale laptop: it chooses the learning rate of each row
-- from four in trainings of a third of the steps, by the validation part. At the other scales every
-- row has the rate of fixed.
function lm.tune()
  return { key = "lr", values = { 1e-3, 3e-3, 1e-2, 3e-2 }, metric = "best_val_ppl", seed = 101,
    fixed = { steps = laptop.steps // 3, warmup = laptop.warmup // 3, lengths = { laptop.length },
      scored = FEW, test_scored = FEW },
    without = { "smoke", "quick", "gpu", "paper" } }
end

-- Returns the number of targets in the first `steps` batches; assumes that the shorter block and
-- the smaller batch of an epoch come last.
local function targets_of(batches, steps, c)
  local epochs, each = steps // batches:steps(), batches:steps()
  return 1.0 * epochs * batches.targets + (steps - epochs * each) * c.batch * c.length
end

local train_spec = options.declare "tl.lm.train" {
  { "make", field { type = "function", optional = true },
    "a function vocab -> model (default: tnn_lm with the keys of the trial)" },
  { "optimizer", field { type = "function", optional = true },
    "a function (model, c) -> its optimiser (default: Adam with the keys of the trial)" },
  { "every", field { type = "int", min = 1, optional = true },
    "evaluate every N steps, not only at the end of each epoch" },
  { "blocks", field { type = "int", min = 1, optional = true }, "most blocks to evaluate on" },
  { "patience", field { type = "int", min = 1, optional = true }, "as in t:best" },
}

-- Returns the number of scored targets of the test part in blocks of c.length, and the number of
-- all. Without the key test_scored, all are scored.
local function test_targets(c, data)
  local all, most = data:stream("test"):numel() - 1, options.given(c, "test_scored") or 0
  return most > 0 and math.min(all, math.max(1, most // c.length) * c.length) or all, all
end

-- Returns the empty states of rows that read on; nil without the key carry.
local function states_of(model, c, data)
  if not options.given(c, "carry") then return nil end
  recorded.add_part "rows read on in training, and the validation and test parts as a whole (carry)"
  local states = carried(model, { memory = options.given(c, "memory") or c.length })
  states:check("lm", model, data.separator)
  return states
end

-- Trains a causal language model on c.corpus in trial t. Evaluates the validation part at the end
-- of every epoch and after the last step, and finally loads the best parameters. Logs loss, lr,
-- grad_norm, val_ppl, best_step, best_val_ppl, parameters, tokens_seen (the number of predicted
-- training tokens) and training_flop (by the formulas of cost.step_flop). Returns the model and the
-- corpus. With the key carry rows read on (tl.carried), and so do both parts in their evaluation;
-- the key memory is by default the length.
function lm.train(t, c, o)
  o = options.check("lm.train", train_spec, o)
  local data = corpus(c.corpus, c)
  data:check_lengths("valid", { c.length })
  data:check_lengths("test", c.lengths)
  data:check_lengths("test", { c.length })
  local batches, vocab = blocks(data:stream "train", c), data.vocab:size()
  local scored, all = test_targets(c, data)
  if scored < all then -- tables say so
    recorded.add_part(("tested on the first %d of the %d targets of the test part"):format(scored,
      all))
  end
  local model = o.make and o.make(vocab) or models.tnn_lm(vocab, c)
  local opt = train.graph(model, (o.optimizer or optim.adam)(model, c))
  local states = states_of(model, c, data)
  t:say("%d tokens to train on, of %d kinds; %d parameters; %d updates in an epoch",
    batches.targets, vocab, model:count(), batches:steps())

  for step in t:steps(c.steps, model, opt, data, states and { carried = states }) do
    if states and batches:begins_epoch(step) then states:reset() end
    local loss, info = train.lm_step(model, opt, batches:batch(step), nil, data.separator, states)
    t:log { loss = loss, lr = info.lr, grad_norm = info.grad_norm }
    if batches:ends_epoch(step) or step == c.steps or o.every and step % o.every == 0 then
      local ppl = eval.perplexity(model, data:stream "valid", c.length, { blocks = o.blocks,
        separator = data.separator, carried = states })
      t:log { val_ppl = ppl }
      t:best(ppl, o.patience)
    end
  end

  local step, ppl = t:load_best()
  local seen = targets_of(batches, t.step, c)
  t:log { best_step = step, best_val_ppl = ppl, parameters = (model:count()), tokens_seen = seen,
    training_flop = seen / (c.batch * c.length) * cost.step_flop(model, c.length, c.batch) }
  return model, data
end

-- The most training tokens for n-grams with Witten-Bell smoothing, whose tree takes about 30 to 100
-- bytes per token. Kneser-Ney takes 9.
local COUNTED = 20000000

local NGRAMS = {
  { "unigram", 1, "witten-bell", most = COUNTED }, { "bigram", 2, "witten-bell", most = COUNTED },
  { "trigram", 3, "witten-bell", most = COUNTED },
  { "fivegram", 5, "kneser-ney" }, { "sixgram", 6, "kneser-ney" },
}

-- Logs baselines: the perplexities of interpolated n-grams of the same training tokens on the test
-- tokens that test_ppl scores, the first `most` ones.
local function yardsticks(t, data, most)
  local tokens = data.test:narrow(1, 1, math.min(most, data.test:numel()))
  for _, ngram in ipairs(NGRAMS) do
    local name, order, smoothing = table.unpack(ngram)
    if data.train:numel() <= (ngram.most or math.huge) then
      local bits = core.ngram_bits(data.train, tokens, order, data.vocab:size(), smoothing)
      t:log { [name .. "_ppl"] = 2 ^ bits, [name .. "_loss"] = bits * math.log(2) }
    end
  end
end

-- The number of blocks in a group. Mean losses of groups count as independent; losses of
-- neighbouring blocks are not, because they belong to one article.
local GROUP = 16

-- Logs the accuracy of test_loss as an estimate for all texts of this kind: test_text_se, the
-- standard error over groups of blocks, and the tensor test_loss_parts of the groups' mean losses.
-- The differences of these between two models give the standard error of their difference.
local function text_error(t, groups)
  local n, mean, square = #groups, 0.0, 0.0
  if n < 2 then return end
  for _, loss in ipairs(groups) do mean = mean + loss / n end
  for _, loss in ipairs(groups) do square = square + (loss - mean) ^ 2 end
  t:log { test_text_se = math.sqrt(square / (n - 1) / n), test_loss_parts = core.tensor(groups) }
end

-- Evaluates a model on the test part of data at the lengths c.lengths and at c.length, on all of it
-- or on the first c.test_scored targets. Logs ppl@LENGTH for each length, test_ppl (at c.length),
-- test_loss (its logarithm, nats per token), the metrics of text_error, mean_extrapolation_ppl (the
-- mean over c.lengths), bytes_per_token of the test part, and the baselines NGRAMS: unigram_ppl,
-- unigram_loss and so on. given: options of eval.perplexity. With the key carry the part is read on
-- in blocks of each length.
function lm.test(t, c, model, data, given)
  local sum, trained, groups = 0.0, nil, nil
  local scored, all = test_targets(c, data)
  local states = states_of(model, c, data)
  yardsticks(t, data, scored)
  local function measure(length)
    t:say("evaluating at length %d", length)
    local at, _, found = eval.perplexity(model, data:stream "test", length, overlay(given, {
      blocks = scored < all and math.max(1, scored // length) or nil,
      group = length == c.length and GROUP or nil, separator = data.separator,
      carried = states }))
    t:log { ["ppl@" .. length] = at }
    if found then trained, groups = at, found end
    return at
  end
  for _, length in ipairs(c.lengths) do sum = sum + measure(length) end
  if not trained then measure(c.length) end
  text_error(t, groups)
  t:log { test_ppl = trained, test_loss = math.log(trained),
    mean_extrapolation_ppl = sum / #c.lengths, bytes_per_token = data.bytes_per_token.test }
end

-- Runs the trial of an ablation: lm.train, with about four evaluations on at most c.scored targets
-- of the validation part, and lm.test. o: options of lm.train; nil: its defaults.
function lm.trial(t, c, o)
  local model, data = lm.train(t, c, overlay({ every = math.max(c.steps // 4, 1),
    blocks = math.max(1, c.scored // c.length) }, o))
  lm.test(t, c, model, data)
end

-- Raises an error if the corpus, tnn_lm or Adam would reject one of the keys c, or if c.scored is
-- below 1.
function lm.check(c)
  local scored = options.given(c, "scored")
  if scored and scored < 1 then error("scored must be at least 1", 0) end
  if (options.given(c, "test_scored") or 0) < 0 then
    error("test_scored must be at least 1, or 0 for the whole test part", 0)
  end
  source.texts(c.corpus, options.check("corpus", corpus.spec, c))
  options.check("blocks", options.declared["tl.blocks"], c)
  options.check("carried", options.declared["tl.carried"], c)
  if options.given(c, "carry") and options.given(c, "documents") == "packed" then
    error("lm: packed documents begin at empty states, so carry requires joined ones", 0)
  end
  for _, n in ipairs(options.given(c, "lengths") or {}) do
    if math.type(n) ~= "integer" or n < 1 then error("lengths must be positive integers", 0) end
  end
  options.check("tnn_lm", models.options "tnn_lm", c, { vocab = 1 })
  options.check("optim.adam", optim.specs.adam, c)
end

-- If the trial of an experiment is this function, lm.check rejects invalid values of its keys
-- before any trial runs.
plan.checks[lm.trial] = lm.check

-- Returns the function that takes a key which the experiment does not declare, and the value that
-- leaves it as it is, or a word for its type; nil if none takes it.
overrides.takes[lm.trial] = function(key)
  for _, of in ipairs { { "tl.corpus", corpus.spec },
    { "tl.blocks", options.declared["tl.blocks"] },
    { "tl.carried", options.declared["tl.carried"] }, { "tnn_lm", models.options "tnn_lm" },
    { "tl.optim.adam", optim.specs.adam } } do
    for _, o in ipairs(options.describe(of[2])) do
      if o.name == key then
        local quoted = o.type == "string" and o.default ~= "" and ('"%s"'):format(o.default)
        return of[1], quoted or o.default ~= "" and o.default or "VALUE"
      end
    end
  end
end

return suggest.strict("lm", lm)
