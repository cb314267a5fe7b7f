-- responses.lua: what do frequency and impulse responses of a frequency domain TNO look like, with
-- random parameters, GeLU and SiLU, and trained with ReLU (Figures 4 to 6 of "SKI to go Faster")?
--
-- It also draws them on logarithmic axes, which show that they decay like j^-2. Figure 6 takes TNO
-- number layer of the model of trial run=ID, or else trains a small model.
local tl = require "toeplab"

local figures = {
  gelu = "Figure 4: at random, GeLU", silu = "Figure 5: at random, SiLU",
  trained = "Figure 6: trained, ReLU",
}
local order = { "gelu", "silu", "trained" }

-- Returns the causal impulse response [n,c] of the real response h [n+1,c]: t_0 = r_0, t_k = 2 r_k,
-- where r is its inverse Fourier transform.
local function impulse(h, n)
  local rows, channels = h:dim(1), h:dim(2)
  local complex = tl.concat({ h:reshape(rows, channels, 1), tl.zeros(rows, channels, 1) }, 3)
  local r = tl.irfft(complex, 1, 2 * (rows - 1))
  return tl.concat({ r:narrow(1, 1, 1), r:narrow(1, 2, n - 1) * 2 }, 1)
end

local function train(t, c)
  local data = tl.corpus(c.corpus, { length = c.length, batch = c.batch })
  local model = tl.models.tnn_lm { vocab = data.vocab:size(), layers = c.layers, dim = c.dim,
    expand = 1, rpe_dim = c.hidden, rpe_layers = c.rpe_layers, rpe_act = "relu", decay = "none",
    backend = "fd" }
  local opt = tl.optim.adam(model, { lr = c.lr, clip = 1.0, schedule = "cosine", steps = c.steps,
    warmup = c.steps // 10 })
  tl.train.graph(model, opt)
  for step in t:steps(c.steps, model, opt, data) do
    t:log { loss = tl.train.lm_step(model, opt, data:batch(step)) }
  end
  return model
end

-- Returns the responses of TNO number c.layer of a model.
local function of_model(model, c)
  local found, count = nil, 0
  for _, part in ipairs(model:modules()) do
    if part.module.kind == "TNO" and part.module.domain == "frequency" then
      count = count + 1
      if count == c.layer then found = part.module end
    end
  end
  if not found then
    error(("the model has %d frequency domain TNOs, none of number %d"):format(count, c.layer), 0)
  end
  if not found.opt.causal then error("the responses of a bidirectional TNO are not real", 0) end
  return found:coefficients(c.length)
end

local function responses(t, c)
  if c.response == "trained" then
    local model = c.run ~= "" and t:model_of(c.run) or train(t, c)
    return tl.no_grad(of_model, model, c)
  end
  local rpe = tl.nn.RPE(c.channels, { hidden = c.hidden, layers = c.rpe_layers, act = c.response })
  return tl.no_grad(rpe, tl.range(0, c.length) * (math.pi / c.length), c.length)
end

local function curves(trial, name, channels)
  local series = {}
  for c = 1, channels do
    local x, y = trial:series(name .. " " .. c)
    for i, at in ipairs(x) do x[i] = name == "response" and at / trial.config.length or at end
    series[c] = { x = x, y = y }
  end
  return series
end

local function log_panel(trial)
  local series = curves(trial, "impulse", trial.config.shown)
  for _, s in ipairs(series) do
    for i, v in ipairs(s.y) do s.y[i] = math.abs(v) end
  end
  local x, y = {}, {}
  for j = 4, trial.config.length - 1 do x[#x + 1], y[#y + 1] = j, trial.metrics.floor / j ^ 2 end
  series[#series + 1] = { name = "floor / j^2", x = x, y = y, colour = 7, dashed = true }
  return { title = figures[trial.config.response], xlabel = "lag j", ylabel = "|t_j|", logx = true,
    logy = true, key = "bottom left", series = series }
end

-- Returns, for lags j from 1/16 to 1/4 of the length, where aliasing is small, the mean of
-- j^2 |t_j| over lags and channels, and the exponent e of the power j^e that is fitted to the mean
-- of |t_j| over the channels; and the first lag from which on all coefficients are below 1 % of the
-- largest of their channel.
local function measure(k)
  local floor, count, settled, lags, sizes = 0.0, 0, 0, {}, {}
  for j = (#k + 15) // 16, #k // 4 do
    local sum = 0.0
    for _, value in ipairs(k[j + 1]) do sum = sum + math.abs(value) end
    lags[#lags + 1], sizes[#sizes + 1] = j, sum
  end
  for c = 1, #k[1] do
    local most = 0.0
    for j = 0, #k - 1 do most = math.max(most, math.abs(k[j + 1][c])) end
    for j = 0, #k - 1 do
      local size = math.abs(k[j + 1][c])
      if size > 0.01 * most then settled = math.max(settled, j + 1) end
      if 16 * j >= #k and 4 * j <= #k then floor, count = floor + j * j * size, count + 1 end
    end
  end
  return { floor = floor / count, settled = settled,
    exponent = tl.cost.exponent(lags, sizes, 1) }
end

return tl.experiment "responses" {
  answers = { "ski/figure4", "ski/figure5", "ski/figure6" },
  fixed = {
    channels = 16, hidden = 64, rpe_layers = 3, length = 512,
    shown = 6,                           -- channels to draw
    run = "", layer = 1,                 -- trial and TNO for Figure 6
    corpus = "bible-kjv", layers = 2, dim = 64, batch = 4, steps = 200, lr = 3e-3,
  },
  grid = { response = order },
  check = function(c)
    if not figures[c.response] then error("response: known are gelu, silu and trained", 0) end
    if c.length < 16 then error("length must be at least 16", 0) end
    if c.run:find "^@" then error("run takes an id: " .. c.run .. " is another every time", 0) end
  end,
  scale = {
    smoke = {
      channels = 8, hidden = 16, length = 64, layers = 1, dim = 16, steps = 20,
      corpus = "text:" .. ("the quick brown fox jumps over the lazy dog. "):rep(60),
    },
  },

  trial = function(t, c)
    local h = responses(t, c)
    local k = tl.no_grad(impulse, h, c.length):totable()
    t:log(measure(k))
    for m, row in ipairs(h:totable()) do
      for i = 1, c.shown do t:log({ ["response " .. i] = row[i] }, m - 1) end
    end
    for j, row in ipairs(k) do
      for i = 1, c.shown do t:log({ ["impulse " .. i] = row[i] }, j - 1) end
    end
  end,

  report = function(trials, report)
    local rows, panels, logs = {}, {}, {}
    for i, t in ipairs(trials) do
      local title, shown = figures[t.config.response], t.config.shown
      rows[i] = { title, t.metrics.settled, t.metrics.exponent, t.metrics.floor, t.metrics.loss }
      panels[#panels + 1] = { title = title, xlabel = "omega / pi", ylabel = "response",
        series = curves(t, "response", shown) }
      panels[#panels + 1] = { title = "its first lags", xlabel = "lag j",
        ylabel = "impulse response", xrange = { 0, math.min(40, t.config.length - 1) },
        series = curves(t, "impulse", shown) }
      logs[i] = log_panel(t)
    end
    report.table({ "response", "lags to under 1 % of the largest", "exponent of the decay",
      "j^2 |t_j|", "loss" }, rows)
    report.plot({ panels = panels, height = 320 })
    report.plot({ panels = logs, columns = #logs, width = 520 }, "responses-log")
  end,
}
