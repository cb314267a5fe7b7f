-- tnn-table5.lua: which classifier of long sequences trains fastest at 1K to 5K tokens?
-- (TNN, Table 5)
--
-- It measures time: run it alone, with one worker (-j1), on a machine that does nothing else. The
-- tokens are random, because time does not depend on their values. A model stops before a length at
-- which it would take more memory than `gib`, or longer than `limit` seconds per step; the table
-- then has a dash, like the paper's where 48 GiB did not suffice.
--
-- The number of layers of each model is from the released speed test; unknown widths are chosen for
-- its 0.72 to 0.81 M parameters besides the embedding. FLASH has 0.71 M; Linformer also has a map
-- of positions, which grows with the length. 1+elu and BigBird are not rows of the table.
local tl = require "toeplab"

local ffn = { channel = "ffn", glu_dim = 256, act = "gelu", norm = "layernorm" }
local alone = { layout = "none", channel = "none" }

-- Returns a row of the axis model: a mixer in layers of a kind, and options that differ from it.
local function with(name, mixer, layers, kind, more)
  return { name, options = tl.overlay(kind, { mixer = mixer, layers = layers }, more) }
end

-- The mixers that need the length, by the name of their option for it.
local length_of = { cosformer = "length", linformer = "max_length" }

local function make(c, n)
  local o = tl.overlay({ vocab = 256, classes = 2, dim = c.dim, expand = 1.0, rpe_dim = 16,
    init = "torch", backend = c.model == "tnn" and c.backend or nil }, c.options)
  local name = length_of[o.mixer]
  if name then o.mixer_options = { [name] = n } end
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
  label = { step = "length n" },
  answers = "tnn/table5",
  fixed = {
    lengths = { 1024, 2048, 3072, 4096, 5120 }, dim = 128, batch = 2, backend = "rac",
    seconds = 3.0, -- of timing at each length
    limit = 60.0,  -- seconds that a step may take
    gib = 6.0,     -- memory that a step may take, by the formula of tl.models.estimate
  },
  rows = { model = {
    with("transformer", "attention", 6, ffn, { heads = 8 }),
    with("flash", "flash", 6, alone, { mixer_options = { shared = 128 } }),
    with("transformer-ls", "ls_bidirectional", 6, ffn,
      { mixer_options = { window = 8 }, heads = 8, glu_dim = 128 }),
    with("performer", "performer", 6, ffn, { mixer_options = { features = 32 }, heads = 2 }),
    with("cosformer", "cosformer", 6, ffn, { heads = 8 }),
    with("linformer", "linformer", 6, ffn, { heads = 2 }),
    with("reformer", "reformer", 8, ffn, { heads = 2, glu_dim = 192 }),
    with("nystorm", "nystrom", 5, ffn, -- the paper's spelling
      { mixer_options = { landmarks = 128 }, heads = 2, glu_dim = 320 }),
    with("state-space", "s4", 6, ffn, { glu_dim = 192 }),
    with("fnet", "fnet_mixing", 9, ffn, { glu_dim = 312 }),
    with("tnn", nil, 6, nil, { glu_dim = 192, max_lag = 1024 }),
    with("1+elu", "linear_attention", 6, ffn, { heads = 8 }),
    with("bigbird", "bigbird", 6, ffn, { heads = 2 }),
  } },
  scale = {
    smoke = { lengths = { 64, 128 }, dim = 16, batch = 2, seconds = 0.01 },
    laptop = {},
    paper = { batch = 20, gib = 40.0, seconds = 5.0 },
  },

  check = function(c)
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
