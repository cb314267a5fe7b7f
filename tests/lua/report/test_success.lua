-- test_success.lua: seeds that succeed are counted, where an experiment declares what success is.
local t = require "harness"
local stats = require "toeplab.report.stats"
local sweeps = require "sweeps"

t.test("intervals of shares and p of two shares agree with SciPy", function()
  for _, row in ipairs {
    { 0, 5, 0, 0.521823750105 }, { 1, 5, 0.00505076337947, 0.716417936118 },
    { 4, 5, 0.283582063882, 0.994949236621 }, { 5, 5, 0.478176249895, 1 },
    { 3, 10, 0.0667395111777, 0.65245285006 }, { 17, 20, 0.621073173455, 0.967929062814 },
    { 0, 1, 0, 0.975 }, { 1, 1, 0.025, 1 }, { 50, 100, 0.398321129503, 0.601678870497 },
  } do -- binomtest(k, n).proportion_ci(0.95, "exact")
    t.eq({ stats.clopper_pearson(row[1], row[2]) }, { row[3] + 0.0, row[4] + 0.0 }, 1e-11)
  end
  for _, row in ipairs {
    { 5, 5, 0, 5, 0.00793650793651 }, { 4, 5, 1, 5, 0.206349206349 },
    { 3, 10, 7, 10, 0.178895407998 }, { 0, 3, 3, 3, 0.1 }, { 5, 5, 5, 5, 1 },
    { 17, 20, 9, 20, 0.0187011260426 }, { 2, 5, 3, 8, 1 }, { 0, 1, 1, 1, 1 },
  } do -- fisher_exact
    t.eq(stats.fisher(row[1], row[2], row[3], row[4]), row[5] + 0.0, 1e-11)
  end
end)

-- Accuracies of two mixers: "a" succeeds with 5 of 6 seeds, "b" with none, one of which diverged.
-- most: the number of written seeds; rule: the rule by which seeds were added by looks.
local function written(folder, success, most, rule)
  local list = {}
  for seed = 1, most or 6 do
    list[#list + 1] = { config = { mixer = "a" }, seed = seed,
      metrics = { accuracy = seed == 2 and 0.2 or 0.99 } }
    list[#list + 1] = { config = { mixer = "b" }, seed = seed, ended = seed == 6 and "guard" or nil,
      metrics = { accuracy = 0.1 + seed / 100 } }
  end
  sweeps.write(folder, { experiment = "recall", axes = { "mixer" }, columns = { "accuracy" },
    trials = list, success = success, rule = rule })
end

t.test("tables count successes, with an interval; diverged trials have failed", function()
  t.in_folder(function(folder)
    written(folder, { metric = "accuracy", above = 0.5 })
    for _, words in ipairs { "", "--rows mixer" } do
      local text = t.toeplab(("table recall %s -C '%s'"):format(words, folder))
      t.holds(text, "accuracy above 0.5", "5/6 [36, 100] %", "0/6 [0, 46] %", "Clopper and Pearson")
    end
    t.holds(t.toeplab(("table recall --rows mixer --csv -C '%s'"):format(folder)),
      "accuracy above 0.5,,0.83333")
  end)
end)

t.test("compare decides by the counts with Fisher's exact test", function()
  t.in_folder(function(folder)
    written(folder, { metric = "accuracy", above = 0.5 })
    local text = t.toeplab(("compare recall mixer=a mixer=b -C '%s'"):format(folder))
    t.holds(text, "mixer=b succeeds (accuracy above 0.5) in 0 of 6, mixer=a in 5 of 6: less often, "
      .. "Fisher's exact p 0.0152", "lie near two levels")
    t.eq(text:find("t, paired", 1, true) or text:find("cannot reach", 1, true), nil)
    text = t.toeplab(("compare recall mixer=a mixer=b --ratio -C '%s'"):format(folder))
    t.eq(text:find("succeeds", 1, true), nil)
  end)
  t.in_folder(function(folder)
    written(folder, { metric = "accuracy", below = 0.05 })
    t.holds(t.toeplab(("compare recall mixer=a mixer=b -C '%s'"):format(folder)),
      "in 0 of 6, mixer=a in 0 of 6: undecided, Fisher's exact p 1\n")
  end)
end)

-- 5 of 6 against 0 of 6: p is 0.0152, at a level of 0.01 for the second look 0.0758 of 0.05; at the
-- first look of the rule, at 6 of 12 seeds, 0.0303.
t.test("Fisher's p allows for looks, also at seeds that diverged", function()
  local success = { metric = "accuracy", above = 0.5 }
  for _, case in ipairs { { 4, nil, "undecided", 5 }, { 5, nil, "undecided", 5 },
    { 6, nil, "less often", 1 }, { 6, "until 2 %, at least 6, at most 12", "less often", 2 } } do
    t.in_folder(function(folder)
      written(folder, success, case[1], case[2]) -- the last seed is that which diverged
      written(folder, success, 6, case[2])
      t.holds(t.toeplab(("compare recall mixer=a mixer=b -C '%s'"):format(folder)),
        ("%s, Fisher's exact p %.3g"):format(case[3], case[4] * stats.fisher(0, 6, 5, 6)))
    end)
  end
end)

t.test("checks `success` where it is declared", function()
  t.in_folder(function(folder)
    for field, why in pairs {
      ["{ metric = 'acc' }"] = "either above or below",
      ["{ metric = 'acc', above = 1, below = 0 }"] = "either above or below",
      ["{ above = 1 }"] = "metric",
      ["{ metric = 'acc', above = 'x' }"] = "above",
      ["{ metric = 'acc', over = 1 }"] = "over",
    } do
      local file = folder .. "/x.lua"
      t.write(file, ([[local tl = require "toeplab"
return tl.experiment "x" { grid = { mixer = { "tnn", "ski" } },
  success = %s,
  trial = function(t, c) t:log { acc = #c.mixer } end }
]]):format(field))
      local _, code, text = t.toeplab(("plan '%s' -C '%s/r'"):format(file, folder))
      t.holds(text, "x.lua:3: ", why)
      t.eq(code, 2)
    end
  end)
end)

t.done()
