-- recipes/mlm.lua: the trial of a masked language model, and the sizes of the models that
-- experiments/glue-mlm.lua trains and experiments/glue.lua fine-tunes.

local core = require "toeplab.core"
local cost = require "toeplab.train.cost"
local corpus = require "toeplab.tasks.corpus"
local errors = require "toeplab.base.errors"
local masking = require "toeplab.tasks.masking"
local models = require "toeplab.models"
local optim = require "toeplab.train.optim"
local options = require "toeplab.base.options"
local overlay = require "toeplab.base.overlay"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local mlm = {}

-- ---- Sizes --------------------------------------------------------------------------------------

-- The keys of a masked model and of its tokenizer at each scale. laptop is the published model with
-- fewer and narrower blocks, and 8,192 byte pairs learnt from WikiText-2.
local sizes = {
  laptop = {
    corpus = "wikitext-2", tokenizer = "bpe", vocab_size = 8192,
    layers = 4, dim = 256, expand = 2.0, rpe_dim = 32, rpe_layers = 3, decay = 0.99,
    backend = "rac",
  },
  smoke = {
    corpus = "text:" .. ("the old man of the sea told the young man a tale of the sea .\n"
      .. "the young man told it to the moon , and the moon to the old sea .\n"):rep(60),
    vocab_size = 270, layers = 1, dim = 8, rpe_dim = 4, rpe_layers = 1,
  },
  paper = { -- those of TNN's Table 3: 126,400,089 parameters
    corpus = "wikitext-103-raw", tokenizer = "gpt2", layers = 12, dim = 768, expand = 3.0,
    rpe_dim = 64, rpe_layers = 6,
  },
}

-- Returns the keys of a scale, with defaults from laptop, overridden by more.
function mlm.sizes(scale, more)
  return overlay(sizes[scale], more)
end

-- Returns the options of the model of these keys, for tokens as masking.tokens counts them.
function mlm.options(c, tokens)
  return {
    vocab = tokens.vocab, pad = tokens.pad, layers = c.layers, dim = c.dim, expand = c.expand,
    rpe_dim = c.rpe_dim, rpe_layers = c.rpe_layers, dropout = c.dropout, decay = c.decay,
    backend = c.backend, encoder = options.given(c, "encoder"),
    backend_options = options.given(c, "backend_options"),
  }
end

-- ---- The models of TNN's Table 3 ----------------------------------------------------------------

-- The presets of the values of the key model. The sizes of "tnn" are keys of their own.
local bases = {
  transformer = "blm-transformer", ["transformer-ls"] = "blm-ls", flash = "blm-flash",
  ["1+elu"] = "blm-linear-attention", performer = "blm-performer", cosformer = "blm-cosformer",
  ["syn-d"] = "blm-synthesizer-dense", ["syn-r"] = "blm-synthesizer-random", gmlp = "blm-gmlp",
  fnet = "blm-fnet", gfnet = "blm-gfnet", afno = "blm-afno", s4 = "blm-s4", dss = "blm-dss",
  gss = "blm-gss", fd = "blm-fd-12", ski = "blm-ski-12",
}
mlm.models = sorted_keys(overlay(bases, { tnn = "blm-tnn-12" }))

local FULL = { layers = 12, dim = 768 } -- of the presets whose options do not say it

