-- test_judgement.lua: pairs of seeds become differences or ratios with an interval and a p.
local t = require "harness"
local judgement = require "toeplab.report.verdicts.judgement"
local sequential = require "toeplab.trials.sequential"

local RULE = "until 2 %, at least 3, at most 18"

-- Random pairs with SciPy's results: mean and interval of 95 % (t.interval) and p (ttest_rel) of
-- the differences; of the logarithms of b/a exp(mean), exp of the interval of 99 % and p
-- (ttest_1samp), and the p of their mean being log 1.05. HOLM: statsmodels of all these p.
local SAMPLES = {
  { a = { 0.75367, 1.0534 },
    b = { 0.85332, 1.1785 },
    difference = { 0.112375, -0.0493114552711, 0.274061455271, 0.0717830953136 },
    ratio = { 1.12546886339, 0.76913655193, 1.6468859259, 0.0321822619255 },
      bound = 0.0547157938195 },
  { a = { 17.347, 22.216, 20.188 },
    b = { 17.262, 22.037, 20.035 },
    difference = { -0.139, -0.259576677031, -0.018423322969, 0.038325154651 },
    ratio = { 0.993153695955, 0.983455253765, 1.0029477803, 0.0200929124116 },
      bound = 0.000315420560565 },
  { a = { 0.28565, 0.32371, 0.31789, 0.28912, 0.28907 },
    b = { 0.3053, 0.33822, 0.32387, 0.29837, 0.29692 },
    difference = { 0.011448, 0.00452566808703, 0.018370331913, 0.0100944480871 },
    ratio = { 1.03817032233, 0.999085345922, 1.07878433265, 0.0108698524596 },
      bound = 0.245616302518 },
  { a = { 104.55, 126.37, 91.753, 111.08, 117.05, 123.51 },
    b = { 79.822, 104.71, 86.546, 89.685, 97.274, 106.82 },
    difference = { -18.2426666667, -25.4885681546, -10.9967651787, 0.00131229003562 },
    ratio = { 0.837988778928, 0.745481294344, 0.941975605473, 0.00172361831905 },
      bound = 0.000563505199781 },
  { a = { 997.11, 998.05, 1008.4, 1006.5, 994.48, 1000.3, 993.55, 992.34 },
    b = { 998.11, 1001, 1009.3, 1009.3, 994.16, 1001.5, 994.65, 993.45 },
    difference = { 1.3425, 0.45331739622, 2.23168260378, 0.00909519566853 },
    ratio = { 1.00134158973, 1.00002925144, 1.0026556502, 0.00900573722131 },
      bound = 5.05563983677e-13 },
  { a = { 2.9967, 2.7867, 2.2255, 1.8244, 2.2231, 2.4897, 2.2247, 1.7375, 1.6182, 2.9056,
      2.6282, 2.2072 },
    b = { 3.3518, 3.1485, 2.4988, 2.071, 2.6667, 2.8964, 2.7038, 2.164, 1.9505, 3.1495, 2.8854,
      2.4329 },
    difference = { 0.33765, 0.281785675969, 0.393514324031, 4.00500745686e-08 },
    ratio = { 1.15051870554, 1.10449107691, 1.1984644507, 3.86743080953e-07 },
      bound = 2.40863356374e-05 },
}
local HOLM = {
  [false] = { 0.0766503093019, 0.0766503093019, 0.0363807826741, 0.00656145017811, 0.0363807826741,
      2.40300447412e-07 },
  [true] = { 0.0401858248231, 0.0401858248231, 0.0360229488852, 0.00861809159523, 0.0360229488852,
      2.32045848572e-06 },
}

-- Compares numbers by their relative error.
local function close(got, want)
  for i, v in ipairs(want) do t.eq(got[i] / v, 1, 1e-9) end
end

local function all(ratio)
  local list = {}
  for i, s in ipairs(SAMPLES) do list[i] = judgement.pair(s.a, s.b, ratio) end
  return list
end

t.test("means, intervals and p agree with SciPy, for differences and ratios", function()
  for i, s in ipairs(SAMPLES) do
    for name, level in pairs { difference = 0.05, ratio = 0.01 } do
      local c = judgement.pair(s.a, s.b, name == "ratio")
      judgement.estimate(c, level)
      local mean, low, high = judgement.range(c)
      close({ mean, low, high, c.p * level / 0.05 }, s[name])
    end
    local c = all(true)[i]
    c.region = { low = math.log(1.05), high = math.huge }
    judgement.estimate(c, 0.05)
    close({ c.p }, { s.bound })
  end
end)

