-- lra.lua: which classifies long sequences better, TNN, SKI-TNN (as its paper defines it, and as
-- its published code computes it) or FD-TNN, with one configuration for all of them?
--
-- ListOps is generated (task=listops); toeplab data imdb tells how to get IMDB. scale=paper has the
-- published lengths and numbers of steps, and needs a machine for them.
local tl = require "toeplab"

-- The options in which the models differ. For ListOps tnn also has the decay of TNN's Table 4.
local models = {
  tnn = { backend = "rac", encoder = "lra", max_lag = 1024 },
  ski = { backend = "ski", encoder = "piecewise" },
  ["ski-published"] = { backend = "ski", encoder = "piecewise", as_published = true },
  fd = { backend = "fd", encoder = "mlp" },
}

-- Returns generated reviews, for the scale smoke.
local function reviews(count)
  local lines, words = {}, { [0] = "dull and slow ", "bright and quick " }
  for i = 1, count do
    local label = i % 2
    lines[i] = ("%d\t5\t%d\t%s"):format(label, i, words[label]:rep(2 + i % 3))
  end
  return "text:" .. table.concat(lines, "\n")
end

-- Returns the options of the model c.model.
local function options_of(c, data)
  local m = models[c.model]
  local o = {
    vocab = data.vocab, classes = data.classes, layers = c.layers, dim = c.dim,
    expand = c.expand, glu_dim = c.glu_dim, rpe_dim = c.rpe_dim, rpe_layers = 3,
    dropout = c.dropout, gate_dropout = c.dropout, init = c.init,
    backend = m.backend, encoder = m.encoder, max_lag = m.max_lag,
  }
  if c.model == "tnn" and c.task == "listops" then o.decay = 0.95 end
  if m.backend == "ski" then
    o.backend_options = { inducing = c.inducing, taps = c.taps, lambda = c.lambda,
      as_published = m.as_published }
  end
  return o
end

-- Returns the task c.task, {train=, valid=, test=, vocab=, classes=}, and its learning rate.
local function open(c)
  if c.task == "listops" then
    return tl.tasks.listops { length = c.listops_length, min_length = c.listops_shortest,
      max_length = math.min(c.listops_length - 1, 1999), train = c.listops_train }, c.listops_lr
  end
  local text = c.task:find "^text:" and c.task or nil
  return tl.tasks.imdb { length = c.imdb_length, valid = c.imdb_valid,
    test = c.imdb_test > 0 and c.imdb_test or nil, train_file = text, test_file = text }, c.imdb_lr
end

