-- test_kernels.lua: the Toeplitz operators of models as pictures.
local t = require "harness"
local kernels = require "toeplab.report.figures.kernels"
local tl = require "toeplab"

-- ---- Operators --------------------------------------------------------------------------------

local function model_of(o)
  local tno = tl.nn.TNO(4, { decay = o.decay or 0.9, causal = o.causal, backend = o.backend,
    rpe = { hidden = 8, layers = 1 } })
  return tl.nn.Sequential { tno, tl.nn.TNO(4, { decay = "none", causal = o.causal,
    rpe = { hidden = 8, layers = 1 } }) }, tno
end

t.test("matrices agree with the operators", function()
  tl.seed(3)
  local model, tno = model_of { causal = true }
  local list = kernels.panels(model, "matrix", { n = 6 })
  t.eq(#list, 2)
  local dense = tno:dense(6)
  t.eq(list[1].matrix, dense:mean(1), 1e-6)
  t.eq(kernels.panels(model, "matrix", { n = 6, channels = { 3 } })[1].matrix,
    dense:narrow(1, 3, 1):reshape(6, 6), 1e-6)
  local log = kernels.panels(model, "matrix", { n = 6, layers = { 2 }, log = true })
  t.eq(#log, 1)
  t.eq(log[1].title, "layer 2")
  for _, row in ipairs(log[1].matrix) do
    for _, v in ipairs(row) do t.ok(v >= 0) end
  end
end)

t.test("the logarithm is of the mean of magnitudes, in which signs do not cancel", function()
  tl.seed(3)
  local model, tno = model_of { causal = false }
  local panel = kernels.panels(model, "matrix", { n = 6, layers = { 1 }, log = true })[1]
  local dense = tno:dense(6)
  t.eq(panel.matrix, dense:abs():mean(1):reshape(6, 6), 1e-6)
  t.ok((dense:abs():mean(1) - dense:mean(1):abs()):sum():item() > 1e-4) -- some signs differ
  t.eq(panel.zlabel, "|T|, mean over channels")
  t.eq(kernels.panels(model, "matrix", { n = 6, channels = { 2 }, log = true })[1].matrix,
    dense:narrow(1, 2, 1):abs():reshape(6, 6), 1e-6)
end)

t.test("the matrices of all layers have one scale of colours", function()
  for _, case in ipairs {
    { { { 1, 2 }, { -3, 4 } }, { { 9 } }, want = { -3, 9 } },
    { { { 0, 1e-8 } }, { { 1 } }, log = true, want = { 1e-8, 1 } },
    { { { 0 / 0 } }, want = nil },
  } do
    local list = {}
    for i, matrix in ipairs(case) do list[i] = { matrix = matrix, logz = case.log } end
    list[#list + 1] = { series = {} }
    kernels.one_scale(list)
    for i = 1, #case do t.eq(list[i].zrange, case.want) end
    t.eq(list[#list].zrange, nil)
  end
  t.eq({ kernels.length(nil), kernels.length(64), kernels.length(4096) }, { 256, 64, 256 })
end)

t.test("each channel has a panel, in every layer", function()
  tl.seed(3)
  local model, tno = model_of { causal = false }
  local list = kernels.panels(model, "matrix", { n = 6, channels = { 4, 2 } })
  local titles = {}
  for i, panel in ipairs(list) do titles[i] = panel.title end
  t.eq(titles, { "layer 1, T of channel 4", "layer 1, T of channel 2", "layer 2, T of channel 4",
    "layer 2, T of channel 2" })
  for i, channel in ipairs { 4, 2 } do
    t.eq(list[i].matrix, tno:dense(6):narrow(1, channel, 1):reshape(6, 6), 1e-6)
  end
end)

t.test("kernels are the columns and rows of the matrices", function()
  tl.seed(3)
  for _, causal in ipairs { true, false } do
    local model, tno = model_of { causal = causal }
    local dense = tno:dense(5):totable()
    local panel = kernels.panels(model, "kernel", { n = 5, channels = { 2 } })[1]
    t.eq(#panel.series, 1)
    for i, k in ipairs(panel.series[1].x) do
      local want = k >= 0 and dense[2][1 + k][1] or dense[2][1][1 - k]
      t.eq(panel.series[1].y[i], want, 1e-5)
    end
    t.eq(panel.series[1].x[1], causal and 0 or -4)
    t.eq(#panel.series[1].x, causal and 5 or 9)
  end
end)

t.test("responses are the magnitudes of the kernels' transforms", function()
  tl.seed(3)
  for _, causal in ipairs { true, false } do
    local model = model_of { causal = causal }
    local n = 6
    local k = kernels.panels(model, "kernel", { n = n, channels = { 1 } })[1].series[1]
    local h = kernels.panels(model, "response", { n = n, channels = { 1 } })[1].series[1]
    t.eq(#h.y, n + 1)
    for j = 0, n do
      local re, im = 0.0, 0.0
      for i, lag in ipairs(k.x) do
        re = re + k.y[i] * math.cos(math.pi * j * lag / n)
        im = im - k.y[i] * math.sin(math.pi * j * lag / n)
      end
      t.eq(h.x[j + 1], j / n, 1e-12)
      t.eq(h.y[j + 1], math.sqrt(re * re + im * im), 1e-4)
    end
  end
end)

t.test("unknown layers, channels and lengths are errors", function()
  local model = model_of { causal = true }
  t.raises(kernels.panels, "no layer 3: the model has 2", model, "matrix",
    { n = 4, layers = { 3 } })
  t.raises(kernels.panels, "no channel 9: the operator has 4", model, "kernel",
    { n = 4, channels = { 9 } })
  t.raises(kernels.panels, "take [%d.]+ GB: give a smaller", model, "matrix", { n = 100000 })
  t.raises(kernels.panels, "no Toeplitz operators", tl.nn.Linear(2, 2), "matrix", { n = 4 })
end)

t.done()
