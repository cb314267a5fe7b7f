-- test_error_rates.lua: how often printed claims are wrong. Each procedure of the program is
-- applied to many drawn experiments whose true values are known. It may claim a difference that
-- does not exist in at most 7 %, and an interval of 95 % must hold the true value in at least 93 %.
-- The draws are seeded; the test prints what each procedure promises and what was measured.
local core = require "toeplab.core"
local judgement = require "toeplab.report.verdicts.judgement"
local seed_looks = require "toeplab.report.verdicts.seed_looks"
local sequential = require "toeplab.trials.sequential"
local stats = require "toeplab.report.stats"
local t = require "harness"
local tuning = require "toeplab.trials.tuning"
local versions = require "toeplab.report.versions"

local DRAWS = 2000
local MOST, LEAST = 0.07, 0.93

-- By chance a measured share differs from the true one by more than this in 3 of 1,000 cases.
local function chance(draws) return 3 * math.sqrt(0.06 * 0.94 / draws) end

io.stdout:setvbuf "line"

local stream = core.stream(11, "error rates")

local function normals(count, deviation)
  local list = stream:normal(core.zeros(count)):totable()
  for i, x in ipairs(list) do list[i] = deviation * x end
  return list
end

local function exps(list)
  for i, x in ipairs(list) do list[i] = math.exp(x) end
  return list
end

-- Returns the share of the draws in which draw() is true.
local function share(draw, draws)
  local count = 0
  for _ = 1, draws do count = count + (draw() and 1 or 0) end
  return count / draws
end

-- promised: the share of false claims; draws: how many, by default DRAWS.
local function errors_of(name, promised, draw, draws)
  draws = draws or DRAWS
  t.test(name .. ": false claims", function()
    local measured = share(draw, draws)
    print(("%-68s %6.3f %6.3f"):format(name, promised, measured))
    t.ok(measured <= promised + chance(draws), measured)
  end)
end

local function coverage_of(name, draw)
  t.test(name .. ": coverage", function()
    local measured = share(draw, DRAWS)
    print(("%-68s %6.3f %6.3f"):format("coverage: " .. name, 0.95, measured))
    t.ok(measured >= LEAST - chance(DRAWS), measured)
  end)
end

-- Returns the pair of values by seed as compare and claims judge it, with the commands that asked
-- for its seeds.
local function pair_of(a, b, steps)
  local c = judgement.pair(a, b, true)
  judgement.count_looks(c, steps or {}, steps or {})
  return c
end

local function ones(n)
  local list = {}
  for i = 1, n do list[i] = 1 end
  return list
end

-- ---- Comparisons ------------------------------------------------------------------------------

-- Returns whether any of `rows` rows is claimed to differ from one row of an equal model.
local function any_of(rows, seeds)
  local base, list, steps = exps(normals(seeds, 0.01)), {}, ones(seeds)
  for i = 1, rows do list[i] = pair_of(base, exps(normals(seeds, 0.01)), steps) end
  judgement.judge(list)
  for _, c in ipairs(list) do
    if c.decided then return true end
  end
  return false
end

for _, case in ipairs { { 1, 3 }, { 1, 5 }, { 6, 5 }, { 16, 3 }, { 16, 5 } } do
  local rows, seeds = table.unpack(case)
  errors_of(("compare: %d rows with one, %d seeds"):format(rows, seeds), 0.05,
    function() return any_of(rows, seeds) end)
end

coverage_of("the ratio of two rows, 5 seeds", function()
  local c = pair_of(exps(normals(5, 0.01)), exps(normals(5, 0.02)), ones(5))
  judgement.judge { c }
  local _, low, high = judgement.range(c)
  return low <= 1 and high >= 1
end)

-- ---- Looks ------------------------------------------------------------------------------------

-- Looks at the first n seeds of both lists, for each n, each requested by a separate command;
-- returns whether any look claims a difference.
local function any_look(a, b, ns)
  local steps = {}
  for k, n in ipairs(ns) do
    for seed = #steps + 1, n do steps[seed] = k end
    local c = pair_of(table.move(a, 1, n, 1, {}), table.move(b, 1, n, 1, {}), steps)
    judgement.judge { c }
    if c.decided then return true end
  end
  return false
end

for _, ns in ipairs { { 3, 5 }, { 5, 10 }, { 3, 5, 10 }, { 3, 4, 5, 6, 7, 8, 9, 10 } } do
  errors_of("seeds added by hand: " .. table.concat(ns, ", "), MOST, function()
    return any_look(exps(normals(10, 0.01)), exps(normals(10, 0.01)), ns)
  end)
end

local LIMIT = 60 -- seeds that one is ready to run

-- Returns the number of seeds that compare proposes for an open pair, LIMIT if it is more.
local function proposed(c)
  local least = (2.5 * c.deviation / c.mean) ^ 2 -- that any level needs
  return least > LIMIT and LIMIT or math.max(#c.x + 1, math.min(LIMIT, judgement.seeds(c, 1,
    c.mean)))
end

