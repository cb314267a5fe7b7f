-- test_stats.lua: the statistics of tables and comparisons against known values.
local t = require "harness"
local core = require "toeplab.core"
local judgement = require "toeplab.report.verdicts.judgement"
local line = require "toeplab.base.line"
local stats = require "toeplab.report.stats"
local mean_table = require "toeplab.report.mean_table"

t.test("quantiles of Student's t agree with the tables", function()
  for _, row in ipairs {
    { 0.975, 1, 12.706204736432095 }, { 0.975, 2, 4.302652729911275 },
    { 0.975, 3, 3.182446305284263 }, { 0.975, 4, 2.7764451051977987 },
    { 0.95, 5, 2.0150483733330233 }, { 0.995, 9, 3.2498355415921263 },
    { 0.975, 30, 2.0422724563012373 }, { 0.975, 1000, 1.9623390808264074 },
    { 0.8, 2, 1.0606601717798212 }, { 0.9995, 1, 636.6192487687196 },
  } do
    local p, df, want = table.unpack(row)
    t.eq(stats.t_quantile(p, df), want, 1e-9 * want)
    t.eq(stats.t_quantile(1 - p, df), -want, 1e-9 * want)
    t.eq(stats.t_tail(want, df), 1 - p, 1e-11)
  end
  t.eq(stats.t_quantile(0.5, 7), 0)
  t.eq(stats.t_quantile(0.975, 1e7), 1.959963984540054, 1e-6)
  t.eq(stats.t_quantile(0.75, 1), math.tan(math.pi / 4), 1e-12) -- of one degree: Cauchy
  t.eq(stats.t_quantile(0.975, 2.5), 3.558, 2e-2)               -- between those of 2 and 3
end)

-- The tail by the finite series for whole degrees of freedom (Abramowitz and Stegun 26.7.3, 4).
local function tail_by_series(x, df)
  local angle = math.atan(x / math.sqrt(df))
  local cos2, term, sum = math.cos(angle) ^ 2, 1.0, 0.0
  if df % 2 == 1 then
    for k = 1, (df - 1) // 2 do
      sum = sum + term
      term = term * cos2 * 2 * k / (2 * k + 1)
    end
    sum = 2 / math.pi * (angle + math.sin(angle) * math.cos(angle) * sum)
  else
    for k = 1, df // 2 do
      sum = sum + term
      term = term * cos2 * (2 * k - 1) / (2 * k)
    end
    sum = math.sin(angle) * sum
  end
  return (1 - sum) / 2
end

t.test("tails of Student's t agree with the finite series", function()
  for df = 1, 40 do
    for _, x in ipairs { 0.0, 0.1, 1.0, 2.5, 7.0 } do
      t.eq(stats.t_tail(x, df), tail_by_series(x, df), 1e-13)
      t.eq(stats.t_tail(-x, df), 1 - tail_by_series(x, df), 1e-13)
    end
  end
end)

t.test("mean, deviation and interval", function()
  local i = stats.interval { 2, 4, 4, 4, 5, 5, 7, 9 }
  t.eq({ i.n, i.mean }, { 8, 5 })
  t.eq(i.deviation, 2.138089935299395, 1e-12)
  t.eq({ mean_table.mean { 2, 4, 4, 4, 5, 5, 7, 9 } }, { i.mean, i.deviation }) -- report.mean
  t.eq({ i.low, i.high }, { 3.212512, 6.787488 }, 1e-6)
  t.eq(i.half, 1.787488, 1e-6)
  local one = stats.interval { 3 }
  t.eq({ one.n, one.mean }, { 1, 3 })
  t.ok(one.low == nil and one.half == nil)
  t.eq(table.pack(mean_table.mean { 3 }), { 3, nil, n = 2 }) -- as a table prints it, without "±"
  t.eq({ mean_table.mean {} }, {})
  t.eq(stats.interval {}, nil)
  t.eq({ stats.interval({ 1, 2, 3 }, 0.9).half }, { 2.919985580355516 / math.sqrt(3) }, 1e-9)
end)

t.test("quantiles and the middle mean", function()
  t.eq(stats.quantile({ 4, 1, 3, 2 }, 0.5), 2.5)
  t.eq({ stats.quantile({ 5 }, 0.1), stats.quantile({ 1, 2 }, 0), stats.quantile({ 1, 2 }, 1) },
    { 5, 1, 2 })
  t.eq(stats.middle_mean { 100, 1, 2, 3, 4, 5, 6, -50 }, 3.5)
  t.eq(stats.middle_mean { 1, 2, 6 }, 3)
end)

