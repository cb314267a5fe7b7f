-- tnn-table5.lua: which classifier of long sequences trains fastest at 1K to 5K tokens?
-- (TNN, Table 5)
--
-- It measures time: run it alone, with one worker (-j1), on a machine that does nothing else. The
-- tokens are random, because time does not depend on what they say, and nothing is learnt. A model
-- stops before a length at which it would take more memory than `gib`, or longer than `limit`
-- seconds a step; the table then has a dash, as the paper's has where 48 GiB did not suffice.
--
-- The number of layers of each model is that of the released speed test; widths that are not known
-- are chosen for its 0.72 to 0.81 M parameters beside the embedding. FLASH has 0.71 M, and
-- Linformer a map of positions besides, which grows with the length. 1+elu and BigBird are no rows
-- of the table.
local tl = require "toeplab"

local ffn = { channel = "ffn", glu_dim = 256, act = "gelu", norm = "layernorm" }
local alone = { layout = "none", channel = "none" }

-- Returns the options of a mixer in layers of a kind.
local function with(mixer, layers, mixer_options, kind, more)
  local o = { mixer = mixer, layers = layers, mixer_options = mixer_options }
  for _, options in ipairs { kind or ffn, more or {} } do
    for key, value in pairs(options) do o[key] = value end
  end
  return o
end

-- By model: its options at length n.
local models = {
  tnn = function() return { layers = 6, glu_dim = 192, max_lag = 1024 } end,
  transformer = function() return with("attention", 6, {}, ffn, { heads = 8 }) end,
  flash = function() return with("flash", 6, { shared = 128 }, alone) end,
  ["transformer-ls"] = function()
    return with("ls_bidirectional", 6, { window = 8 }, ffn, { heads = 8, glu_dim = 128 })
  end,
  performer = function() return with("performer", 6, { features = 32 }, ffn, { heads = 2 }) end,
  cosformer = function(n) return with("cosformer", 6, { length = n }, ffn, { heads = 8 }) end,
  linformer = function(n) return with("linformer", 6, { max_length = n }, ffn, { heads = 2 }) end,
  reformer = function() return with("reformer", 8, {}, ffn, { heads = 2, glu_dim = 192 }) end,
  nystorm = function() -- the paper's spelling
    return with("nystrom", 5, { landmarks = 128 }, ffn, { heads = 2, glu_dim = 320 })
  end,
  ["state-space"] = function() return with("s4", 6, {}, ffn, { glu_dim = 192 }) end,
  fnet = function() return with("fnet_mixing", 9, {}, ffn, { glu_dim = 312 }) end,
  ["1+elu"] = function() return with("linear_attention", 6, {}, ffn, { heads = 8 }) end,
  bigbird = function() return with("bigbird", 6, {}, ffn, { heads = 2 }) end,
}

local order = { "transformer", "flash", "transformer-ls", "performer", "cosformer", "linformer",
  "reformer", "nystorm", "state-space", "fnet", "tnn", "1+elu", "bigbird" }

local function make(c, n)
  local o = models[c.model](n)
  o.vocab, o.classes, o.dim, o.expand, o.rpe_dim = 256, 2, c.dim, 1.0, 16
  o.init, o.backend = "torch", c.model == "tnn" and c.backend or nil
  return tl.models.tnn_classifier(o)
end

-- Returns a batch of random tokens and labels.
local function batch_of(c, n)
  local stream, ids, labels = tl.stream(1, "tnn-table5"), {}, {}
  for row = 1, c.batch do
    ids[row], labels[row] = {}, stream:below(2)
    for i = 1, n do ids[row][i] = stream:below(256) end
  end
  return { ids = tl.ids(ids), labels = tl.ids(labels) }
end

-- Trains the model for about c.seconds after a first step, which makes plans: returns the steps in
-- a second. Each step ends by reading its loss, for which a GPU is waited for.
local function measure(c, model, batch)
  local opt = tl.optim.adam(model, { kind = "adamw", lr = 1e-4 })
  tl.classify.step(model, opt, batch)
  local began, steps, took = tl.sys.clock(), 0, 0.0
  while steps < 2 or took < c.seconds do
    tl.classify.step(model, opt, batch)
    steps, took = steps + 1, tl.sys.clock() - began
  end
  return steps / took
end

return tl.experiment "tnn-table5" {
  answers = "tnn/table5",
  fixed = {
    lengths = { 1024, 2048, 3072, 4096, 5120 }, dim = 128, batch = 2, backend = "rac",
    seconds = 3.0, -- of timing at each length
    limit = 60.0,  -- seconds that a step may take
    gib = 6.0,     -- memory that a step may take, by the formula of tl.models.estimate
  },
  grid = { model = order },
  scale = {
    smoke = { lengths = { 64, 128 }, dim = 16, batch = 2, seconds = 0.01 },
    laptop = {},
    paper = { batch = 20, gib = 40.0, seconds = 5.0 },
  },

  check = function(c)
    if not models[c.model] then error("model: known are " .. table.concat(order, ", "), 0) end
    if c.batch < 1 then error("batch must be at least 1", 0) end
  end,

  trial = function(t, c)
    local last, at
    for _, n in ipairs(c.lengths) do
      local slowest = last and last * (n / at) ^ 2 -- no model is worse than quadratic
      if slowest and slowest > c.limit then
        t:say("stops before n = %d: a step would take up to %.0f s", n, slowest)
        break
      end
      local model = make(c, n)
      local bytes = tl.models.estimate(model, n, c.batch).total_bytes
      if bytes > c.gib * 2 ^ 30 then
        t:say("stops before n = %d: a step would take about %.1f GiB", n, bytes / 2 ^ 30)
        break
      end
      local rate = measure(c, model, batch_of(c, n))
      t:log({ steps_per_second = rate }, n)
      t:log { ["steps_per_second@" .. n] = rate, longest = n, parameters = (model:count()),
        mflop_a_token = model:cost(n) / n / 1e6 }
      last, at = 1 / rate, n
    end
  end,

  report = function(trials, report)
    local rows = {}
    local header = { "model", "parameters", "MFLOP a token" }
    for i, t in ipairs(trials) do
      local row = { t.config.model, t.metrics.parameters or "-", t.metrics.mflop_a_token or "-" }
      for k, n in ipairs(t.config.lengths) do
        header[3 + k] = "steps/s at " .. n
        row[3 + k] = t.metrics["steps_per_second@" .. n] or "-"
      end
      rows[i] = row
    end
    report.table(header, rows, nil,
      "parameters and FLOP of a forward pass: at the longest length that was measured")
  end,
}
