-- lra.lua: which model classifies long sequences best, TNN, SKI-TNN (as its paper defines it, and
-- as its published code computes it), FD-TNN or another one, with one training for all of them?
--
-- model=NAME is a row of TNN's Table 4, or any mixer of docs/mixers.md. The rows of Skyformer's
-- paper, from transformer to skyformer, share its frame, the model around the mixer
-- (tl.models.attention_classifier), which always masks padding and classifies the mean of all
-- tokens. All others share the TNN's frame. Rows of one frame differ only in the mixer.
--
-- task=NAME is listops, pathfinder or path-x, which are generated; imdb, the task Text (toeplab
-- data imdb explains how to get it); retrieval (toeplab data aan); or cifar, the task Image
-- (toeplab data fetch cifar10). cifar-part has 8,068 of its 50,000 training images and 1,017 of its
-- 10,000 test images (toeplab data cifar10-first4000 cifar10-grey). retrieval-standin and
-- cifar-standin are generated replacements; their results do not belong to Long Range Arena.
--
-- scale=paper has the small models of TNN's Table 4, scale=large the models of Table 14, with the
-- published lengths and numbers of steps; both need a large machine. In both, the test part of IMDB
-- is also its validation part, as published: the test data choose the best model. SKI has the
-- published numbers of inducing points and taps there, and ski-published uses the TNN's decay as
-- its lambda, as in the paper; lambda of ski is 0.99, because with the decays 0.6 to 0.9 of some
-- tasks its kernel would vanish between neighbouring inducing points.
local tl = require "toeplab"

-- ---- Models ----

-- The operators of a TNN, the models in Skyformer's frame, and all other mixers in the TNN's frame.
local models = {
  { "tnn", backend = "rac", encoder = "lra" },
  { "ski", backend = "ski", encoder = "piecewise" },
  { "ski-published", backend = "ski", encoder = "piecewise", as_published = true },
  { "fd", backend = "fd", encoder = "mlp" },
  { "transformer", skyformer = "attention" },
  { "kernelized-attention", skyformer = "kernelized" },
  { "nystromformer", skyformer = "nystrom" },
  { "transformer-ls", mixer = "ls_bidirectional" },
}
local in_frame = { linformer = true, informer = true, reformer = true, bigbird = true,
  skyformer = true }