t.test("95 % intervals hold the mean in 95 of 100 cases, even for 3 numbers", function()
  local stream, held = core.stream(7, "test"), 0
  for _ = 1, 2000 do
    local x = {}
    for k = 1, 3 do
      x[k] = math.sqrt(-2 * math.log(1 - stream:unit())) * math.cos(2 * math.pi * stream:unit())
    end
    local i = stats.interval(x)
    if i.low <= 0 and 0 <= i.high then held = held + 1 end
  end
  t.eq(held / 2000, 0.95, 0.015)
end)

t.test("the probability of improvement", function()
  t.eq(stats.improvement({ 1, 2, 3 }, { 0, 2, 4 }, "lower"), (3 + 1.5 + 0) / 9)
  t.eq(stats.improvement({ 1, 2, 3 }, { 0, 2, 4 }, "higher"), 1 - 4.5 / 9)
  t.eq(stats.improvement({ 1 }, { 5 }, "higher"), 1)
end)

t.test("the smallest p of a sign-flip test", function()
  local got = {}
  for n = 1, 6 do got[n] = stats.least_p(n) end
  t.eq(got, { 1, 0.5, 0.25, 0.125, 0.0625, 0.03125 })
end)

t.test("the pairs that a difference needs", function()
  t.eq(stats.pairs_needed(1, 1), 10)      -- known: a paired t test of power 0.8 needs 10
  t.eq(stats.pairs_needed(1, 0.5), 34)    -- known: 34
  t.eq(stats.pairs_needed(2, -1), 34)
  t.eq(stats.pairs_needed(1, 0.2), 199)
  t.eq(stats.pairs_needed(0, 1), 2)
  t.eq(stats.pairs_needed(1, 0), math.huge)
  t.eq(stats.pairs_needed(1e9, 1e-9), math.huge)
  for _, d in ipairs { 0.3, 0.7, 1.3 } do
    local n = stats.pairs_needed(1, d)
    t.ok(stats.pairs_needed(1, 1.1 * d) <= n)
  end
end)

-- By scipy: 2 df s chi2.pdf(df s^2, df) (norm.cdf(d sqrt(n) - t s) + norm.cdf(-d sqrt(n) - t s)),
-- integrated over s; the smallest n by it.
t.test("the power of a paired t test, and the pairs at a small significance", function()
  for _, case in ipairs {
    { 2, 1, 0.05, 0.092809155056 }, { 2, 5, 0.05, 0.42096140915 }, { 3, 4, 0.05, 0.908488743681 },
    { 10, -1, 0.05, 0.803096856633 }, { 34, 0.5, 0.05, 0.807777501279 },
    { 2, 100, 0.003, 0.494863691098 }, { 2, 200, 0.003, 0.817422231737 },
    { 5, 2.5, 0.003, 0.445654502042 }, { 400, 0.14, 0.05, 0.797660547831 },
    { 900, 0.1, 0.01, 0.662258386939 }, { 7, 0, 0.02, 0.02 },
  } do
    local n, size, alpha, power = table.unpack(case)
    t.eq(stats.power(n, size, alpha), power, 1e-7)
  end
  for alpha, wanted in pairs {
    [0.05] = { 3, 3, 4, 5, 10, 34 }, [0.01] = { 3, 4, 5, 7, 16, 51 },
    [0.003] = { 4, 5, 6, 8, 19, 63 }, [0.0005] = { 5, 6, 8, 11, 25, 81 },
  } do
    local got = {}
    for i, size in ipairs { 10, 5, 3, 2, 1, 0.5 } do
      got[i] = stats.pairs_needed(1, size, nil, 1 - alpha)
    end
    t.eq(got, wanted)
  end
  t.eq(stats.pairs_needed(1, 0.0882), 1011, 1.0) -- beyond a thousand pairs by quantiles
end)

t.test("Holm's correction", function()
  t.eq(stats.holm { 0.01, 0.04, 0.03, 0.005 }, { 0.03, 0.06, 0.06, 0.02 }, 1e-12)
  t.eq(stats.holm { 0.5, 0.6 }, { 1, 1 })
  t.eq(stats.holm {}, {})
end)

