-- report/stats.lua: statistics of small samples: intervals by Student's t, paired differences, rank
-- agreement, corrections for multiple comparisons, and the seeds that a claim requires.
local core = require "toeplab.core"

local stats = { LEVEL = 0.95, DRAWS = 10000 }

-- Relative differences below this share count as rounding: 64 units in the last place. It is small,
-- because the spread of values may be a small share of them.
local ROUNDING = 2.0 ^ -46

-- ---- One sample -------------------------------------------------------------------------------

function stats.mean(x)
  local sum = 0.0
  for _, v in ipairs(x) do sum = sum + v end
  return sum / #x
end

-- Returns the sample standard deviation (n - 1); nan for fewer than two values.
function stats.deviation(x)
  local mean, sum = stats.mean(x), 0.0
  for _, v in ipairs(x) do sum = sum + (v - mean) ^ 2 end
  return #x > 1 and math.sqrt(sum / (#x - 1)) or 0 / 0
end

-- Returns the quantile of x at p, interpolated linearly.
function stats.quantile(x, p)
  local sorted = table.move(x, 1, #x, 1, {})
  table.sort(sorted)
  local place = 1 + p * (#sorted - 1)
  local low = math.floor(place)
  local next = sorted[math.min(low + 1, #sorted)]
  return sorted[low] + (place - low) * (next - sorted[low])
end

-- Returns the quantiles that enclose a share `level` of the draws.
function stats.enclosing(draws, level)
  local outside = (1 - (level or stats.LEVEL)) / 2
  return stats.quantile(draws, outside), stats.quantile(draws, 1 - outside)
end

-- Returns the interquartile mean: a quarter of the values, rounded down, is cut off at each end.
function stats.middle_mean(x)
  local sorted, cut = table.move(x, 1, #x, 1, {}), #x // 4
  table.sort(sorted)
  return stats.mean(table.move(sorted, cut + 1, #sorted - cut, 1, {}))
end

-- ---- Student's t ------------------------------------------------------------------------------

-- Returns the log of the gamma function by Lanczos' series (g = 7, nine terms), x > 0.
local lanczos = { 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
  12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7 }

local function log_gamma(x)
  local sum = 0.99999999999980993
  for i, c in ipairs(lanczos) do sum = sum + c / (x + i - 1) end
  local t = x + 6.5
  return 0.5 * math.log(2 * math.pi) + (x - 0.5) * math.log(t) - t + math.log(sum)
end

-- Returns the continued fraction of the incomplete beta function, by Lentz's method, which
-- converges fast for x < (a + 1)/(a + b + 2).
local function fraction(x, a, b)
  local c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
  local h = d
  for m = 1, 10000 do
    local even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
    d, c = 1 / (1 + even * d), 1 + even / c
    h = h * d * c
    local odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
    d, c = 1 / (1 + odd * d), 1 + odd / c
    h = h * d * c
    if math.abs(d * c - 1) < 1e-16 then break end
  end
  return h
end

-- Returns the regularized incomplete beta function I_x(a, b).
local function incomplete_beta(x, a, b)
  if x <= 0 then return 0.0 end
  if x >= 1 then return 1.0 end
  local front = math.exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * math.log(x)
    + b * math.log(1 - x))
  if x < (a + 1) / (a + b + 2) then return front * fraction(x, a, b) / a end
  return 1 - front * fraction(1 - x, b, a) / b
end

-- Returns the x below which a beta distribution has probability p, to 1e-15.
local function beta_quantile(p, a, b)
  local low, high = 0.0, 1.0
  while high - low > 1e-15 do
    local x = (low + high) / 2
    if x == low or x == high then break end
    if incomplete_beta(x, a, b) < p then low = x else high = x end
  end
  return (low + high) / 2
end

-- Returns the interval of Clopper and Pearson for a probability, given that k of n trials
-- succeeded; level: 0.95 by default.
function stats.clopper_pearson(k, n, level)
  local miss = (1 - (level or 0.95)) / 2
  return k == 0 and 0.0 or beta_quantile(miss, k, n - k + 1),
    k == n and 1.0 or beta_quantile(1 - miss, k + 1, n - k)
end

-- Returns the two-sided p of Fisher's exact test that k of n and l of m have one probability: the
-- share of the tables with the same sums that are no more probable than this one.
function stats.fisher(k, n, l, m)
  local function log_choose(all, some)
    return log_gamma(all + 1) - log_gamma(some + 1) - log_gamma(all - some + 1)
  end
  local sum, p = k + l, 0.0
  local function probability(x)
    return math.exp(log_choose(n, x) + log_choose(m, sum - x) - log_choose(n + m, sum))
  end
  local own = probability(k) * (1 + 1e-7)
  for x = math.max(0, sum - m), math.min(n, sum) do
    if probability(x) <= own then p = p + probability(x) end
  end
  return math.min(1.0, p)
end

-- Returns the probability that Student's t with df degrees of freedom exceeds t.
function stats.t_tail(t, df)
  local half = incomplete_beta(df / (df + t * t), df / 2, 0.5) / 2
  return t >= 0 and half or 1 - half
end

local known = {} -- cache: a table has thousands of intervals of one sample size

-- Returns the quantile of Student's t at p.
function stats.t_quantile(p, df)
  if p < 0.5 then return -stats.t_quantile(1 - p, df) end
  if p == 0.5 then return 0.0 end
  local of_df = known[df] or {}
  if of_df[p] then return of_df[p] end
  local low, high, upper = 0.0, 1.0, 1 - p
  while stats.t_tail(high, df) > upper do low, high = high, 2 * high end
  for _ = 1, 200 do
    local middle = (low + high) / 2
    if middle <= low or middle >= high then break end
    if stats.t_tail(middle, df) > upper then low = middle else high = middle end
  end
  known[df], of_df[p] = of_df, (low + high) / 2
  return of_df[p]
end

-- Returns the mean of x and its confidence interval: {n=, mean=, deviation=, low=, high=, half=
-- (its half width)}; without the last three for a single value, nil for none. Values that differ by
-- rounding only, such as a chance level that every seed computes in another order, count as equal.
-- size: the magnitude of the numbers whose differences x holds (default: the mean's).
function stats.interval(x, level, size)
  if #x == 0 then return nil end
  local result = { n = #x, mean = stats.mean(x), deviation = stats.deviation(x) }
  if #x > 1 then
    local t = stats.t_quantile(1 - (1 - (level or stats.LEVEL)) / 2, #x - 1)
    if result.deviation < ROUNDING * (size or math.abs(result.mean)) then
      result.deviation = 0.0
    end
    local half = t * result.deviation / math.sqrt(#x)
    result.low, result.high, result.half = result.mean - half, result.mean + half, half
  end
  return result
end

-- Returns the decimals of a mean whose interval has this half width, for two significant digits of
-- the half width: 2 for 0.25, 3 for 0.025; nil without an interval, if the mean is exact, and if
-- they are more than 6.
function stats.decimals(half)
  if not half or half <= 0 or half - half ~= 0 then return nil end
  local decimals = math.max(0, 1 - tonumber(("%.1e"):format(half):match "e(.*)$"))
  return decimals <= 6 and decimals or nil
end

-- Returns the p of the two-sided t test that the mean of an interval of several values (of
-- stats.interval) differs by `distance`; nil if the values are equal, and so give no spread, unless
-- the distance is 0.
function stats.p_value(interval, distance)
  local se = interval.deviation / math.sqrt(interval.n)
  if se == 0 then return distance == 0 and 1.0 or nil end
  return 2 * stats.t_tail(math.abs(distance) / se, interval.n - 1)
end

-- ---- Two samples ------------------------------------------------------------------------------

-- Returns b - a; 0 where two numbers differ by rounding only.
function stats.difference(a, b)
  local rounding = ROUNDING * math.max(math.abs(a), math.abs(b))
  return math.abs(b - a) > rounding and b - a or 0.0
end

-- Returns log(a/b) of two numbers above 0; 0 where they differ by rounding only.
function stats.log_ratio(a, b)
  local share = stats.difference(b, a) / b
  if math.abs(share) > 0.5 then return math.log(a) - math.log(b) end
  local ratio = 1 + share -- log(1 + share) with the last factor, which corrects its rounding
  return ratio == 1 and share or math.log(ratio) * (share / (ratio - 1))
end

-- Returns the share of all pairs of a value of a and one of b in which b is better; ties count
-- half.
function stats.improvement(a, b, better)
  local sum = 0.0
  for _, x in ipairs(a) do
    for _, y in ipairs(b) do sum = sum + (y < x and 1 or y == x and 0.5 or 0) end
  end
  local share = sum / (#a * #b)
  return better == "higher" and 1 - share or share
end

-- Returns the smallest two-sided p of the sign test on n pairs, which assumes no distribution: all
-- signs equal.
function stats.least_p(n) return math.min(1.0, 2.0 ^ (1 - n)) end

-- Returns the probability that a standard normal number is below x.
local function normal_below(x)
  if math.abs(x) > 8 then return x > 0 and 1.0 or 0.0 end
  local term, sum, k = x, x, 1
  while math.abs(term) > 1e-17 * math.abs(sum) do
    k = k + 2
    term = term * x * x / k
    sum = sum + term
  end
  return 0.5 + sum * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
end

local PIECE = 100 -- parabolas of Simpson's rule

local function integral(f, low, high)
  local h, sum = (high - low) / (2 * PIECE), f(low) - f(high)
  for i = 1, PIECE do sum = sum + 4 * f(low + (2 * i - 1) * h) + 2 * f(low + 2 * i * h) end
  return sum * h / 3
end

-- Returns the probability that a two-sided t test on n pairs of significance alpha detects a true
-- mean of `size` deviations. It integrates over the measured deviation s in units of the true one,
-- whose square times n - 1 has a chi-squared distribution.
function stats.power(n, size, alpha)
  local df, shift = n - 1, math.abs(size) * math.sqrt(n)
  local t = stats.t_quantile(1 - alpha / 2, df)
  local scale = math.log(2) + df / 2 * math.log(df / 2) - log_gamma(df / 2)
  local function f(s)
    if s <= 0 then return df == 1 and math.exp(scale) or 0.0 end
    return math.exp(scale + (df - 1) * math.log(s) - df * s * s / 2)
      * (normal_below(shift - t * s) + normal_below(-shift - t * s))
  end
  -- nearly all s lie within width of 1, and the decision flips around shift/t
  local width = 10 / math.sqrt(2 * df)
  local low, high, sum = math.max(0.0, 1 - width), 1 + width, 0.0
  local from = low
  for _, to in ipairs { (shift - 8) / t, (shift + 8) / t, high } do
    to = math.max(from, math.min(to, high))
    if to > from then sum = sum + integral(f, from, to) end
    from = to
  end
  return sum
end

local EXACT = 1000 -- pairs up to which pairs_needed computes the power

-- Returns how many pairs are needed to detect a true difference with probability `power`, if paired
-- differences have the given deviation: at least 2; math.huge for a difference of 0, a deviation
-- that is nan, or more than 1e9 pairs. It is approximate for more than EXACT pairs.
function stats.pairs_needed(deviation, difference, power, level)
  difference, power = math.abs(difference), power or 0.8
  if difference == 0 or deviation ~= deviation then return math.huge end
  local alpha = 1 - (level or stats.LEVEL)
  local function enough(n)
    if n <= EXACT then return stats.power(n, difference / deviation, alpha) >= power end
    local t = stats.t_quantile(1 - alpha / 2, n - 1) + stats.t_quantile(power, n - 1)
    return t * deviation / math.sqrt(n) <= difference
  end
  if deviation == 0 or enough(2) then return 2 end
  local low, high = 2, 4
  while not enough(high) do
    low, high = high, 2 * high
    if high > 1e9 then return math.huge end
  end
  while low + 1 < high do
    local middle = (low + high) // 2
    if enough(middle) then high = middle else low = middle end
  end
  return high
end

-- Returns the true mean of `seeds` paired differences, in units of their deviation, that a t test
-- of 5 % detects with probability 0.8: where pairs_needed returns `seeds`.
function stats.detected(seeds)
  local low, high = 0.0, 1.0
  while stats.power(seeds, high, 1 - stats.LEVEL) < 0.8 do low, high = high, 2 * high end
  for _ = 1, 40 do
    local middle = (low + high) / 2
    if stats.power(seeds, middle, 1 - stats.LEVEL) < 0.8 then low = middle else high = middle end
  end
  return high
end

-- Applies Holm's correction to the p values of several comparisons: keeps the chance of any false
-- claim among them below the chance for a single one.
function stats.holm(p)
  local order, result, most = {}, {}, 0.0
  for i in ipairs(p) do order[i] = i end
  table.sort(order, function(i, j) return p[i] < p[j] or p[i] == p[j] and i < j end)
  for rank, i in ipairs(order) do
    most = math.max(most, math.min(1.0, (#p - rank + 1) * p[i]))
    result[i] = most
  end
  return result
end

-- ---- Correlation ------------------------------------------------------------------------------

local NORMAL = 1.959963984540054 -- the quantile of the normal distribution at 0.975

-- Returns Pearson's correlation of the pairs (x[i], y[i]) and its 95 % interval by Fisher's
-- transformation; nan if x or y is constant; no interval of fewer than four pairs.
function stats.correlation(x, y)
  local of_x, of_y, both, mean_x, mean_y = 0.0, 0.0, 0.0, stats.mean(x), stats.mean(y)
  for i, v in ipairs(x) do
    of_x, of_y = of_x + (v - mean_x) ^ 2, of_y + (y[i] - mean_y) ^ 2
    both = both + (v - mean_x) * (y[i] - mean_y)
  end
  local r = math.max(-1.0, math.min(1.0, both / math.sqrt(of_x * of_y)))
  if of_x == 0 or of_y == 0 then r = 0 / 0 end
  if #x < 4 or r ~= r then return r end
  local function back(z) return 1 - 2 / (math.exp(2 * z) + 1) end -- tanh
  local z, half = 0.5 * math.log((1 + r) / (1 - r)), NORMAL / math.sqrt(#x - 3)
  return r, back(z - half), back(z + half)
end

-- ---- Ranks ------------------------------------------------------------------------------------

-- Returns Kendall's tau-b of the pairs (x[i], y[i]); nan if x or y is constant.
function stats.kendall(x, y)
  local sum, of_x, of_y = 0, 0, 0
  for i = 1, #x do
    for j = i + 1, #x do
      local dx, dy = x[i] - x[j], y[i] - y[j]
      if dx ~= 0 then of_x = of_x + 1 end
      if dy ~= 0 then of_y = of_y + 1 end
      if dx ~= 0 and dy ~= 0 then sum = sum + ((dx > 0) == (dy > 0) and 1 or -1) end
    end
  end
  return sum / math.sqrt(of_x * of_y)
end

-- Returns the probability of a |tau| at least as large if every order of y against x (no ties) is
-- equally likely. It is exact, by counting the orders with each number of inversions.
function stats.kendall_p(tau, n)
  local count = { [0] = 1.0 } -- shares of all orders
  for k = 2, n do
    local longer = {}
    for inversions = 0, k * (k - 1) // 2 do
      local sum = 0.0
      for j = 0, k - 1 do sum = sum + (count[inversions - j] or 0.0) end
      longer[inversions] = sum / k
    end
    count = longer
  end
  local all, p = n * (n - 1) // 2, 0.0
  for inversions = 0, all do
    local other = 1 - 2 * inversions / all
    if math.abs(other) >= math.abs(tau) - 1e-9 then p = p + count[inversions] end
  end
  return math.min(1.0, p)
end

local RANK_DRAWS = 2000
local MANY = 100 -- degrees of freedom from which t is drawn as normal

local function normals(stream, count) return stream:normal(core.zeros(count)):totable() end

-- Draws from Student's t: a normal number over the root of the mean of df squared normal numbers.
local function t_draws(stream, df, count)
  local list, others = normals(stream, count), df < MANY and normals(stream, count * df)
  for i, top in ipairs(others and list or {}) do
    local sum = 0.0
    for k = (i - 1) * df + 1, i * df do sum = sum + others[k] ^ 2 end
    list[i] = top / math.sqrt(sum / df)
  end
  return list
end

-- Returns the interval of the tau between the fixed x and the true means behind the samples y[i]
-- (lists of at least two values each; else nil): quantiles over draws of the means from the
-- distributions behind their t intervals, each drawn independently of the others.
function stats.kendall_interval(x, y, level)
  local stream, means = core.stream(1, "kendall"), {}
  for i, sample in ipairs(y) do
    if #sample < 2 then return nil end
    local mean, se = stats.mean(sample), stats.deviation(sample) / math.sqrt(#sample)
    means[i] = t_draws(stream, #sample - 1, RANK_DRAWS)
    for k, t in ipairs(means[i]) do means[i][k] = mean + se * t end
  end
  local taus, drawn = {}, {}
  for k = 1, RANK_DRAWS do
    for i in ipairs(y) do drawn[i] = means[i][k] end
    taus[k] = stats.kendall(x, drawn)
  end
  return stats.enclosing(taus, level)
end

-- ---- Bootstrap --------------------------------------------------------------------------------

-- Returns the values with their distances from their mean stretched by sqrt(n/(n - 1)), so that
-- draws from them have the variance that they estimate.
local function stretched(values)
  local mean, list = stats.mean(values), {}
  local factor = math.sqrt(#values / (#values - 1))
  for i, v in ipairs(values) do list[i] = mean + factor * (v - mean) end
  return list
end

-- Returns the stratified bootstrap interval of statistic(values): values are resampled within each
-- of the strata (lists of values); nil if one of them has a single value. It suits many strata of
-- few values; for a single small stratum it is too narrow.
function stats.bootstrap(strata, statistic, level)
  local stream, results, from = core.stream(1, "bootstrap"), {}, {}
  for i, values in ipairs(strata) do
    if #values < 2 then return nil end
    from[i] = stretched(values)
  end
  for k = 1, stats.DRAWS do
    local drawn = {}
    for _, values in ipairs(from) do
      for _ = 1, #values do drawn[#drawn + 1] = values[1 + stream:below(#values)] end
    end
    results[k] = statistic(drawn)
  end
  return stats.enclosing(results, level)
end

return stats
