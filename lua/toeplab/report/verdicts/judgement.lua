-- report/verdicts/judgement.lua: judges pairs for compare, claims and looks: differences or log
-- ratios of values of the same seeds, with their interval, p with Holm's correction over a list,
-- and the number of seeds that a claim requires.
local quantity = require "toeplab.base.quantity"
local sequential = require "toeplab.trials.sequential"
local sorted_keys = require "toeplab.base.sorted_keys"
local stats = require "toeplab.report.stats"

local judgement = { ALPHA = sequential.ALPHA }

-- ---- Levels -----------------------------------------------------------------------------------

-- Returns the rule (text of sequential.rule) by which a command added seeds to the trials; of
-- several, the one whose first look has the smallest level; nil if the seeds were a fixed number.
function judgement.rule(trials)
  local texts, least, alpha = {}, nil, math.huge
  for _, t in pairs(trials) do texts[t.rule or false] = true end
  texts[false] = nil
  for _, text in ipairs(sorted_keys(texts)) do
    local first = sequential.rule(text, true).alpha[1]
    if first < alpha then least, alpha = text, first end
  end
  return least
end

-- Returns the share of cases that the interval of pairs may miss, for `seeds` pairs (default: those
-- of its x): ALPHA or, if a rule added seeds by looks (seed_looks.lua), the share that the
-- correction leaves for this look. If a user added seeds with further commands, the first look took
-- ALPHA already, and the following ones take a fifth of it, a tenth and so on, so that all of them
-- together are wrong in at most 7 % (tests/lua/report/test_error_rates.lua). more: how many looks
-- are to come; nil: none.
function judgement.alpha(c, seeds, more)
  local alpha, looks = judgement.ALPHA, (c.looks or 1) + (more or 0)
  local rule = c.rule and sequential.rule(c.rule, true)
  for k, n in ipairs(rule and rule.looks or {}) do
    if k == 1 or n <= (seeds or #c.x) then alpha = rule.alpha[k] end
  end
  return looks > 1 and math.min(alpha, judgement.ALPHA / 5 / 2 ^ (looks - 2)) or alpha
end

-- Returns the level of the intervals of estimated pairs: "95 %", or "95 to 99 %".
function judgement.level(list)
  local least, most = 1.0, 0.0
  for _, c in ipairs(list) do
    least, most = math.min(least, c.alpha), math.max(most, c.alpha)
  end
  local low, high = ("%.4g"):format(100 * (1 - most)), ("%.4g"):format(100 * (1 - least))
  return (low == high and low or low .. " to " .. high) .. " %"
end

-- Returns lines on how the level is corrected for repeated looks at pairs of a list.
function judgement.corrected(list)
  local lines, most = {}, 1
  if judgement.rule(list) then
    lines[1] = "seeds were added depending on earlier results (seeds=\"until ...\"): intervals and "
      .. "p are corrected for that"
  end
  for _, c in ipairs(list) do most = math.max(most, c.looks or 1) end
  if most > 1 then
    lines[#lines + 1] = ("commands added seeds in up to %d steps, after each of which one could "
      .. "look at the results: these are %.4g %% intervals instead of 95 %%, and p is corrected to "
      .. "match"):format(most, 100 * (1 - judgement.alpha { looks = most }))
  end
  return lines
end

-- ---- Pairs ------------------------------------------------------------------------------------

-- Pairs two tables seed -> value (false: the seed has none). Returns {a=, b= (the values of the
-- seeds that both have, by seed), x= (the differences b - a; with `ratio` log(b/a)), alone= (how
-- many seeds one side lacks), seeds=, ratio=, size= (of the numbers whose differences x holds)};
-- nil and the seed of a pair that has no ratio, because a value is not above 0.
function judgement.pair(a, b, ratio)
  local seeds = {}
  local c = { a = {}, b = {}, x = {}, alone = 0, seeds = seeds, ratio = ratio,
    size = ratio and 1.0 or 0.0 }
  for seed, value in pairs(a) do
    if value and b[seed] then seeds[#seeds + 1] = seed else c.alone = c.alone + 1 end
  end
  for seed in pairs(b) do c.alone = c.alone + (a[seed] == nil and 1 or 0) end
  table.sort(seeds)
  for i, seed in ipairs(seeds) do
    local x, y = a[seed], b[seed]
    if ratio and (x <= 0 or y <= 0) then return nil, seed end
    c.a[i], c.b[i] = x, y
    c.x[i] = ratio and stats.log_ratio(y, x) or stats.difference(x, y)
    c.size = ratio and c.size or math.max(c.size, math.abs(x), math.abs(y))
  end
  return c
end

-- Sets in pairs, if there are any, mean and deviation of x and, if there are several, low, high and
-- half (of the interval that misses with probability alpha) and p, of the t test against the
-- nearest bound of `region` (of x; default: 0); nil if the test does not apply. p is scaled so that
-- it is compared with ALPHA even if alpha differs; alone_p is p before that.
function judgement.estimate(c, alpha)
  c.alpha = alpha
  for name, value in pairs(stats.interval(c.x, 1 - alpha, c.size) or {}) do c[name] = value end
  if not c.low then return end
  local region = c.region or { low = 0.0, high = 0.0 }
  local p = stats.p_value(c, math.min(math.abs(c.mean - region.low),
    math.abs(c.mean - region.high)))
  c.alone_p, c.p = p, p and p * judgement.ALPHA / alpha
end

-- Sets looks of pairs: after how many commands there were results of the same seed of both sides to
-- look at, each with new ones. a and b: for each side, of its trials that came to a result or
-- diverged, seed -> the step at which a command first requested it (Frame:trials).
function judgement.count_looks(c, a, b)
  local new, steps, sum = {}, {}, 0
  for seed, first in pairs(a) do
    local step = b[seed] and math.max(first, b[seed])
    if step and not new[step] then steps[#steps + 1] = step end
    if step then new[step] = (new[step] or 0) + 1 end
  end
  table.sort(steps)
  c.looks = 0
  for _, step in ipairs(steps) do
    sum = sum + new[step]
    c.looks = c.looks + (sum > 1 and 1 or 0)
  end
end

-- Estimates all pairs of a list, each at its level (judgement.alpha), and applies Holm's correction
-- to their p. untested: the number of further comparisons that have no p, for example because a
-- side diverged. Sets in each tests, how many comparisons the correction counts, and whether it is
-- decided (nil without p). Returns tests.
function judgement.judge(list, untested)
  local ps, of = {}, {}
  for _, c in ipairs(list) do
    judgement.estimate(c, judgement.alpha(c))
    if c.p then ps[#ps + 1], of[#of + 1] = c.p, c end
  end
  for _ = 1, untested or 0 do ps[#ps + 1] = 1.0 end
  for _, c in ipairs(list) do c.tests = #ps end
  local corrected = stats.holm(ps)
  for i, c in ipairs(of) do c.p, c.decided = corrected[i], corrected[i] < judgement.ALPHA end
  return #ps
end

-- Judges pairs of a list by their field success, {k, n, l, m}: k of n trials of b succeed and l of
-- m of a. Sets p by Fisher's exact test, scaled as judgement.estimate does and with Holm's
-- correction, tests, good ("a" or "b", which succeeds more often; nil: neither), and decided.
function judgement.judge_success(list)
  local ps = {}
  for i, c in ipairs(list) do
    local _, n, _, m = table.unpack(c.success)
    ps[i] = math.min(1.0, stats.fisher(table.unpack(c.success)) * judgement.ALPHA
      / judgement.alpha(c, math.min(n, m)))
  end
  for i, p in ipairs(stats.holm(ps)) do
    local c, k, n, l, m = list[i], table.unpack(list[i].success)
    c.p, c.tests, c.decided = p, #list, p < judgement.ALPHA
    c.good = k / n > l / m and "b" or k / n < l / m and "a" or nil
  end
end

-- Returns a warning if the fewest pairs of a judged list that have a p cannot reach significance by
-- the sign test, which assumes no distribution; nil if they can.
function judgement.least_pairs(list, ratio)
  local fewest, needed = nil, 1
  for _, c in ipairs(list) do
    if c.p and #c.x > 1 and (not fewest or #c.x < #fewest.x) then fewest = c end
  end
  if not fewest then return nil end
  local n, alpha = #fewest.x, judgement.ALPHA / math.max(1, fewest.tests)
  local function least_p(count) -- corrected for looks, as p are
    return math.min(1.0, stats.least_p(count) * judgement.ALPHA / judgement.alpha(fewest, count))
  end
  while least_p(needed) >= alpha do needed = needed + 1 end
  if n >= needed then return nil end
  local alone, corrected = stats.least_p(n), least_p(n)
  local smallest = ("%.4g"):format(alone)
  if corrected ~= alone then
    local looks = fewest.rule and "looks" or quantity.count(fewest.looks, "look")
    smallest = ("%s, corrected for %s %.4g"):format(smallest, looks, corrected)
  end
  return ("p rests on Student's t, which takes the %s as normal: with %s the sign-flip "
    .. "test cannot reach p < %.2g%s (its smallest p is %s); with %d it can"):format(
    ratio and "log ratios" or "differences", quantity.count(n, "paired seed"), alpha,
    alpha < judgement.ALPHA and ", which Holm's correction requires of the smallest" or "",
    smallest, needed)
end

-- Returns mean, low and high of pairs as differences or ratios; nil where there is none.
function judgement.range(c)
  local function shown(x) return x and (c.ratio and math.exp(x) or x) end
  return shown(c.mean), shown(c.low), shown(c.high)
end

-- Returns the mean of the middle half of x over all pairs of a list, with the interval of a
-- stratified bootstrap: {ratio=, mean=, low=, high=, n= (how many pairs)}; nil unless several of
-- the list have several pairs.
function judgement.overall(list)
  local strata, all, alpha = {}, {}, judgement.ALPHA
  for _, c in ipairs(list) do
    if #c.x > 1 then
      strata[#strata + 1] = c.x
      table.move(c.x, 1, #c.x, #all + 1, all)
      alpha = math.min(alpha, judgement.alpha(c))
    end
  end
  if #strata < 2 then return nil end
  local low, high = stats.bootstrap(strata, stats.middle_mean, 1 - alpha)
  return { ratio = list[1].ratio, mean = stats.middle_mean(all), low = low, high = high, n = #all }
end

-- Returns about how many seeds detect a true mean of x, where Holm's correction counts `tests`: at
-- most the existing ones, or more at the level of one more look, which the command that adds them
-- uses. Where a rule added seeds, the level depends on their number, so the estimate is repeated
-- with its result.
function judgement.seeds(c, tests, mean)
  local n
  for more = 0, c.rule and 0 or 1 do
    n = #c.x
    for _ = 1, 2 do
      local alpha = judgement.alpha(c, n, more) / math.max(1, tests)
      n = stats.pairs_needed(c.deviation, mean, nil, 1 - alpha)
    end
    if n <= #c.x then return n end
  end
  return n
end

return judgement