t.test("Kendall's tau-b", function()
  t.eq(stats.kendall({ 1, 2, 3, 4 }, { 10, 20, 30, 40 }), 1)
  t.eq(stats.kendall({ 1, 2, 3, 4 }, { 4, 3, 2, 1 }), -1)
  t.eq(stats.kendall({ 12, 2, 1, 12, 2 }, { 1, 4, 7, 1, 0 }), -0.47140452079103173, 1e-12)
  local none = stats.kendall({ 1, 1 }, { 1, 2 })
  t.ok(none ~= none)
end)

t.test("the chance of a tau, exactly", function()
  t.eq(stats.kendall_p(1, 3), 2 / 6, 1e-12)
  t.eq(stats.kendall_p(1, 6), 2 / 720, 1e-12)
  t.eq(stats.kendall_p(0, 4), 1, 1e-12)
  t.eq(stats.kendall_p(0.6, 5), 0.23333333333333334, 1e-12)
end)

t.test("the interval of tau follows the noise of the samples", function()
  local x = { 1, 2, 3, 4 }
  local low, high = stats.kendall_interval(x, { { 1, 1.01, 0.99 }, { 2, 2.01, 1.99 },
    { 3, 3.01, 2.99 }, { 4, 4.01, 3.99 } })
  t.eq({ low, high }, { 1, 1 })
  low, high = stats.kendall_interval(x, { { -9, 9 }, { -9, 9.1 }, { -9, 9.2 }, { -9, 9.3 } })
  t.ok(low <= -0.6 and high >= 0.6, low .. " " .. high)
  low = stats.kendall_interval(x, { { 1, 1 }, { 2, 2 }, { 3, 3 }, { 4 } })
  t.eq(low, nil)
  local again = { stats.kendall_interval(x, { { 1, 3 }, { 2, 3 }, { 3, 3.5 }, { 2, 5 } }) }
  t.eq({ stats.kendall_interval(x, { { 1, 3 }, { 2, 3 }, { 3, 3.5 }, { 2, 5 } }) }, again)
  low = stats.kendall_interval({ 1, 2 }, { { 1, 1.1 }, { 5, 5.1 } })
  t.ok(low == 1 or low == -1)
end)

t.test("the stratified bootstrap", function()
  local strata = {}
  for k = 1, 6 do strata[k] = { 10 * k + 1, 10 * k + 2, 10 * k + 3, 10 * k + 4 } end
  local low, high = stats.bootstrap(strata, stats.mean)
  local centre = (1 + 2 + 3 + 4) / 4 + 35
  local se = math.sqrt(5 / 3 / 24) -- the variance that the four values of a stratum estimate
  t.eq({ low, high }, { centre - 1.96 * se, centre + 1.96 * se }, 0.06)
  t.eq(stats.bootstrap({ { 3, 4 }, { 3 } }, stats.mean), nil)
end)

t.test("the difference that seeds detect is the one for which as many are needed", function()
  -- known: a paired t test of power 0.8 detects 1 deviation with 10 pairs, and half of it with 34
  t.ok(stats.detected(10) <= 1 and stats.detected(9) > 1, stats.detected(10))
  for _, n in ipairs { 2, 3, 6, 16, 34 } do
    local size = stats.detected(n)
    t.eq({ stats.pairs_needed(1, size), stats.pairs_needed(1, 0.999 * size) }, { n, n + 1 })
  end
end)

