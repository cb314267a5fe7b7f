-- mad.lua: how do token mixers score on the six synthetic tasks of MAD (mechanistic architecture
-- design, Poli et al. 2024)?
--
-- In-context, fuzzy and noisy recall, selective copying, compression and memorization, with models
-- of two blocks, each with a mixer and a SwiGLU. A setting runs at three learning rates and two
-- weight decays, and its score is the best test accuracy of the six, as published, so the test
-- examples choose among six runs. The score of a task is the mean over its settings, a mixer's the
-- mean over the tasks. Scale paper has all 66 settings at the published size, scale laptop the
-- first one of each task, smaller and with fewer steps.
--
-- For compression the model is an auto-encoder: a small network decodes each token from the state
-- after the last token and a position. Differences from the released code: the accuracy is the
-- share of the targets, where theirs is averaged over the classes of a batch; the last key of fuzzy
-- recall always occurred before; weight decay applies to all parameters; the rate falls with each
-- step, not with each epoch; numbers are float32, not bfloat16.
local tl = require "toeplab"
local nn = tl.nn

-- Of each setting of the benchmark, a row whose keys are its options; the names of all rows, of the
-- first one of each task, and the tasks.
local settings, every, tasks = {}, {}, {}
for i, setting in ipairs(tl.mad.settings()) do
  local key, value = next(setting.options)
  every[i] = key and ("%s %s=%s"):format(setting.task, key, value) or setting.task
  settings[i] = { every[i], task = setting.task, change = setting.options }
  if not key then tasks[#tasks + 1] = setting.task end
end

-- The encoder's state after the last token and the places [n] -> the tokens.
local AutoEncoder = nn.class("AutoEncoder", {
  encoder = nn.Block.spec.fields.token, dim = "int", vocab = "int", max_length = "int",
}, { "encoder" })

function AutoEncoder:build(o)
  local d = o.dim
  self.encoder, self.places = o.encoder, nn.Sinusoidal(d)
  self.decoder = nn.Sequential(nn.norm("rmsnorm", d), nn.Linear(d, d), nn.Activation "gelu",
    nn.norm("rmsnorm", d), nn.Linear(d, d), nn.Activation "gelu", nn.norm("rmsnorm", d))
  self.head = nn.Linear(d, o.vocab)
end

function AutoEncoder:hidden(ids)
  local n = ids:dim(2)
  local last = self.encoder:hidden(ids):narrow(2, n, 1)
  return self.decoder(self.places(last + tl.zeros(n, 1)))
end

function AutoEncoder:logits(hidden) return self.head(hidden) end

local function make(c, data)
  local encodes = c.task == "compression"
  local model = tl.models.tnn_lm(tl.overlay({
    vocab = data.vocab, layers = c.layers, dim = c.dim, glu_dim = (c.dim * 8 // 3 + 15) // 16 * 16,
    norm = "rmsnorm", final_norm = encodes and "none" or "rmsnorm", tied = false,
    embed_scale = false, output_bias = true, init = "torch", heads = c.dim // 8,
    max_length = data.length,
    mixer_options = c.mixer == "hyena" and { length = data.length } or nil,
  }, c.options))
  return encodes and AutoEncoder(model, { dim = c.dim, vocab = data.vocab,
    max_length = data.length }) or model
end

-- Returns by mixer and task a list of the best accuracies of each setting and seed. A task of which
-- another mixer has more settings, or a setting more runs, is false: its score would compare less.
local function scores_of(trials)
  local best, scores, runs, most = {}, {}, 0, {}
  for _, trial in ipairs(trials) do
    local c = trial.config
    local key = table.concat({ c.mixer, c.setting, trial.seed }, "\n")
    local one = best[key] or { mixer = c.mixer, task = c.task, accuracy = 0.0, runs = 0 }
    best[key], one.runs = one, one.runs + 1
    one.accuracy = math.max(one.accuracy, trial.metrics.test_accuracy)
    runs = math.max(runs, one.runs)
  end
  for _, one in pairs(best) do
    scores[one.mixer] = scores[one.mixer] or {}
    local of = scores[one.mixer]
    of[one.task] = of[one.task] or {}
    if one.runs == runs then table.insert(of[one.task], one.accuracy) end
    most[one.task] = math.max(most[one.task] or 0, #of[one.task])
  end
  for _, of in pairs(scores) do
    for task, list in pairs(of) do of[task] = #list == most[task] and #list > 0 and list end
  end
  return scores
end

return tl.experiment "mad" {
  fixed = { layers = 2, dim = 64, batch = 16, epochs = 200, steps = 2000, test = 1280 },
  rows = {
    mixer = {
      { "attention", options = { mixer = "attention", mixer_options = { positions = "rotary" } } },
      { "hyena", options = { mixer = "hyena" } },
      { "mamba", options = { mixer = "mamba" } },
      { "gla", options = { mixer = "gla" } },
      { "deltanet", options = { mixer = "delta_net" } },
      { "tnn", options = { backend = "rac", expand = 2.0, rpe_dim = 32, rpe_layers = 3 } },
      { "fd", options = { backend = "fd", decay = "none", expand = 2.0, rpe_dim = 32,
        rpe_layers = 3 } },
    },
    setting = settings,
  },
  grid = { setting = tasks, lr = { 1e-4, 5e-4, 1e-3 }, weight_decay = { 0.0, 0.1 } },
  seeds = 1,
  scale = {
    smoke = { layers = 1, dim = 16, batch = 2, steps = 2, test = 4, mixer = { "attention",
      "tnn" }, lr = { 1e-3 } },
    laptop = {},
    paper = { dim = 128, batch = 128, steps = 20000, setting = every },
  },

  trial = function(t, c)
    local data = tl.mad[c.task](tl.overlay({ batch = c.batch, test = c.test }, c.change))
    local model = make(c, data)
    local steps = math.min(c.epochs * data:steps(), c.steps)
    local opt = tl.optim.adam(model, { kind = "adamw", lr = c.lr, weight_decay = c.weight_decay,
      schedule = "cosine", steps = steps, end_lr = 1e-6 })
    for step in t:steps(steps, model, opt) do
      local loss, info = tl.recall.step(model, opt, data:batch(step))
      t:log { loss = loss, lr = info.lr }
    end
    local accuracy, nats = tl.recall.accuracy(model, data, "test", c.batch)
    t:log { test_accuracy = accuracy, test_loss = nats, parameters = (model:count()) }
  end,

  report = function(trials, report)
    local rows = {}
    for mixer, score in pairs(scores_of(trials)) do
      local row, means = { mixer }, {}
      for i, task in ipairs(tasks) do
        means[#means + 1] = score[task] and report.mean(score[task])
        row[i + 1] = score[task] and means[#means] or "-"
      end
      row[#row + 1] = #means == #tasks and report.mean(means) or "-"
      rows[#rows + 1] = row
    end
    table.sort(rows, function(a, b) return a[1] < b[1] end)
    local header = table.move(tasks, 1, #tasks, 2, { "mixer" })
    header[#header + 1] = "score"
    report.print(header, rows)
  end,
}