for _, first in ipairs { 3, 5 } do
  errors_of(("%d seeds, then twice as many as compare proposes"):format(first), MOST, function()
    local a, b, ns, steps = exps(normals(LIMIT, 0.01)), exps(normals(LIMIT, 0.01)), { first }, {}
    for look = 1, 3 do
      local n = ns[look]
      for seed = #steps + 1, n do steps[seed] = look end
      local c = pair_of(table.move(a, 1, n, 1, {}), table.move(b, 1, n, 1, {}), steps)
      judgement.judge { c }
      if c.decided or n == LIMIT then return c.decided end
      ns[look + 1] = proposed(c)
    end
    return false
  end, DRAWS // 5) -- to propose seeds takes a tenth of a second
end

-- ---- until ------------------------------------------------------------------------------------

-- Returns whether the interval at which a row stops holds the true ratio. draw(n) returns the
-- logarithms of the row's values.
local function until_holds(text, draw, ratio)
  local rule = sequential.rule(text)
  local row = exps(draw(rule.most))
  local compared = { { row = { row = true }, base = {} } }
  local state = seed_looks.judge(rule, compared, function(point, seed)
    return point.row and row[seed] or 1.0
  end)[1]
  return state.low <= ratio and state.high >= ratio
end

for _, deviation in ipairs { 0.005, 0.02, 0.05 } do
  for _, text in ipairs { "until 2 %", "until 2 %, at least 5" } do
    coverage_of(("%s, deviation %g %%"):format(text, 100 * deviation), function()
      return until_holds(text, function(n) return normals(n, deviation) end, 1.0)
    end)
  end
end

for _, case in ipairs { { 0.2, 0.8 }, { 0.1, 0.1 } } do
  local often, size = table.unpack(case)
  coverage_of(("until 2 %%, one seed in %d at +%d %%"):format(1 / often // 1, 100 * size // 1),
    function()
      return until_holds("until 2 %", function(n)
        local list = normals(n, 0.004)
        for i in ipairs(list) do
          if stream:below(1000) < 1000 * often then list[i] = list[i] + math.log(1 + size) end
        end
        return list
      end, (1 + size) ^ often)
    end)
end

-- ---- Tuned keys -------------------------------------------------------------------------------

local SEEDS = 5

-- Tunes one of two rates for a model and runs the candidates. early, late: how much worse the
-- second rate is, as logarithms, in the small sweep and at the end; noise: the deviation of the
-- small sweep's results; common: of each seed. Returns the values by seed of the rate that counts.
local function tuned(early, late, noise, common)
  local tune, small, results = { goal = "min", within = 0.03 }, normals(2, noise), {}
  local values = tuning.candidates(tune, { { value = 1, result = math.exp(small[1]) },
    { value = 2, result = math.exp(early + small[2]) } })
  for i, value in ipairs(values) do
    local own = normals(SEEDS, 0.004 / math.sqrt(2))
    for seed, x in ipairs(own) do own[seed] = x + common[seed] + (value == 2 and late or 0) end
    results[i] = exps(own)
  end
  return results[versions.best(results, "min")]
end

-- Of equal models whose rates are tuned: with trainings as long as the others, or of a schedule
-- that ends, both gaps are equal.
for _, noise in ipairs { 0.005, 0.01 } do
  for _, gap in ipairs { 0.0, 0.005, 0.02, 0.063 } do
    errors_of(("tuned rates, %g %% apart, noise of the small sweep %g %%"):format(100 * gap,
      100 * noise), 0.05, function()
        local common = normals(SEEDS, 0.008)
        local c = pair_of(tuned(gap, gap, noise, common), tuned(gap, gap, noise, common),
          ones(SEEDS))
        judgement.judge { c }
        return c.decided
      end)
  end
end

-- Rates that are level early and 6.5 % apart at the end: the candidates are run to the end.
errors_of("tuned rates, level in the small sweep and 6.5 % apart at the end", 0.05, function()
  local common = normals(SEEDS, 0.008)
  local c = pair_of(tuned(0, 0.063, 0.005, common), tuned(0, 0.063, 0.005, common), ones(SEEDS))
  judgement.judge { c }
  return c.decided
end)

-- ---- Successes --------------------------------------------------------------------------------

local function successes(often, n)
  local k = 0
  for _ = 1, n do k = k + (stream:below(1000) < 1000 * often and 1 or 0) end
  return k
end

for _, n in ipairs { 3, 5, 10 } do
  for _, often in ipairs { 0.1, 0.3, 0.5 } do
    coverage_of(("seeds that succeed, %g of all, %d seeds"):format(often, n), function()
      local low, high = stats.clopper_pearson(successes(often, n), n)
      return low <= often and high >= often
    end)
    local name = ("seeds that succeed, %g of all, %d seeds, 3 rows"):format(often, n)
    errors_of(name, 0.05, function()
      local list = {}
      for i = 1, 3 do
        list[i] = { success = { successes(often, n), n, successes(often, n), n } }
      end
      judgement.judge_success(list)
      return list[1].decided or list[2].decided or list[3].decided
    end)
  end
end

t.done()