for _, name in ipairs(tl.models.options("attention_classifier").fields.mixer.choices) do
  models[#models + 1] = { name, [in_frame[name] and "skyformer" or "mixer"] = name }
end

-- Returns the row's value for a key, or nil.
local function own(c, key) return tl.options.given(c, key) end

-- Mixers that need the training length as their option `length`.
local by_length = { cosformer = true, fft_rpe = true, gfnet = true, hyena = true, longconv = true,
  sgconv = true, stu = true, tmm = true }

-- Returns the options that all models in the TNN's frame share.
local function frame_of(c, data)
  return {
    vocab = data.vocab, classes = data.classes, pixels = data.pixels, pair = data.pair,
    layers = c.layers, dim = c.dim, glu_dim = c.glu_dim, heads = c.heads, pool = c.pool,
    dropout = c.dropout, gate_dropout = c.dropout, init = c.init,
    padding = data.grid and "seen" or c.padding, -- images have none
    causal = c.causal, max_length = c.length, layout = c.layout,
    inner_norm = c.layout == "B" and "layernorm" or nil,
  }
end

-- Returns the options of a TNN, whose operators on images are along both axes.
local function tnn_options(c, data)
  local o = frame_of(c, data)
  o.expand, o.rpe_dim = c.expand, c.rpe_dim
  if c.encoder == "mlp" then o.rpe_layers = c.rpe_layers end
  o.backend, o.encoder, o.grid, o.grid_form = c.backend, c.encoder, data.grid, c.grid_form
  if data.grid and c.grid_form == "product" then o.tno_dropout = c.dropout end
  -- The bidirectional code of FD takes the next power of two.
  if c.backend == "fd" then o.backend_options = { size = "power2" } end
  if c.model == "tnn" then
    o.max_lag = not data.grid and 1024 or nil
    o.decay = c.decay < 1 and c.decay or "none"
  end
  if c.backend == "ski" then
    o.backend_options = { inducing = c.inducing, taps = c.taps, lambda = c.lambda,
      as_published = own(c, "as_published") }
  end
  return o
end

local function mixer_options_of(mixer, c)
  if mixer == "flash" then return { chunk = math.min(256, c.length) } end
  return by_length[mixer] and { length = c.length } or {}
end

local function make(c, data)
  if own(c, "backend") then return tl.models.tnn_classifier(tnn_options(c, data)) end
  local mixer = own(c, "skyformer") or c.mixer
  local mixer_options = mixer_options_of(mixer, c)
  if own(c, "mixer") then
    return tl.models.tnn_classifier(tl.overlay(frame_of(c, data),
      { mixer = mixer, mixer_options = mixer_options }))
  end
  return tl.models.attention_classifier { vocab = data.vocab, classes = data.classes,
    max_length = c.length, layers = c.layers, dim = c.dim, heads = c.heads, hidden = 2 * c.dim,
    mixer = mixer, mixer_options = mixer_options, pair = data.pair, dropout = c.dropout }
end

-- ---- Tasks ----

-- Returns generated reviews, for the scale smoke.
local function reviews(count)
  local lines, words = {}, { [0] = "dull and slow ", "bright and quick " }
  for i = 1, count do
    local label = i % 2
    lines[i] = ("%d\t5\t%d\t%s"):format(label, i, words[label]:rep(2 + i % 3))
  end
  return "text:" .. table.concat(lines, "\n")
end

local few_reviews = reviews(24)

-- Functions that open a task for a configuration. With padding=masked, rows for ski and fd are all
-- padded to `length`, because their operators change with the length.
local open = {}

local function multiple(c)
  local fixed = c.padding == "masked" and own(c, "backend") and c.model ~= "tnn"
  return fixed and c.length or nil
end

local function some(count) return count > 0 and count or nil end

function open.listops(c)
  return tl.tasks.listops { length = c.length, min_length = math.min(c.length // 4, 501),
    max_length = math.min(c.length - 1, 1999), multiple = multiple(c), train = some(c.train),
    valid = some(c.valid), test = some(c.test) }
end

function open.imdb(c)
  local text = c.task:find "^text:" and c.task or nil
  return tl.tasks.imdb { length = c.length, valid = c.valid, train = some(c.train),
    test = some(c.test), multiple = multiple(c), train_file = text, test_file = text }
end

open[few_reviews] = open.imdb

function open.retrieval(c)
  local data = tl.tasks[c.task] { length = c.length, multiple = multiple(c),
    train = some(c.train), valid = some(c.valid), test = some(c.test) }
  return tl.overlay(data, { pair = true })
end

open["retrieval-standin"] = open.retrieval

function open.cifar(c)
  return tl.tasks[c.task] { valid = some(c.valid), train = some(c.train), test = some(c.test) }
end

open["cifar-part"] = open.cifar

open["cifar-standin"] = function(c)
  return tl.tasks["cifar-standin"] { images = c.train + c.valid, valid = c.valid,
    test_images = c.test }
end

-- The images are drawn at the first use, and cached.
function open.pathfinder(c)
  return tl.tasks[c.task] { size = math.floor(c.length ^ 0.5), train = some(c.train),
    valid = some(c.valid), test = some(c.test) }
end

open["path-x"] = open.pathfinder

-- ---- Sizes ----

-- By the key sizes and by task: what differs between the tasks. train, valid, test = 0: the task's
-- default.
local sizes = { smoke = {}, laptop = {}, paper = {}, large = {} }

for task, more in pairs {
  listops = { length = 64, train = 50 },
  [few_reviews] = { length = 64, valid = 4 },
  ["retrieval-standin"] = { length = 128, train = 16 },
  ["cifar-standin"] = { length = 1024, train = 20, valid = 10, test = 10 },
  pathfinder = { length = 1024, train = 20, pool = "last" },
  ["path-x"] = { length = 4096, train = 20, pool = "last" },
} do
  sizes.smoke[task] = tl.overlay({ valid = 8, test = 8 }, more)
end

-- Each trial takes at most about four minutes of two processors.
sizes.laptop = {
  listops = { length = 256, steps = 1800, decay = 0.95 },
  imdb = { length = 512, valid = 2000, steps = 900 },
  retrieval = { length = 512, valid = 2000, steps = 600, decay = 0.95 },
  ["cifar-part"] = { length = 1024, steps = 320, inducing = 16, taps = 8 },
  cifar = { length = 1024, steps = 320, inducing = 16, taps = 8 },
  pathfinder = { length = 1024, steps = 320, train = 6000, valid = 1000, pool = "last",
    inducing = 16, taps = 8 },
  ["path-x"] = { length = 16384, batch = 4, steps = 100, train = 2000, valid = 200, test = 200,
    pool = "last" },
}

-- TNN's Table 4; Path-X is not in it.
sizes.paper = {
  imdb = { length = 4096, batch = 32, lr = 1.05e-3, warmup = 80 },
  listops = { length = 2048, batch = 32, lr = 5.75e-3, warmup = 1000,
    decay = 0.95 },
  retrieval = { length = 4000, batch = 16, lr = 1.175e-3, warmup = 800, decay = 0.95 },
  cifar = { length = 1024, batch = 50, lr = 7.25e-3, warmup = 175, inducing = 32, taps = 16 },
  pathfinder = { length = 1024, batch = 128, lr = 1e-3, warmup = 312, pool = "last",
    inducing = 32, taps = 16 },
}

-- TNN's Table 14. The published cosine is one of 50,000 steps, which goes up again after them.
sizes.large = {
  imdb = { length = 4096, layers = 4, dim = 128, glu_dim = 256, rpe_dim = 32, decay = 0.9,
    batch = 32, steps = 24992, lr = 1.05e-3, warmup = 3000, weight_decay = 1e-3, dropout = 0.1 },
  listops = { length = 2048, layers = 4, dim = 128, glu_dim = 128, rpe_dim = 32,
    batch = 128, steps = 30000, lr = 5e-4, warmup = 1000, weight_decay = 0.1 },
  retrieval = { length = 4000, layers = 2, dim = 64, glu_dim = 96, decay = 0.6, batch = 64,
    steps = 45960, lr = 0.01, warmup = 25000, weight_decay = 0.01 },
  cifar = { length = 1024, layers = 12, dim = 128, expand = 2.0, glu_dim = 384, decay = 0.7,
    batch = 200, steps = 45000, lr = 7e-3, warmup = 30000, weight_decay = 1e-3, dropout = 0.1,
    inducing = 32, taps = 16 },
  pathfinder = { length = 1024, layers = 6, expand = 3.0, glu_dim = 160, batch = 128,
    steps = 250000, lr = 1e-3, warmup = 5000, pool = "last", inducing = 32, taps = 16 },
  ["path-x"] = { length = 16384, layers = 6, expand = 3.0, glu_dim = 160, decay = 0.999,
    batch = 64, steps = 250000, lr = 1e-4, warmup = 312, pool = "last", inducing = 32,
    taps = 16 },
}

-- Returns the rules that give each task its sizes, in the order of their names, and the published
-- SKI its lambda.
local function rules()
  local list = {}
  for name, tasks in pairs(sizes) do
    for task, fixed in pairs(tasks) do
      list[#list + 1] = { where = { sizes = name, task = task }, fixed = fixed }
    end
  end
  table.sort(list, function(a, b)
    if a.where.sizes ~= b.where.sizes then return a.where.sizes < b.where.sizes end
    return a.where.task < b.where.task
  end)
  for i = 1, #list do
    local where, decay = list[i].where, list[i].fixed.decay
    if decay and (where.sizes == "paper" or where.sizes == "large") then
      list[#list + 1] = { where = tl.overlay(where, { model = "ski-published" }),
        fixed = { lambda = decay } }
    end
  end
  return list
end

-- ---- The experiment ----

-- Raises if the mixer of a model cannot be made.
local function check_model(c)
  if not own(c, "mixer") then return end
  tl.models.describe("tnn_classifier", { vocab = 2, classes = 2, layers = 1, dim = c.dim,
    heads = c.heads, causal = c.causal, padding = c.padding, mixer = c.mixer,
    mixer_options = mixer_options_of(c.mixer, c) })
end

local squares = { [32 ^ 2] = true, [64 ^ 2] = true, [128 ^ 2] = true, [256 ^ 2] = true }

-- Raises if rows of c.length tokens are not what the task has.
local function check_length(c)
  if c.length < 16 then error("length must be at least 16", 0) end
  if c.task:find "^cifar" and c.length ~= 1024 then
    error(("length: images of %s have 1024 pixels"):format(c.task), 0)
  elseif c.task:find "^path" and not squares[c.length] then
    error(("length: images of %s have 1024, 4096, 16384 or 65536 pixels"):format(c.task), 0)
  end
end

local function check(c)
  check_model(c)
  if not sizes[c.sizes][c.task] then
    error(("task: '%s' has no sizes at sizes=%s"):format(c.task, c.sizes), 0)
  end
  for _, key in ipairs { "batch", "evaluations", "examples" } do
    if c[key] < 1 then error(key .. " must be at least 1", 0) end
  end
  for _, key in ipairs { "cycle", "train", "valid", "test" } do
    if c[key] < 0 then error(key .. " must be at least 0", 0) end
  end
  if c.padding ~= "seen" and c.padding ~= "masked" then
    error("padding: known are masked and seen", 0)
  end
  if own(c, "skyformer") and c.causal then
    error("causal: the attentions of Table 4 see all tokens", 0)
  end
  check_length(c)
end

-- Trains the model; t:best keeps the best one on the validation part. Returns the steps per second.
local function train(t, c, model, data)
  local opt = tl.optim.adam(model, { kind = "adamw", betas = { 0.9, 0.999 },
    weight_decay = c.weight_decay, clip = c.clip,
    schedule = tl.schedule.cosine { lr = c.lr, warmup = c.warmup, wraps = c.cycle > 0,
      steps = c.cycle > 0 and c.cycle or c.steps } })
  local every, timer = math.max(c.steps // c.evaluations, 1), tl.cost.timer(t)
  for step in t:steps(c.steps, model, opt) do
    local loss, info = timer:time(function()
      return tl.classify.step(model, opt, data.train:batch(step, c.batch))
    end)
    t:log { loss = loss, train_accuracy = info.accuracy, lr = info.lr }
    if step % every == 0 or step == c.steps then
      local accuracy, nats = tl.classify.accuracy(model, data.valid, c.batch, c.examples)
      t:log { val_accuracy = accuracy, val_loss = nats }
      t:best(1 - accuracy)
    end
  end
  return timer:rate()
end

return tl.experiment "lra" {
  answers = { "tnn/table4", "ski/table2", "tnn/table14", "tnn/figure1a", "ski/figure1a" },
  fixed = {
    sizes = "laptop", layers = 2, dim = 64, expand = 1.0, glu_dim = 96, rpe_dim = 16, heads = 2,
    rpe_layers = 3,            -- of fd; the others have the network of the LRA models
    layout = "A", grid_form = "product", pool = "mean", dropout = 0.0, decay = 1.0,
    inducing = 64, taps = 32, lambda = 0.99, padding = "seen", causal = false,
    init = "torch",            -- with the published N(0,0.02) short runs would be too short
    batch = 16, lr = 2e-3, warmup = 40, weight_decay = 0.0,
    clip = 1.0,                -- the published runs do not clip
    steps = 1000, cycle = 0,   -- steps of the cosine; 0: steps
    evaluations = 4,           -- on the validation part; the best model of these is tested
    examples = 1000,           -- used of the validation and training parts per evaluation
    length = 1024, train = 0, valid = 0, test = 0,
  },
  rows = { model = models, sizes = { { "smoke" }, { "laptop" }, { "paper" }, { "large" } } },
  grid = { task = { "listops", "imdb", "cifar-part", "pathfinder" },
    model = { "tnn", "ski", "fd", "attention", "s4" } },
  when = rules(),
  seeds = 3,
  data = { "task" },

  scale = {
    smoke = {
      sizes = "smoke",
      task = { "listops", few_reviews, "retrieval-standin", "cifar-standin", "pathfinder" },
      model = { "tnn", "ski", "ski-published", "fd", "skyformer", "s4" },
      dim = 8, glu_dim = 12, rpe_dim = 4, inducing = 4, taps = 4, batch = 2, warmup = 2, steps = 4,
      evaluations = 1, examples = 4,
    },
    laptop = {},
    paper = {
      sizes = "paper", task = { "listops", "imdb", "retrieval", "cifar", "pathfinder" },
      layout = "B", grid_form = "sum", init = "lra", clip = 0.0, steps = 50000, evaluations = 64,
      examples = 25000,
    },
    large = {
      sizes = "large", task = { "listops", "imdb", "retrieval", "cifar", "pathfinder", "path-x" },
      init = "lra", clip = 0.0, cycle = 50000, evaluations = 64, examples = 25000,
    },
  },
  check = check,

  trial = function(t, c)
    local data = open[c.task](c)
    if data.valid == data.test then
      t:say("the best model is chosen by the test part, which is the validation part too")
    end
    collectgarbage()
    local before = tl.memory().live
    local model = make(c, data)
    t:say("%d examples to train on, rows of at most %d; %d parameters", data.train.count, c.length,
      (model:count()))
    tl.memory_reset_peak()
    local rate = train(t, c, model, data)
    local peak, step, wrong = tl.memory().peak - before, t:load_best() -- peak excludes the data
    t:log { best_step = step, best_val_accuracy = 1 - wrong, parameters = (model:count()),
      final_train_accuracy = tl.classify.accuracy(model, data.train, c.batch, c.examples),
      test_accuracy = tl.classify.accuracy(model, data.test, c.batch),
      chance = data.test:chance(), peak_mib = peak / 2 ^ 20 }
    if rate then t:log { steps_per_second = rate } end
    if data.yardsticks then t:log(data.yardsticks()) end
  end,

  report = { rows = { "task", "model" }, columns = { "test_accuracy", "chance",
    "best_val_accuracy", "final_train_accuracy", "steps_per_second", "peak_mib", "parameters" } },
}
