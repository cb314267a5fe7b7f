-- test_cost.lua: the arithmetic and the stored numbers of layers, against numbers worked out by
-- hand, and their growth with the length.
local t = require "harness"
local tl = require "toeplab"
local mixers = require "toeplab.nn.mixers"
local nn = require "toeplab.nn"

local function flop(module, n) return (module:cost(n)) end

t.test("a linear map takes 2 FLOP per weight and position, and stores its output", function()
  local map = nn.Linear(3, 5)
  t.eq({ map:cost(7) }, { 210.0, 35.0 })
  t.eq({ nn.Sequential { map, tl.silu, nn.LayerNorm(5), nn.Linear(5, 1) }:cost(7) },
    { 210.0 + 70, 35.0 + 7 })
end)

t.test("softmax attention: four maps of 8 x 8, then two products of all pairs", function()
  local mixer = mixers.make("attention", 8, { heads = 2 }, {})
  -- maps 4 * 2 * 10 * 64; q k and weights v 2 * 2 * 10 * 10 * 8; stored: maps, two numbers of a
  -- row of weights, results
  t.eq({ mixer:cost(10) }, { 5120.0 + 3200, 4 * 80.0 + 4 * 10 + 80 })
  t.eq(flop(mixers.make("attention", 8, { heads = 2, causal = false }, {}), 10), 8320.0)
end)

t.test("linear attention: states of 4 x 5, and products within chunks if causal", function()
  local both = mixers.make("linear_attention", 8, { heads = 2 }, { causal = false })
  -- v has a column of ones: per head 2 * 2 * 100 * 4 * 5
  t.eq(flop(both, 100), 2 * 4 * 100 * 64 + 2 * 8000.0)
  local causal = mixers.make("linear_attention", 8, { heads = 2 }, {})
  -- and per head, by chunks of 64, 2 * 100 * 64 * (4 + 5)
  t.eq(flop(causal, 100), 2 * 4 * 100 * 64 + 2 * (8000.0 + 115200))
  -- a single chunk needs no states
  t.eq(flop(causal, 10), 2 * 4 * 10 * 64 + 2 * (2 * 10 * 10 * 9.0))
end)

-- A causal GTU of 4 channels and 8 inside, an encoder 1 -> 3 -> 3 -> 8.
local function gtu(more)
  local tno = { rpe = { hidden = 3, layers = 1 } }
  for name, value in pairs(more or {}) do tno[name] = value end
  return nn.GTU(4, { expand = 2, tno = tno })
end

t.test("a GTU: its maps, its encoder at the lags, three transforms of twice the length", function()
  local maps, encoder = 3 * 2 * 16 * 32.0, 2 * 16 * (3 + 9 + 24.0)
  local transform = 2.5 * 32 * 5 -- of 32 numbers
  t.eq(flop(gtu(), 16), maps + encoder + 8 * (3 * transform + 6 * 16))
  t.eq(flop(gtu { backend = "naive" }, 16), maps + encoder + 8 * 2 * (16 * 17 / 2))
  t.eq(flop(gtu { backend = "naive", causal = false }, 16),
    maps + encoder / 16 * 31 + 8 * 2 * 256.0)
  -- with 4 lags: four pieces of 8 numbers, and the kernel's transform
  t.eq(flop(gtu { max_lag = 4 }, 16), maps + encoder / 4 + 8 * (9 * 2.5 * 8 * 3 + 4 * 6 * 4.0))
end)

t.test("a step: three times the forward passes, with the coefficients once", function()
  local model, plain = nn.Sequential { gtu(), gtu() }, nn.Linear(3, 5)
  local maps, encoder = 2 * 3 * 2 * 16 * 32.0, 2 * 2 * 16 * (3 + 9 + 24.0)
  local transform = 2.5 * 32 * 5
  local once, each = encoder + 16 * transform, maps + 16 * (2 * transform + 6 * 16)
  t.eq(tl.cost.step_flop(model, 16, 1), 3 * flop(model, 16))
  t.eq(tl.cost.step_flop(model, 16, 5), 3 * (once + 5 * each))
  t.eq(tl.cost.step_flop(plain, 7, 5), 3 * 5 * 210.0)
end)

t.test("S4D: one map of 4 x 8, a kernel of 3 modes at each lag, three transforms", function()
  local mixer = mixers.make("s4d", 4, {}, { state = 6 })
  t.eq(flop(mixer, 16), 2 * 16 * 32.0 + 4 * 16 * 4 * 3 + 4 * (3 * 2.5 * 32 * 5 + 6 * 16))
  local both = mixers.make("s4d", 4, {}, { state = 6, causal = false })
  t.eq(flop(both, 16) - flop(mixer, 16), 15 * 4 * 4 * 3.0)
end)

t.test("S4: four sums over 3 pairs of modes at each of half as many frequencies as lags", function()
  local function own(o)
    local mixer = mixers.make("s4", 4, {}, o)
    return flop(mixer, 16) - 2 * 16 * 32 - 4 * (3 * 2.5 * 32 * 5 + 6 * 16)
  end
  local inverse = 2.5 * 16 * 4 -- the transform of a kernel
  t.eq(own { state = 6 }, 4 * (8 * 3 * (4 * 8 + 2 * 9) + inverse))
  t.eq(own { state = 6, as_published = true }, 4 * (8 * 3 * (4 * 8 + 9) + inverse))
end)