-- The right values are SciPy's: t.interval, ttest_rel, ttest_1samp of log1p, kendalltau,
-- mannwhitneyu / 36, and linregress.
t.test("a spread counts even if the values are large in comparison", function()
  local logs = { -- offset -> mean, low, high, p of the logarithms of the ratios
    [0.0] = { -0.3011304618211116, -0.5913288614303945, -0.01093206221182863,
      0.044486062877029574 },
    [1e3] = { -0.000954121895718728, -0.001662910194727733, -0.000245333596709723,
      0.018035715414395588 },
    [1e9] = { -9.583333290989582e-10, -1.6704174893248406e-09, -2.462491688730759e-10,
      0.0180515010673122 } }
  local heights = { [0.0] = 1.4833333333333334, [1e3] = 118.15, [1e9] = 116666668.15 }
  for offset, log in pairs(logs) do
    local x, y, ratios = {}, {}, {}
    for i, v in ipairs { 1, 4, 2, 8, 5, 7 } do x[i] = offset + v end
    for i, v in ipairs { 2, 4.5, 3.5, 8.25, 7, 7.5 } do y[i] = offset + v end
    for i, v in ipairs(x) do ratios[i] = stats.log_ratio(v, y[i]) end
    local i, d, r = stats.interval(x), judgement.pair(x, y), stats.interval(ratios, 0.95, 1)
    judgement.estimate(d, 0.05)
    t.eq({ i.mean - offset, stats.quantile(x, 0.25) - offset, stats.middle_mean(x) - offset },
      { 4.5, 2.5, 4.5 })
    t.eq({ i.deviation, i.half }, { 2.7386127875258306, 2.8739978631044956 }, 1e-9)
    t.eq({ d.mean, d.low, d.high, d.p }, { 0.9583333333333334, 0.24624916979070155,
      1.6704174968759653, 0.018051501083395146 }, 1e-9)
    for k, v in ipairs { r.mean, r.low, r.high, stats.p_value(r, r.mean) } do
      t.eq(v, log[k], 1e-8 * math.abs(log[k]))
    end
    t.eq({ stats.kendall(x, y), stats.kendall_p(1, 6) }, { 1, 0.002777777777777778 }, 1e-12)
    t.eq(stats.improvement(y, x, "lower"), 1 - 0.3888888888888889, 1e-12)
    local slope, height = line(x, y)
    t.eq(slope, 0.8833333333333333, 1e-12)
    t.eq(height, heights[offset], 1e-6)
    local low, high = stats.bootstrap({ x, y }, stats.mean)
    t.eq({ low - offset, high - offset }, { 3.498, 6.461 }, 0.06) -- 1.96 se of the mean of means
    t.eq({ stats.kendall_interval({ 1, 2, 3 }, { { x[1], x[2] }, { x[3], x[4] }, x }) },
      { stats.kendall_interval({ 1, 2, 3 }, { { 1, 4 }, { 2, 8 }, { 1, 4, 2, 8, 5, 7 } }) })
  end
end)

t.test("numbers that differ only by rounding are equal, and so are their differences", function()
  for _, size in ipairs { 0.1, 1e3, 1e9 } do
    local i = stats.interval { size, size * (1 + 1e-15), size * (1 - 1e-15) }
    t.eq({ i.deviation, i.half }, { 0, 0 })
    local a, b = {}, {}
    for k = 1, 4 do
      a[k] = size + 0.1 * k
      b[k] = a[k] + 1
    end
    local pair = judgement.pair(a, b)
    judgement.estimate(pair, 0.05)
    t.eq(pair.p, nil)
    t.eq(stats.log_ratio(size, size * (1 + 1e-15)), 0)
  end
  t.eq(stats.log_ratio(1e300, 1e-300), math.log(10) * 600, 1e-10)
  t.eq({ stats.log_ratio(2, 1), stats.log_ratio(1, 2) }, { math.log(2), -math.log(2) }, 1e-15)
end)

t.test("a correlation and its interval agree with SciPy (pearsonr)", function()
  for _, case in ipairs {
    { x = { 0.001, 0.299, -0.274, -0.891 }, y = { -0.227, -0.316, -0.134, 0.136 },
      want = { -0.99586050557, -0.999917695012, -0.810733109358 } },
    { x = { -0.492, -0.62, 0.49, 0.357, 0.105, -0.93, -0.029 },
      y = { 0.052, -1.044, 0.065, -0.736, -0.582, -1.479, -0.135 },
      want = { 0.585658200471, -0.29948173182, 0.928996608906 } },
    { x = { -1.267, 0.271, 0.157, -0.187, -2.517, -0.539, -0.049, 0.113, -1.53, -0.478, -0.979,
        -0.809, 1.061, -0.808, -0.033, 0.884, -0.584, -0.112, 0.11, 0.064, -1.225, 0.076, 1.359,
        -1.547, 0.859 },
      y = { -0.701, -0.158, 1.094, 0.269, -2.11, -0.286, 0.259, -0.027, -0.577, -0.32, -0.254,
        0.234, 0.299, -0.383, -0.251, 0.594, -0.944, -0.357, -0.032, 0.488, -0.162, -0.616, 0.418,
        -0.605, -0.481 },
      want = { 0.679281635124, 0.388399045466, 0.847057837062 } },
  } do
    for i, v in ipairs { stats.correlation(case.x, case.y) } do t.eq(v, case.want[i], 1e-9) end
  end
  t.eq({ stats.correlation({ 1, 2, 3, 4 }, { 2, 4, 6, 8 }) }, { 1, 1, 1 })
  local r, low = stats.correlation({ 1, 1, 1, 1 }, { 1, 2, 3, 4 })
  t.eq({ r ~= r, low }, { true, nil })
  t.eq(select("#", stats.correlation({ 1, 2, 3 }, { 1, 2, 4 })), 1)
end)

t.done()
