-- glue.lua: what does masked language modelling improve on GLUE, over the same bidirectional model
-- from a random start, and over the most frequent class (TNN, Table 3)?
--
-- First train the masked model, then name its trial (or a checkpoint file):
--   toeplab run experiments/glue-mlm.lua model=transformer
--   toeplab run experiments/glue.lua model=transformer start=random,ID
-- model is tnn or another row of that table, as in glue-mlm.lua.
-- Validation uses the official development part, because the labels of the test parts are not
-- public: it chooses both the best epoch and the best learning rate. The tasks need toeplab data
-- fetch glue; mnli, qnli and qqp their own sets.
local tl = require "toeplab"

local TASKS = "cola mnli mrpc qnli qqp rte sst2 stsb wnli"

-- The metric of a task is logged under the task's name; mnli has two.
local better = {}
for task in (TASKS .. " mnli_m mnli_mm"):gmatch "%S+" do
  better[task], better["valid_" .. task] = "higher", "higher"
end

-- Generated examples in the form of a task's file, for the scale smoke.
local generated = {
  cola = function(i)
    return i % 3 == 0 and "x\t0\t*\tman the old told sea ." or "x\t1\t\tthe old man told it ."
  end,
  rte = function(i)
    if i == 0 then return "index\tsentence1\tsentence2\tlabel" end
    return ("%d\tthe young man told %s .\tit was the moon .\t%s"):format(i,
      i % 2 == 0 and "the moon" or "the sea", i % 2 == 0 and "entailment" or "not_entailment")
  end,
  stsb = function(i)
    if i == 0 then return "index\tsentence1\tsentence2\tscore" end
    return ("%d\tthe old sea\tthe %s sea\t%d"):format(i, i % 5 == 0 and "young" or "old", i % 6)
  end,
}

local function lines(of, count)
  local list = {}
  for i = 0, count do list[i + 1] = of(i) end
  return "text:" .. table.concat(list, "\n")
end

-- Opens the task c.task with the tokens of a vocabulary.
local function open(c, vocab, tokenizer)
  local name = c.task:match "^text:(.*)$"
  local train = name and lines(generated[name], 24) or nil
  return tl.tasks.glue { task = name or c.task, vocab = vocab, tokenizer = tokenizer,
    length = c.length, spaced = c.spaced, train = c.train > 0 and c.train or nil,
    train_file = train, valid_file = name and lines(generated[name], 12) or nil }
end

-- Makes the model, from the masked one if there is one.
local function build(c, data, masked)
  local o = tl.mlm.options_of_model(c, data)
  o.classes, o.head_dropout, o.as_published = data.classes, c.head_dropout, c.as_published
  local model = tl.models.tnn_mlm_classifier(o)
  return masked and model:start_from(masked) or model
end

-- Returns the metrics of the validation parts by name, and a second measure of the first part:
-- accuracy, or the Spearman correlation of numbers.
local function evaluate(c, data, model)
  local values = {}
  for i, part in ipairs(data.valid) do
    local said, labels, loss = tl.classify.predict(model, part.set, c.batch)
    values[part.name], values["majority_" .. part.name] = data.measure(said, labels), part.majority
    if i == 1 then
      values.valid_loss = loss
      local second = data.classes > 1 and "accuracy" or "spearman"
      values[second] = tl.metrics[second](said, labels)
    end
  end
  return values
end

-- ---- The report ---------------------------------------------------------------------------------

-- Returns the table under a key of a table, which it makes if absent.
local function at(tree, key)
  tree[key] = tree[key] or {}
  return tree[key]
end

local function mean(list)
  local sum = 0.0
  for _, value in ipairs(list) do sum = sum + value end
  return sum / #list
end

-- Returns the learning rate of the highest mean over the seeds, and its values by seed. A mean that
-- is not a number counts as lowest.
local function best_rate(rates)
  local best
  for lr, values in pairs(rates) do
    local value, most = mean(values), best and mean(rates[best])
    local higher = not best or value > most or most ~= most or value == most and lr < best
    if higher and (not best or value == value) then best = lr end
  end
  return best, rates[best]
end