local quadratic = { attention = true, cat = true, flash_quad = true, gated_attention = true,
  gmlp = true, kernelized = true, synthesizer_dense = true, synthesizer_random = true,
  transformer_ls = true }

t.test("only quadratic mixers grow by more than a logarithm per token", function()
  for _, name in ipairs(mixers.names) do
    local n = 1 << 13
    local mixer = mixers.make(name, 16,
      { heads = 2, max_length = 2 * n, length = 2 * n }, {})
    local ratio = flop(mixer, 2 * n) / flop(mixer, n)
    t.ok(flop(mixer, 1) > 0, name)
    if quadratic[name] then
      t.ok(ratio > 3, ("%s grows by %.2f"):format(name, ratio))
    else
      local most = name == "reformer" and 3 or 2.3 -- its buckets are as many as its chunks
      t.ok(ratio > 1.2 and ratio < most, ("%s grows by %.2f"):format(name, ratio))
    end
  end
end)

t.test("models add their blocks, and count the output map once, tied or not", function()
  local o = { vocab = 10, layers = 2, dim = 4, rpe_dim = 3, rpe_layers = 1 }
  local tied = tl.models.tnn_lm(o)
  local block = flop(tied.layers[1], 16)
  t.eq(flop(tied, 16), 2 * block + 2 * 16 * 40.0)
  o.tied = false
  t.eq(flop(tl.models.tnn_lm(o), 16), flop(tied, 16))
  o.tied, o.classes = nil, 3
  local classifier = tl.models.tnn_classifier(o)
  t.eq(flop(classifier, 16), 2 * flop(classifier.layers[1], 16) + 2 * 12.0)
end)

t.test("counts do not overflow at huge lengths", function()
  for _, name in ipairs { "attention", "linear_attention", "gtu", "s4d", "mamba" } do
    t.ok(flop(mixers.make(name, 16, {}, {}), 1 << 31) > 1e12, name)
  end
end)

t.test("the memory estimate with named mixers is within a factor of three of what training takes",
  function()
    for _, name in ipairs { "attention", "linear_attention", "s4", "s4d", "mamba", "gmlp",
      "nystrom", "afno" } do
      tl.seed(1)
      local causal = mixers.class(name).spec.fields.causal.default
      local model = tl.models.tnn_lm { vocab = 11, layers = 3, dim = 48, heads = 2, mixer = name,
        causal = causal }
      local opt, rows = tl.optim.adam(model), {}
      for i = 1, 4 do
        rows[i] = {}
        for j = 1, 257 do rows[i][j] = i * j % 11 end
      end
      local ids = tl.ids(rows)
      tl.train.lm_step(model, opt, ids)
      collectgarbage()
      tl.memory_reset_peak()
      tl.train.lm_step(model, opt, ids)
      local ratio = tl.memory().peak / tl.models.estimate(model, 256, 4).total_bytes
      t.ok(ratio > 1 / 3 and ratio < 3, ("%s: measured over estimated %.2f"):format(name, ratio))
    end
  end, "cpu")

-- What toeplab model prints for words, and its exit code.
local function says(words)
  return t.shell("'" .. tl.sys.executable() .. "' model " .. words .. " 2>&1")
end

t.test("toeplab model prints the FLOP of a token and of a sequence at a length", function()
  local words = "tnn_lm vocab=10 layers=1 dim=16 heads=2 mixer="
  local model = tl.models.tnn_lm { vocab = 10, layers = 1, dim = 16, heads = 2,
    mixer = "attention" }
  local before = 0.0
  for _, n in ipairs { 100, 1000 } do
    local text = says(words .. "attention length=" .. n)
    local token, sequence = text:match "forward pass +([%d.]+) kFLOP +([%d.]+) MFLOP"
    local want = flop(model, n)
    t.eq({ tonumber(token), tonumber(sequence) }, { want / n / 1e3, want / 1e6 }, 0.051)
    t.ok(tonumber(token) > before + 0.01, "grows with n")
    before = tonumber(token)
    t.ok(text:find "not counted: norms")
  end
  t.ok(says(words .. "attention"):find "arithmetic at length 512")
  for _, wrong in ipairs { { words .. "gmlp length=600", "max_length = 512" },
    { "attention_classifier vocab=4 classes=2 max_length=8 length=9",
      "max_length = 8" } } do
    local text, code = says(wrong[1])
    t.eq(code, 2)
    t.ok(text:find(wrong[2], 1, true), text)
  end
end)

t.test("a step on a grid computes the coefficients of both sides once", function()
  local model = nn.GTU(4, { expand = 2, grid = { 4, 8 },
    tno = { rpe = { hidden = 3, layers = 1 } } })
  local once = model.tno.along_height:coefficients_cost(4)
    + model.tno.along_width:coefficients_cost(8)
  t.eq(tl.cost.step_flop(model, 32, 1), 3 * flop(model, 32))
  t.eq(tl.cost.step_flop(model, 32, 5), 3 * (5 * flop(model, 32) - 4 * once))
end)

t.done()
