-- saturation.lua: how far does the relative position encoder of a TNN shape its kernel before it
-- saturates, at initialisation, and how much does the kernel amplify?
--
-- The norm after the first linear map preserves only the direction of w k + b, which tends to that
-- of w as k grows. So RPE(k) tends to a constant, at a distance of order 1/k, and beyond some
-- twenty tokens the kernel of an untrained TNN is about that constant times gamma^k.
local tl = require "toeplab"

local FAR = 1e9 -- a lag at which the encoder has reached its limit in float32

-- Returns |RPE(k) - RPE(FAR)| / |RPE(FAR)|, norms over the channels, by lag k.
local function distances(rpe, lags)
  local near, far = rpe(tl.tensor(lags), 2), rpe(tl.tensor { FAR }, 2)
  local off = ((near - far):square():sum(2) / far:square():sum()):sqrt():totable()
  local list = {}
  for i, lag in ipairs(lags) do list[lag] = off[i] end
  return list
end

local function quantile(sorted, q)
  return sorted[math.max(1, math.ceil(q * #sorted))]
end

-- Returns the sums over lags 0..n-1 of |RPE(k)| gamma^k by channel, sorted: the largest factor by
-- which the operator may amplify its input.
local function gains(rpe, n, gamma)
  local weights = tl.exp(tl.range(0, n - 1) * math.log(gamma)):reshape(-1, 1)
  local list = (rpe(tl.range(0, n - 1), n):abs() * weights):sum(1):totable()
  table.sort(list)
  return list
end

-- Returns means and standard deviations of the distance over the seeds, by lag.
local function over_seeds(trials, report, layers)
  local values, result = {}, {}
  for _, t in ipairs(trials) do
    if t.config.rpe_layers == layers then
      local lags, off = t:series "distance"
      for i, lag in ipairs(lags) do
        values[lag] = values[lag] or {}
        table.insert(values[lag], off[i])
      end
    end
  end
  for lag, list in pairs(values) do result[lag] = table.pack(report.mean(list)) end
  return result
end

local function depths(trials)
  local set, list = {}, {}
  for _, t in ipairs(trials) do
    local layers = t.config.rpe_layers
    if not set[layers] then list[#list + 1] = layers end
    set[layers] = true
  end
  table.sort(list)
  return list
end

local function distance_table(trials, report, lags, layers)
  local header, rows, curves = { "lag" }, {}, {}
  for _, L in ipairs(layers) do
    header[#header + 1] = ("distance, %d layers"):format(L)
    header[#header + 1] = "deviation"
    curves[L] = over_seeds(trials, report, L)
  end
  for i, lag in ipairs(lags) do
    rows[i] = { lag }
    for c, L in ipairs(layers) do
      rows[i][2 * c], rows[i][2 * c + 1] = table.unpack(curves[L][lag], 1, 2)
    end
  end
  report.table(header, rows)
  return curves
end

local function gain_table(trials, report, layers)
  local rows, names = {}, { "gain_5", "gain_50", "gain_95", "gain_most" }
  for i, L in ipairs(layers) do
    rows[i] = { L }
    for c, name in ipairs(names) do
      local values = {}
      for _, t in ipairs(trials) do
        if t.config.rpe_layers == L then values[#values + 1] = t.metrics[name] end
      end
      rows[i][c + 1] = (report.mean(values))
    end
  end
  report.table({ "layers", "gain of 5 % of channels", "median", "of 95 %", "greatest" }, rows,
    "saturation-gain")
end

-- Returns a panel of RPE(k) for some channels of the first trial.
local function channels(trial)
  local series = {}
  for c = 1, trial.config.shown do
    local x, y = trial:series("channel " .. c)
    series[c] = { name = "channel " .. c, x = x, y = y }
  end
  return { title = "RPE(k) of a few channels, one seed", xlabel = "lag k", ylabel = "RPE(k)",
    key = "below", series = series }
end

return tl.experiment "saturation" {
  label = { step = "lag or percentile" },
  fixed = {
    channels = 512, rpe_dim = 64, rpe_act = "relu", rpe_norm = "simplermsnorm",
    lags = { 0, 1, 2, 5, 10, 20, 50, 100, 200, 500 },
    length = 512, decay = 0.99,  -- of the kernel whose amplification is measured
    shown = 4,                   -- channels to draw
  },
  grid = { rpe_layers = { 3, 6 } },
  seeds = 20,
  scale = { smoke = { channels = 64 } },

  trial = function(t, c)
    local rpe = tl.nn.RPE(c.channels, { hidden = c.rpe_dim, layers = c.rpe_layers, act = c.rpe_act,
      norm = c.rpe_norm })
    tl.no_grad(function()
      for lag, off in pairs(distances(rpe, c.lags)) do t:log({ distance = off }, lag) end
      local g = gains(rpe, c.length, c.decay)
      t:log { gain_5 = quantile(g, 0.05), gain_50 = quantile(g, 0.5), gain_95 = quantile(g, 0.95),
        gain_most = g[#g] }
      local drawn = rpe(tl.range(0, 100), c.length):totable()
      for k = 0, 100 do
        local values = {}
        for i = 1, c.shown do values["channel " .. i] = drawn[k + 1][i] end
        t:log(values, k)
      end
    end)
  end,

  report = function(trials, report)
    local lags, layers, series = trials[1].config.lags, depths(trials), {}
    local curves = distance_table(trials, report, lags, layers)
    gain_table(trials, report, layers)
    local law = { name = "1 / k", x = {}, y = {}, dashed = true, colour = 7 }
    for i, L in ipairs(layers) do
      local s = { name = L .. " layers", x = {}, y = {}, error = {}, style = "both" }
      for k, lag in ipairs(lags) do
        s.x[k], s.y[k], s.error[k] = lag, curves[L][lag][1], curves[L][lag][2] or 0 / 0
        law.x[k], law.y[k] = lag, lag >= 5 and 1 / lag or 0 / 0
      end
      series[i] = s
    end
    series[#series + 1] = law
    report.plot { panels = {
      { title = "Distance of RPE(k) from its limit, mean and deviation of the seeds",
        xlabel = "lag k", ylabel = "relative distance", logx = true, logy = true, series = series },
      channels(trials[1]),
    } }
  end,
}