-- Returns a row for each metric, model and start: the metric by the best learning rate.
local function rows_of(trials)
  local groups, order, majority, rows = {}, {}, {}, {}
  for _, t in ipairs(trials) do
    for name, value in pairs(t.metrics) do
      local task = name:match "^majority_(.*)$"
      if task then
        local key = ("%s\n%s\n%s"):format(task, t.config.model, t.config.start)
        if not groups[key] then order[#order + 1] = key end
        majority[key] = value == value and value or "-" -- a constant has no correlation
        table.insert(at(at(groups, key), t.config.lr), t.metrics[task])
      end
    end
  end
  table.sort(order)
  for i, key in ipairs(order) do
    local task, model, start = key:match "^(.-)\n(.-)\n.-([^/]*)$" -- of a file, its name only
    local lr, values = best_rate(groups[key])
    local shown = {}
    for j, value in ipairs(values) do shown[j] = ("%.3f"):format(value) end
    if start ~= "random" then start = "masked, " .. start:sub(1, 12) end
    rows[i] = { task, model, start, lr, mean(values), majority[key], table.concat(shown, " ") }
  end
  return rows
end

return tl.experiment "glue" {
  answers = "tnn/table3",
  better = better,
  fixed = tl.mlm.sizes("laptop", {
    dropout = 0.1, head_dropout = 0.0, as_published = false,
    length = 128, spaced = true, train = 6000, batch = 16, epochs = 3, warmup = 0.06,
    weight_decay = 0.1, clip = 0.0,
  }),
  grid = {
    model = { "tnn" }, task = { "cola", "sst2", "mrpc", "rte" }, start = { "random" },
    lr = { 1e-4, 3e-4, 1e-3 },
  },
  seeds = 3,
  data = { "task", "corpus" },

  scale = {
    smoke = tl.mlm.sizes("smoke", {
      task = { "text:cola", "text:rte", "text:stsb" }, lr = { 1e-3 }, length = 32, batch = 4,
      epochs = 1,
    }),
    laptop = {},
    paper = tl.mlm.sizes("paper", { -- the recipe of fairseq's RoBERTa
      task = { "mnli", "qnli", "qqp", "sst2", "mrpc", "cola" },
      lr = { 1e-5, 3e-5, 6e-5, 1e-4 }, length = 512, spaced = false, train = 0, batch = 32,
      as_published = true,
    }),
  },
  -- The published runs had batches of 16 for the small tasks.
  when = { { where = { layers = 12, task = { "mrpc", "cola" } }, fixed = { batch = 16 } } },

  check = function(c)
    local name = c.task:match "^text:(.*)$"
    if name and not generated[name] then error("task=" .. c.task .. " has no generator", 0) end
    if not name and not (" " .. TASKS .. " "):find(" " .. c.task .. " ", 1, true) then
      error("task: known are " .. TASKS, 0)
    end
    tl.mlm.check_model(c)
    if c.start:find "^@" then
      error("start takes an id: " .. c.start .. " is another every time", 0)
    end
    for _, key in ipairs { "batch", "epochs" } do
      if c[key] < 1 then error(key .. " must be at least 1", 0) end
    end
    if c.train < 0 or not (c.warmup >= 0 and c.warmup < 1) then
      error("train must be at least 0 (0: all), warmup from 0 to below 1", 0)
    end
  end,

  trial = function(t, c)
    local vocab, tokenizer, masked, from = tl.mlm.start(t, c)
    local data = open(c, vocab, tokenizer)
    local model, epoch = build(c, data, masked), data.train:steps(c.batch)
    local steps = c.epochs * epoch
    local opt = tl.optim.adam(model, { kind = "fairseq", betas = { 0.9, 0.98 }, eps = 1e-6,
      lr = c.lr, weight_decay = c.weight_decay, clip = c.clip, schedule = "polynomial",
      warmup = math.floor(c.warmup * steps), steps = steps })
    t:say("%s of %d parameters, start: %s; %d examples, %d steps an epoch", c.model,
      (model:count()), from, data.train.count, epoch)
    local first, timer = data.valid[1].name, tl.cost.timer(t)
    for step in t:steps(steps, model, opt) do
      local loss, info = timer:time(function()
        return tl.classify.step(model, opt, data.train:batch(step, c.batch))
      end)
      t:log { loss = loss, lr = info.lr }
      if step % epoch == 0 then
        local values = evaluate(c, data, model)
        t:log { valid_loss = values.valid_loss, ["valid_" .. first] = values[first] }
        t:best(1 - values[first])
      end
    end
    local best = t:load_best()
    t:text("start", from)
    t:log(evaluate(c, data, model))
    t:log { parameters = (model:count()), best_step = best or steps }
    t:log { steps_per_second = timer:rate() }
  end,

  report = function(trials, report)
    local titles = { "task", "model", "start", "best lr", "metric", "most frequent class",
      "by seed" }
    report.table(titles, rows_of(trials), nil,
      "metric: Matthews of cola, F1 of mrpc, Pearson of stsb, else accuracy; validation part")
  end,
}