-- Returns the options of the model c.model, for tokens as masking.tokens counts them. A preset has
-- its own numbers of blocks and channels at 12 layers and 768 channels, and proportionally fewer
-- with other c.layers and c.dim, so that all models are about equally large. A head has 64
-- channels.
function mlm.options_of_model(c, tokens)
  if c.model == "tnn" then return mlm.options(c, tokens) end
  local o = models.preset(bases[c.model], { vocab = tokens.vocab, pad = tokens.pad,
    dropout = c.dropout, max_length = math.max(c.length, 128) })
  local function scaled(count, from, to)
    return count and math.max(math.floor(count * to / from + 0.5), 1)
  end
  local function width(channels) return scaled(channels, FULL.dim, c.dim) end
  o.layers = scaled(o.layers or FULL.layers, FULL.layers, c.layers)
  o.dim, o.glu_dim = width(o.dim or FULL.dim), width(o.glu_dim)
  if o.mixer then
    local own = o.mixer_options
    o.heads = o.heads and math.max(c.dim // 64, 1)
    o.mixer_options = overlay(own, { ffn_dim = width(own.ffn_dim), inner = width(own.inner) })
  else
    o.expand, o.rpe_dim = c.expand, c.rpe_dim
  end
  return o
end

-- Raises an error unless the key model has a value of mlm.models.
function mlm.check_model(c)
  local found, problem = suggest.choose("model", c.model, mlm.models)
  if not found then errors.usage("%s", problem) end
end

-- Returns the vocabulary, its kind and the model to fine-tune, from the trial or the checkpoint
-- file c.start, which must be a tnn_mlm; no model if c.start is "random". The last result describes
-- the checkpoint.
function mlm.start(t, c)
  if c.start == "random" then return mlm.corpus(c).vocab, c.tokenizer, nil, "random" end
  local model, vocab, info = t:model_of(c.start)
  local kind = models.name_of(model)
  if kind ~= "tnn_mlm" or not vocab then
    errors.usage("start=%s is %s, but must be a tnn_mlm with its vocabulary, e.g. a trial of "
      .. "experiments/glue-mlm.lua", c.start, vocab and "a " .. kind or "without a vocabulary")
  end
  if info.vocabulary ~= c.tokenizer then
    errors.usage("start=%s has tokenizer = %s, but this run has %s; give tokenizer=%s", c.start,
      info.vocabulary, c.tokenizer, info.vocabulary)
  end
  return vocab, info.vocabulary, model, ("%s, sha256 %s"):format(c.start, info.sha256)
end

-- Returns the corpus of the keys c.
function mlm.corpus(c)
  return corpus(c.corpus, { tokenizer = c.tokenizer,
    vocab_size = c.tokenizer == "bpe" and c.vocab_size or nil,
    valid_file = options.given(c, "valid_file"), test_file = options.given(c, "test_file") })
end

-- ---- The trial ----------------------------------------------------------------------------------

-- Raises an error if the keys of a trial make no sense.
function mlm.check(c)
  for _, key in ipairs { "batch", "micro", "evaluations", "valid_batches" } do
    if c[key] < 1 then errors.usage("%s must be at least 1", key) end
  end
  if c.batch % c.micro ~= 0 then
    errors.usage("batch = %d is not a multiple of micro = %d", c.batch, c.micro)
  end
end

-- Returns the corpus, and the batches of its training, validation and test parts; those of the last
-- two are the same for every trial.
local function open(c)
  local text, parts = mlm.corpus(c), {}
  for part, seed in pairs { train = false, valid = 1, test = 1 } do
    local o = masking.specials(text.vocab, c.tokenizer)
    o.length, o.batch, o.seed = c.length, c.micro, seed or nil
    parts[part] = masking(text[part], o)
  end
  return text, parts
end

-- Trains a model on updates of c.batch blocks, in batches of c.micro blocks of similar length, and
-- logs the perplexity of its best state. options_of(c, tokens) returns the model's options.
function mlm.trial(t, c, options_of)
  local text, parts = open(c)
  collectgarbage()
  local data, before = parts.train, core.memory().live
  local model = models.tnn_mlm(options_of(c, data))
  local opt = optim.adam(model, { kind = "fairseq", betas = { 0.9, 0.98 }, eps = 1e-6,
    lr = c.lr, weight_decay = c.weight_decay, clip = c.clip, schedule = "polynomial",
    warmup = c.warmup, steps = c.steps })
  local every, timer = math.max(c.steps // c.evaluations, 1), cost.timer(t)
  t:say("%d blocks to train on, %d batches in an epoch; %d parameters", data.count,
    data:steps(), (model:count()))
  core.memory_reset_peak()

  for step in t:steps(c.steps, model, opt, text) do
    local loss, info = timer:time(function()
      return masking.step(model, opt, data:batches(step, c.batch // c.micro))
    end)
    t:log { loss = loss, lr = info.lr, grad_norm = info.grad_norm }
    if step % every == 0 or step == c.steps then
      local ppl = masking.perplexity(model, parts.valid, c.valid_batches)
      t:log { val_ppl = ppl }
      t:best(ppl)
    end
  end

  local peak, step, ppl = core.memory().peak - before, t:load_best() -- peak excludes the data
  t:log { best_step = step, best_val_ppl = ppl, parameters = (model:count()),
    test_ppl = masking.perplexity(model, parts.test), peak_mib = peak / 2 ^ 20 }
  local yardstick = masking.both_sides(parts.train, parts.test)
  if yardstick then t:log { both_sides_ppl = yardstick } end
  t:log { steps_per_second = timer:rate() }
end

return suggest.strict("mlm", mlm)