return tl.experiment "lra" {
  answers = "ski/table2",
  fixed = {
    layers = 2, dim = 64, expand = 1.0, glu_dim = 96, rpe_dim = 16, dropout = 0.0,
    inducing = 64, taps = 32, lambda = 0.99,
    init = "torch",            -- with the published N(0,0.02) these runs would be too short
    batch = 16, warmup = 40, weight_decay = 0.0, clip = 1.0, -- the published runs do not clip
    listops_length = 512, listops_shortest = 33, listops_train = 96000, listops_lr = 5e-3,
    listops_steps = 2000,
    imdb_length = 1024, imdb_valid = 2000, imdb_test = 2000, imdb_lr = 5e-3, imdb_steps = 800,
    evaluations = 4,           -- on the validation part; the best model of these is tested
    examples = 1000,           -- used of the validation and training parts per evaluation
  },
  grid = { task = { "listops", "imdb" }, model = { "tnn", "ski", "ski-published", "fd" } },
  seeds = 3,
  data = { "task" },

  scale = {
    smoke = {
      task = { "listops", reviews(24) }, dim = 8, glu_dim = 12, rpe_dim = 4, inducing = 4, taps = 4,
      batch = 4, warmup = 2, listops_length = 64, listops_shortest = 10, listops_train = 50,
      listops_steps = 6, imdb_length = 64, imdb_valid = 4, imdb_test = 8, imdb_steps = 6,
      evaluations = 2, examples = 8,
    },
    laptop = { batch = 16, listops_steps = 2000, imdb_steps = 800 },
    paper = { -- the small models of TNN's Table 4
      init = "lra", batch = 32,
      listops_length = 2048, listops_shortest = 501, listops_steps = 50000, listops_lr = 5.75e-3,
      imdb_length = 4096, imdb_valid = 0, imdb_test = 0, imdb_steps = 50000, imdb_lr = 1.05e-3,
      warmup = 1000, clip = 0.0, evaluations = 64, examples = 25000,
    },
  },

  check = function(c)
    if not models[c.model] then error("model: known are fd, ski, ski-published and tnn", 0) end
    for _, key in ipairs { "batch", "evaluations", "examples" } do
      if c[key] < 1 then error(key .. " must be at least 1", 0) end
    end
    if c.listops_shortest >= c.listops_length then
      error("listops_shortest must be below listops_length", 0)
    end
  end,

  trial = function(t, c)
    local data, lr = open(c)
    collectgarbage()
    local before = tl.memory().live
    local steps = c.task == "listops" and c.listops_steps or c.imdb_steps
    local model = tl.models.tnn_classifier(options_of(c, data))
    local opt = tl.optim.adam(model, { kind = "adamw", betas = { 0.9, 0.999 }, lr = lr,
      weight_decay = c.weight_decay, clip = c.clip, schedule = "cosine", warmup = c.warmup,
      steps = steps })
    local every, spent, timed = math.max(steps // c.evaluations, 1), 0.0, 0
    t:say("%d sequences to train on, of %d tokens at most; %d parameters", data.train.count,
      data.train.opt.length, (model:count()))
    tl.memory_reset_peak()

    for step in t:steps(steps, model, opt) do
      local began = tl.sys.clock()
      local loss, info = tl.classify.step(model, opt, data.train:batch(step, c.batch))
      if step > 3 then spent, timed = spent + tl.sys.clock() - began, timed + 1 end -- plans exist
      t:log { loss = loss, train_accuracy = info.accuracy, lr = info.lr }
      if step % every == 0 or step == steps then
        local accuracy, nats = tl.classify.accuracy(model, data.valid, c.batch, c.examples)
        t:log { val_accuracy = accuracy, val_loss = nats }
        t:best(1 - accuracy)
      end
    end

    local peak, step, wrong = tl.memory().peak - before, t:load_best() -- peak excludes the data
    t:log { best_step = step, best_val_accuracy = 1 - wrong, parameters = (model:count()),
      final_train_accuracy = tl.classify.accuracy(model, data.train, c.batch, c.examples),
      test_accuracy = tl.classify.accuracy(model, data.test, c.batch),
      chance = data.test:chance(), peak_mib = peak / 2 ^ 20 }
    if timed > 0 then t:log { steps_per_second = timed / spent } end
  end,

  -- Prints a line per task and model: means over the seeds, and the test accuracy of each seed.
  report = function(trials, report)
    local columns = { "final_train_accuracy", "best_val_accuracy", "test_accuracy", "chance",
      "steps_per_second", "peak_mib", "parameters" }
    local groups, order = {}, {}
    for _, t in ipairs(trials) do
      local name = t.config.task:gsub("^text:.*", "text") .. " " .. t.config.model
      if not groups[name] then groups[name], order[#order + 1] = {}, name end
      table.insert(groups[name], t.metrics)
    end
    local header, rows = { "task and model", "train", "validation", "test", "chance", "steps/s",
      "peak MiB", "parameters", "test by seed" }, {}
    for i, name in ipairs(order) do
      local row, tests = { name }, {}
      for _, column in ipairs(columns) do
        local sum, count = 0.0, 0
        for _, m in ipairs(groups[name]) do
          if m[column] then sum, count = sum + m[column], count + 1 end
        end
        row[#row + 1] = count > 0 and sum / count or "-"
      end
      for j, m in ipairs(groups[name]) do tests[j] = ("%.3f"):format(m.test_accuracy) end
      row[#row + 1], rows[i] = table.concat(tests, " "), row
    end
    report.table(header, rows)
    print "chance: the share of the most frequent class; train: of the first training examples"
  end,
}