t.test("Holm's correction over a list agrees with statsmodels, and decides", function()
  for ratio, want in pairs(HOLM) do
    local list = all(ratio)
    table.insert(list, 3, judgement.pair({ 1 }, { 2 }, ratio)) -- one pair has no p, and is no test
    t.eq(judgement.judge(list), #want)
    local one = table.remove(list, 3)
    t.eq(one.p or one.decided or one.low, nil)
    for i, c in ipairs(list) do
      close({ c.p }, { want[i] })
      t.eq(c.decided, want[i] < 0.05)
    end
  end
end)

t.test("after looks an interval has the level of its look, and p is scaled by it", function()
  local alpha = sequential.rule(RULE).alpha[1] -- of 3 seeds
  t.eq(judgement.alpha({ rule = RULE }, 4), alpha)
  t.eq(judgement.alpha({}, 4), 0.05)
  local list, plain = { all(true)[2] }, { all(true)[2] }
  list[1].rule = RULE
  t.eq({ #judgement.corrected(list), #judgement.corrected(plain) }, { 1, 0 })
  judgement.judge(list)
  judgement.judge(plain)
  t.eq(list[1].alpha, alpha)
  t.eq(list[1].p, math.min(1, plain[1].p * 0.05 / alpha), 1e-12)
  t.eq({ list[1].decided, plain[1].decided }, { false, true })
end)

t.test("commands that add seeds are looks, and each further one has a smaller level", function()
  for _, case in ipairs {
    -- the command that first asked for each seed of a and of b; looks; level
    { { 1, 1, 1 }, { 1, 1, 1 }, 1, 0.05 }, { { 1, 1, 1 }, { 4, 4, 4 }, 1, 0.05 },
    { { 1, 1, 1, 2, 2 }, { 1, 1, 1, 2, 2 }, 2, 0.01 },
    { { 1, 1, 2, 3 }, { 1, 1, 1, 1 }, 3, 0.005 },
    { { 1, 2, 2 }, { 1, 2, 2 }, 1, 0.05 }, -- of one pair nothing can be seen
    { { 1 }, { 1 }, 0, 0.05 }, { {}, {}, 0, 0.05 },
  } do
    local values, c = {}, nil
    for seed in ipairs(case[1]) do values[seed] = seed end
    c = judgement.pair(values, values)
    judgement.count_looks(c, case[1], case[2])
    t.eq({ c.looks, judgement.alpha(c) }, { case[3], case[4] })
    t.eq(#judgement.corrected { c }, case[3] > 1 and 1 or 0)
  end
  -- a rule, and seeds beyond it
  local ruled = { rule = "until 2 %, at least 3, at most 5", looks = 2 }
  t.eq({ judgement.alpha(ruled, 5), judgement.alpha({ rule = ruled.rule, looks = 1 }, 5) },
    { 0.01, 0.02 }, 1e-15)
end)

t.test("of several rules the one with the smallest first level counts", function()
  local short, long = "until 2 %, at least 5, at most 10", "until 2 %, at least 5, at most 20"
  t.eq(judgement.rule {}, nil)
  t.eq(judgement.rule { {}, { rule = short } }, short)
  for _, list in ipairs { { { rule = short }, { rule = long } }, { { rule = long }, {},
    { rule = short } } } do
    t.eq(judgement.rule(list), long)
  end
end)

t.test("comparisons without a p count in Holm's correction if they were asked for", function()
  local list = { all(true)[2] }
  local alone = judgement.judge(list) and list[1].p
  t.eq(judgement.judge(list, 3), 4)
  t.eq({ list[1].tests, list[1].p }, { 4, math.min(1, 4 * alone) })
end)

t.test("counts seeds that one side lacks; a value that is not above 0 has no ratio",
  function()
    local c = judgement.pair({ 1, 2, [5] = false, [6] = false }, { [2] = 5, [4] = 1, [5] = 3 })
    t.eq({ c.a, c.b, c.x, c.alone }, { { 2 }, { 5 }, { 3 }, 4 })
    t.eq(judgement.pair({}, {}).x, {})
    t.eq({ judgement.pair({ 1, 2, 3 }, { 1, 0, -1 }, true) }, { nil, 2 })
    t.eq(judgement.pair({ 1, -2 }, { 1, 3 }, false).x, { 0, 5 })
  end)

t.test("equal differences give no verdict, but equal values are equal", function()
  for _, case in ipairs { { { 1, 2 }, { 1, 2 }, p = 1 }, { { 1, 2 }, { 2, 3 } }, { { 1 }, { 2 } },
    { { 0.1, 0.7 }, { 0.3 - 0.2, 0.7 }, p = 1 }, { {}, {} } } do -- 0.3 - 0.2 is not 0.1
    local c = judgement.pair(case[1], case[2])
    judgement.estimate(c, 0.05)
    t.eq(c.p, case.p)
  end
end)

t.test("more tests and looks need more seeds", function()
  local c = { x = { 1, 2, 3 }, deviation = 1 }
  t.eq(judgement.seeds(c, 1, 0.5), 51) -- known of a paired t test at 1 %: a second look
  local many = {}
  for i = 1, 34 do many[i] = i end
  t.eq(judgement.seeds({ x = many, deviation = 1 }, 1, 0.5), 34) -- at 5 %: they are there
  t.ok(judgement.seeds(c, 4, 0.5) > 51)
  c.rule = RULE
  t.ok(judgement.seeds(c, 1, 0.5) > 34)
end)

t.test("the mean of the middle half over several lists of pairs has an interval", function()
  t.eq(judgement.overall({ all(false)[1], judgement.pair({ 1 }, { 2 }) }), nil)
  local o = judgement.overall(all(true))
  t.eq({ o.n, o.ratio }, { 36, true })
  t.ok(o.low < o.mean and o.mean < o.high)
end)

t.done()
