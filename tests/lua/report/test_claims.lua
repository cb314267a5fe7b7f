-- test_claims.lua: what the papers claim of their tables, and what trials say of it.
local t = require "harness"
local claims = require "toeplab.report.verdicts.claims"
local frames = require "toeplab.report.frames"
local published_tables = require "toeplab.trials.published_tables"
local records = require "toeplab.store.records"
local sweeps = require "sweeps"

local function run(folder, words)
  return t.toeplab(("%s -C '%s'"):format(words, folder))
end

-- ---- The claims themselves --------------------------------------------------------------------

t.test("each claim is a sentence and one bound, and the paper's own numbers fulfil it", function()
  local count, checked = 0, 0
  for _, id in ipairs(published_tables.ids()) do
    local published = published_tables.read(id)
    for i, claim in ipairs(claims.of(published).claims) do
      local spec, place = published.claims[i], id .. " " .. i
      t.ok(claim.says:find "^[%u%d(].*%.%)?$", place)
      local bounds = 0
      for _, name in ipairs { "above", "below", "within" } do
        bounds = bounds + (spec[name] and 1 or 0)
      end
      t.eq(bounds, 1)
      t.ok(#claim.list > 0, place)
      for _, c in ipairs(claim.list) do
        count = count + 1
        if c.paper then
          local log = math.log(c.paper)
          t.ok(log > c.region.low and log < c.region.high,
            ("%s: %s: the paper has %g"):format(place, claims.title(c), c.paper))
          checked = checked + 1
        end
      end
    end
  end
  t.ok(count > 100 and checked > 90, count .. " comparisons, " .. checked .. " checked")
end)

t.test("an unknown row or column in a claim is an error", function()
  local function of(claim)
    local published = published_tables.read "tnn/table10"
    published.claims = { claim }
    return claims.of(published)
  end
  t.raises(of, "tnn/table10: claims: there is no row '0.9'.*did you mean '0.90'",
    { says = "X.", row = "0.9", over = "0.95", column = "val", above = 1 })
  t.raises(of, "there is no column 'vall'.*did you mean 'val'",
    { says = "X.", row = "0.90", over = "0.95", column = "vall", above = 1 })
end)

-- ---- Verdicts ---------------------------------------------------------------------------------

-- Writes a sweep that answers tnn/table10. of: decay -> a list of values by seed, of the perplexity
-- on the validation part; the one at 16 times the length of 8 is `far` times that. change: a
-- function of each trial; rule: the rule by which seeds were added by looks.
local function decays(folder, of, far, change, rule)
  local trials = {}
  for decay, values in pairs(of) do
    for seed, value in ipairs(values) do
      local more = far and far[decay] or 1
      local trial = { config = { decay = decay, length = 8 }, seed = seed, metrics = {
        best_val_ppl = value, ["ppl@128"] = value * more, mean_extrapolation_ppl = value * more } }
      if change then change(trial) end
      trials[#trials + 1] = trial
    end
  end
  sweeps.write(folder, { experiment = "decays", scale = "laptop", answers = { "tnn/table10" },
    columns = { "best_val_ppl" }, axes = { "decay" }, rule = rule, trials = trials })
end

t.test("the interval of the ratio supports or contradicts a claim, or leaves it open", function()
  local near, far = { 20, 21, 22, 20.5, 21.5 }, { 20.1, 20.9, 22.1, 20.5, 21.4 }
  local much, noisy = { 40, 42.1, 44, 41, 43.2 }, { 15, 30, 20, 28, 16 }
  for _, case in ipairs {
    { "supports", none = far }, { "contradicts", none = much }, { "cannot tell", none = noisy },
  } do
    t.in_folder(function(folder)
      decays(folder, { [0.99] = near, none = case.none })
      local text, code = run(folder, "compare tnn/table10")
      t.eq(code, 0)
      t.holds(text, "tnn/table10 by decays scale=laptop: exponential decay rates",
        ("claim 1 (%s): At the training length the model without decay is as good as"):format(
          case[1]),
        "\nclaim 1: " .. case[1] .. (case[1] == "cannot tell" and ": p is not below 0.05" or "")
          .. "; 1 (no decay) over 0.99 (ours), PPL (val): ratio ",
        "paired by seed, with 95 % intervals",
        ", 5 seeds; claimed: 0.98 to 1.02; the paper's numbers: 1.002; p ",
        "claim 2 (cannot tell): At the training length 0.999 is as good",
        "claim 2: not measured: no trial of 0.999",
        "after Holm's correction over the 3 of 12 comparisons that were run in this table",
        "p rests on Student's t, which takes the log ratios as normal: with 5 paired seeds the "
        .. "sign-flip test cannot reach p < 0.017, which Holm's correction requires of the "
        .. "smallest (its smallest p is 0.0625); with 7 it can")
    end)
  end
end)

t.test("claims compare perplexities per byte of the paper's tokens", function()
  local function said(bytes)
    local text
    t.in_folder(function(folder)
      decays(folder, { [0.99] = { 3.4, 3.5, 3.6 }, none = { 3.434, 3.535, 3.636 } }, nil,
        bytes and function(trial) trial.metrics.bytes_per_token = bytes end)
      text = run(folder, "compare tnn/table10"):gsub("%s+", " ")
    end)
    return text:match "claim 1: .-, PPL %(val%): ratio (%d+%.%d+)",
      text:match "claims compare perplexities per [^;]*; a token here has [^%s]*"
  end
  t.eq({ said() }, { "1.010" })
  t.eq({ said(1) }, { ("%.3f"):format(1.01 ^ 4.5), "claims compare perplexities per 4.5 bytes, the "
    .. "mean length of the paper's tokens; a token here has 1" })
  t.eq((said(4.5)), "1.010")
  -- A mean over lengths is that of converted perplexities: of 3^4.5 and 6^4.5.
  t.in_folder(function(folder)
    decays(folder, { [0.99] = { 3, 3, 3 }, none = { 3, 3, 3 } }, nil, function(trial)
      local far = trial.config.decay == "none" and 6 or 3
      trial.config.lengths = { 8, 128 }
      trial.metrics.bytes_per_token, trial.metrics["ppl@8"] = 1, 3
      trial.metrics["ppl@128"], trial.metrics.mean_extrapolation_ppl = far, (3 + far) / 2
    end)
    t.holds(run(folder, "compare tnn/table10"):gsub("%s+", " "),
      ("mean_extrapolation_ppl: ratio %.3f"):format((1 + 2 ^ 4.5) / 2))
  end)
end)

t.test("models worse than bigrams decide no claim", function()
  local function said(with, without)
    local found
    t.in_folder(function(folder)
      decays(folder, { [0.99] = { 20, 21, 22 }, none = { 40, 42.1, 44 } }, nil, function(trial)
        trial.metrics.test_ppl = trial.config.decay == "none" and without or with
        trial.metrics.bigram_ppl = 44
      end)
      found = run(folder, "compare tnn/table10")
    end)
    return found:match "claim 1 %(([%a ]+)%)", found:find("worse than bigrams", 1, true) ~= nil
  end
  t.eq({ said(20, 43) }, { "contradicts", false })
  t.eq({ said(20, 45) }, { "contradicts", false }) -- a bad model may be compared with a good one
  t.eq({ said(46, 45) }, { "cannot tell", true })
end)

t.test("5-grams replace bigrams as the yardstick for all trials of the same text",
  function()
    local function said(change)
      local found
      t.in_folder(function(folder)
        decays(folder, { [0.99] = { 20, 21, 22 }, none = { 40, 42.1, 44 } }, nil, function(trial)
          local m = trial.metrics
          m.test_ppl = trial.config.decay == "none" and 42 or 20
          m.bigram_ppl, m.fivegram_ppl = 44, 16
          change(m, trial)
        end)
        found = run(folder, "compare tnn/table10")
      end)
      return found:match "claim 1 %(([%a ]+)%)",
        found:match "both sides predict worse than ([^:;]*)"
    end
    t.eq({ said(function() end) }, { "cannot tell", "5-grams of their training text" })
    t.eq({ said(function(m, trial) -- only one trial is new
      if trial.seed ~= 1 or trial.config.decay == "none" then m.fivegram_ppl = nil end
    end) }, { "cannot tell", "5-grams of their training text" })
    t.eq({ said(function(m, trial) -- the new trial has another text
      if trial.seed == 1 and trial.config.decay ~= "none" then m.bigram_ppl = 45
      else m.fivegram_ppl = nil end
    end) }, { "contradicts" })
    t.eq({ said(function(m, trial) -- one of them is better
      if trial.seed == 1 then m.test_ppl = 15.9 end
    end) }, { "contradicts" })
    t.eq({ said(function(m) m.test_ppl = 16 end) }, { "contradicts" })
  end)

t.test("the ratio, its interval and p come from paired logarithms", function()
  t.in_folder(function(folder)
    -- the logarithms of the ratios are 0.6, 0.7 and 0.8: 0.7 with standard error 0.1 / sqrt(3)
    local none = { 20 * math.exp(0.6), 30 * math.exp(0.7), 40 * math.exp(0.8) }
    decays(folder, { [0.99] = { 20, 30, 40 }, none = none })
    local half = 4.302652729911275 * 0.1 / math.sqrt(3)
    local csv = run(folder, "compare decays --csv")
    local row = csv:match('\ntnn/table10,3,[%a ]+,"1 %(no decay%) over 0%.99 %(ours%), ppl@128",'
      .. "above 1%.5,,([^\n]*)\n")
    t.ok(row, csv)
    local ratio, low, high, pairs_, p = row:match "^(%S-),(%S-),(%S-),(%d+),(%S-),"
    t.eq(tonumber(ratio), math.exp(0.7), 1e-6)
    t.eq(tonumber(low), math.exp(0.7 - half), 1e-5)
    t.eq(tonumber(high), math.exp(0.7 + half), 1e-5)
    t.eq(pairs_, "3")
    -- t = (0.7 - log 1.5) / se = 5.1015 with 2 degrees of freedom: p = 1 - t / sqrt(2 + t^2)
    local x = (0.7 - math.log(1.5)) / (0.1 / math.sqrt(3))
    local alone = 1 - x / math.sqrt(2 + x * x)
    t.eq(tonumber(p), 2 * alone, 1e-6) -- the second of three after claim 1
  end)
end)

t.test("a claim of several comparisons requires all of them, and one can contradict it", function()
  local base = { 20, 21, 22, 20.5, 21.5 }
  local function times(factor)
    local list = {}
    for i, v in ipairs(base) do list[i] = v * factor * (1 + 0.002 * (i % 3 - 1)) end
    return list
  end
  local function verdict(of)
    local found
    t.in_folder(function(folder)
      of[0.99] = base
      decays(folder, of)
      found = run(folder, "compare tnn/table10"):match "claim 4 %(([%a ]+)%)"
    end)
    return found
  end
  t.eq(verdict { [0.9] = times(1.1), [0.95] = times(1.1) }, "supports")
  t.eq(verdict { [0.9] = times(1.1), [0.95] = times(0.9) }, "contradicts")
  t.eq(verdict { [0.9] = times(1.1) }, "cannot tell")
end)

t.test("a trial without a result counts on both sides", function()
  t.in_folder(function(folder)
    decays(folder, { [0.99] = { 20, 21, 22, 23 } }, { [0.99] = 2 }, function(trial)
      trial.status = trial.seed == 2 and "failed" or nil
    end)
    local published, store <close> = published_tables.read "tnn/table10", records.open(folder, "r")
    published.claims = { { says = "X.", row = "0.99 (ours)", metric = "ppl@16x",
      over_metric = "best_val_ppl", above = 1 } }
    local result = claims.of(published, frames.find(store, "experiment", "decays", {}))
    t.eq(result.claims[1].list[1].pair.lost, 1)
  end)
end)

t.test("compares another metric of the same column task by task", function()
  t.in_folder(function(folder)
    local trials = {}
    for task, published in pairs { associative_recall = 1.0, induction_heads = 0.972 } do
      for seed = 1, 3 do
        trials[#trials + 1] = { config = { model = "attention", task = task }, seed = seed,
          metrics = { test_accuracy = task == "induction_heads" and 0.5 or 1 - seed / 1000,
            published_accuracy = published } }
      end
    end
    sweeps.write(folder, { experiment = "icl", scale = "laptop", answers = { "field/icl" },
      columns = { "test_accuracy" }, axes = { "model", "task" }, trials = trials })
    t.holds(run(folder, "compare field/icl"), "associative recall over published_accuracy: ratio "
      .. "0.9980 [0.9955, 1.0005], 3 seeds", "induction heads over published_accuracy: ratio 0.514")
  end)
end)

t.test("leaves out seeds that one side lacks", function()
  t.in_folder(function(folder)
    decays(folder, { [0.99] = { 20, 21, 22, 23, 24 }, none = { 20, 21, 22, 23 } }, nil,
      function(trial)
        if trial.config.decay == "none" and trial.seed == 2 then trial.status = "failed" end
      end)
    t.holds(run(folder, "compare tnn/table10"),
      "PPL (val): ratio 1.000 [1.000, 1.000], 3 seeds; claimed: 0.98 to 1.02",
      "cannot tell: 1 trial ended without a result; 1 (no decay) over",
      "left out: 2 seeds done on one side only; the seeds do not differ, so no test applies")
  end)
  t.in_folder(function(folder) -- one seed has no p, but it was asked for
    local values = { 20, 21, 22 }
    decays(folder, { [0.99] = values, [0.999] = values, none = { 20, 20, 24 } }, nil,
      function(trial)
        if trial.config.decay == 0.999 and trial.seed > 1 then trial.status = "failed" end
      end)
    local text = run(folder, "compare tnn/table10")
    t.holds(text, "after Holm's correction over the 5 of 12 comparisons that were run",
      "claim 2: cannot tell: 2 trials ended without a result; 0.999 over 0.99 (ours), PPL (val): "
      .. "ratio 1.000, 1 seed; claimed: 0.98 to 1.02; ",
      "left out: 2 seeds done on one side only; one seed has no interval")
  end)
  t.in_folder(function(folder)
    decays(folder, { [0.99] = { 20 }, none = { 20 } })
    t.holds(run(folder, "compare tnn/table10"), "1 seed; claimed: ",
      "claim 1: cannot tell: one seed has no interval; 1 (no decay) over")
  end)
  t.in_folder(function(folder)
    decays(folder, { [0.99] = { -20, 1 }, none = { 20, 1 } })
    t.holds(run(folder, "compare tnn/table10"),
      "not measured: 1 (no decay) over 0.99 (ours), PPL (val): a value is not above 0")
  end)
end)

t.test("columns select the trials of a task; a mean of columns is taken per seed", function()
  t.in_folder(function(folder)
    local trials = {}
    local tasks = { "imdb", "listops", "retrieval", "pathfinder", "cifar" }
    for _, model in ipairs { "tnn", "s4" } do
      for i, task in ipairs(tasks) do
        for seed = 1, 3 do
          trials[#trials + 1] = { config = { model = model, task = task }, seed = seed,
            metrics = { test_accuracy = (model == "tnn" and 0.6 or 0.3) + seed / 100
              + (i % 2) / 10 } }
        end
      end
    end
    sweeps.write(folder, { experiment = "lra", answers = { "tnn/table4" }, trials = trials,
      axes = { "model", "task" } })
    local text = run(folder, "compare lra")
    local function ratio(a, b)
      local logs = 0.0
      for seed = 1, 3 do logs = logs + math.log((a + seed / 100) / (b + seed / 100)) / 3 end
      return ("ratio %.3f "):format(math.exp(logs))
    end
    t.holds(text, "claim 2 (contradicts): On ListOps and Image",
      "claim 2: contradicts; S4 over TNN, Image: " .. ratio(0.4, 0.7),
      "claim 2: contradicts; S4 over TNN, ListOps: " .. ratio(0.3, 0.6),
      "claim 3: supports; TNN over S4, mean of text, listops, retrieval, pathfinder, image: "
        .. ratio(0.66, 0.36))
  end)
end)

t.test("a row with a diverged seed is not measured by the other seeds", function()
  for _, change in ipairs {
    function(trial) trial.metrics.best_val_ppl = math.huge end,
    function(trial) trial.ended = "guard" end,
  } do
    t.in_folder(function(folder)
      decays(folder, { [0.99] = { 20, 21, 22 }, none = { 20, 21.5, 22 } }, nil, function(trial)
        if trial.config.decay == "none" and trial.seed == 1 then change(trial) end
      end)
      t.holds(run(folder, "compare tnn/table10"), "claim 1 (cannot tell): ",
        "claim 1: not measured: diverged: 1 (no decay)")
    end)
  end
end)

t.test("an experiment that begins to answer a table does not hide another's results",
  function()
    t.in_folder(function(folder)
      decays(folder, { [0.99] = { 20, 21, 22 }, [0.9] = { 22, 23.1, 24.2 } })
      local function begin(status)
        sweeps.write(folder, { experiment = "later", axes = { "decay" }, source = status,
          answers = { "tnn/table10" }, trials = { { config = { decay = 0.9 }, seed = 1,
            status = status, metrics = { best_val_ppl = 1 } } } })
        return run(folder, "compare tnn/table10")
      end
      t.holds(begin "queued",
        "claim 4: cannot tell: the seeds do not differ, so no test applies; 0.99 (ours) over 0.90, "
        .. "PPL (val): ratio 0.909")
      t.holds(begin "done", "claim 4: not measured: no trial of 0.99 (ours)")
    end)
  end)

t.test("intervals of claims are wider after looks at the results", function()
  local function row(rule)
    local found
    t.in_folder(function(folder)
      decays(folder, { [0.99] = { 20, 21, 22 }, none = { 20.2, 20.9, 22.1 } }, nil, nil, rule)
      decays(folder, { [0.99] = { 20, 21, 22 }, none = { 20.2, 20.9, 22.1 } })
      local text = run(folder, "compare tnn/table10")
      t.eq(text:find("corrected for that", 1, true) ~= nil, rule ~= nil)
      t.holds(text, rule and "paired by seed, with 99.17 % intervals" or "with 95 % intervals")
      t.eq({ text:find("] (99.17 %, corrected), 3", 1, true) ~= nil,
        text:find(", corrected for looks and ", 1, true) ~= nil }, { rule ~= nil, rule ~= nil })
      found = { text:match "claim 1: [^\n]- ratio %S+ %[(%S+), (%S+)%]" }
    end)
    return math.log(found[2] / found[1])
  end
  -- of 18 seeds the first look has three, and so 3/18 of the 5 %: the quantiles of t at 2 degrees;
  -- a later sweep of a fixed number of seeds, as compare proposes, does not undo the looks
  t.eq(row "until 2 %, at most 18" / row(), 10.88587 / 4.30265, 0.05)
end)

t.test("several settings of a row are not paired with each other", function()
  t.in_folder(function(folder)
    local trials = {}
    for _, lr in ipairs { 0.1, 0.2 } do
      for _, decay in ipairs { 0.99, "none" } do
        for seed = 1, 2 do
          trials[#trials + 1] = { config = { decay = decay, lr = lr }, seed = seed,
            metrics = { best_val_ppl = 10 + seed } }
        end
      end
    end
    sweeps.write(folder, { experiment = "d", answers = { "tnn/table10" }, trials = trials,
      axes = { "decay", "lr" } })
    t.holds(run(folder, "compare tnn/table10"),
      "several settings match 1 (no decay): choose with lr=0.1 or lr=0.2")
    t.holds(run(folder, "compare tnn/table10 lr=0.1"),
      "; 1 (no decay) over 0.99 (ours), PPL")
    for _, words in ipairs { "d lr=0.1", "tnn/table10 --baseline lr=0.1" } do
      t.holds(run(folder, "compare " .. words), "best_val_ppl, lower is better; difference: lr=0.2")
    end
  end)
end)

t.test("ratios have the digits of their intervals, even very large ones; missing parts are named",
  function()
    t.in_folder(function(folder)
      local base = { 20, 21, 22, 20.5, 21.5 }
      local near = { 20.002, 21, 22.002, 20.5, 21.5 }
      decays(folder, { [0.99] = base, [0.999] = near, none = { 4e5, 5e5, 4e5, 5e5, 4e5 } },
        nil, function(trial) trial.metrics.mean_extrapolation_ppl = nil end)
      local text = run(folder, "compare decays")
      t.holds(text,
        "claim 2: supports; 0.999 over 0.99 (ours), PPL (val): ratio 1.000038 [0.999973, 1.000103]",
        "claim 1: contradicts; 1 (no decay) over 0.99 (ours), PPL (val): "
        .. "ratio 2.08e+04 [1.76e+04, 2.47e+04]",
        "claim 3: not measured: no trial has logged mean_extrapolation_ppl\n",
        "claim 5: not measured: no trial has logged Avg PPL (extrapolation)\n")
    end)
  end)

-- ---- Where they stand -------------------------------------------------------------------------

t.test("a table ends with its claims, in every form but CSV", function()
  t.in_folder(function(folder)
    decays(folder, { [0.99] = { 20, 21, 22 }, none = { 60, 65, 62 } })
    for form, want in pairs { [""] = "claim 3 (supports): Without decay", ["--md"] =
      "- claim 3 (supports): Without decay", ["--tex"] = "  claim 3 (supports): Without decay",
      ["--html"] = "<li>claim 3 (supports): Without decay" } do
      t.holds(run(folder, "table tnn/table10 " .. form), want)
    end
    t.ok(not run(folder, "table tnn/table10 --csv"):find "claim")
    t.holds(run(folder, "table tnn/table10 --md"),
      "to measure the rows without trials: toeplab run ", " decay=0.9,0.95,0.999,learnable ")
  end)
  t.in_folder(function(folder) -- without trials the claims stand there without a verdict
    t.holds(run(folder, "table tnn/table9"), "claim 1: A relative position encoder predicts better")
  end)
end)

t.test("compare fails if no claim was measured", function()
  t.in_folder(function(folder)
    decays(folder, { [0.99] = { 20, 21, 22 } })
    for _, words in ipairs { "compare decays", "compare decays --csv" } do
      local text, code, said = run(folder, words)
      t.eq(code, 4)
      t.holds(text, "no decay")
      t.holds(said, "compare: no claim about decays was measured")
    end
  end)
end)

t.test("judges a figure that uses a table's numbers if it is named", function()
  t.in_folder(function(folder)
    sweeps.write(folder, { experiment = "e", answers = { "tnn/figure1b" }, axes = { "model" },
      trials = { { config = { model = "tnn", length = 8 }, seed = 1, metrics = {
        ["ppl@8"] = 20, ["ppl@16"] = 20, ["ppl@32"] = 20, ["ppl@64"] = 20, ["ppl@128"] = 20 } } } })
    t.holds(run(folder, "compare tnn/figure1b"),
      "claim 1: cannot tell: one seed has no interval; TNN, ppl@16 over ppl@8: ratio 1.000")
  end)
end)

t.test("a filter on a key that no trial has is an error", function()
  t.in_folder(function(folder)
    decays(folder, { [0.99] = { 20, 21, 22 } })
    for _, verb in ipairs { "compare", "table" } do
      local _, code, said = run(folder, verb .. " tnn/table10 lenght=8")
      t.eq(code, 2)
      t.holds(said, "lenght=8", "did you mean 'length'")
    end
  end)
end)

t.test("wrong arguments are usage errors", function()
  t.in_folder(function(folder)
    decays(folder, { [0.99] = { 20, 21, 22 }, none = { 60, 65, 62 } })
    sweeps.write(folder, { experiment = "own", axes = { "a" }, trials = {
      { config = { a = 1 }, seed = 1, metrics = { loss = 1 } } } })
    for words, want in pairs {
      [""] = "give two values of one key, like decay=0.99 decay=none, or a published table",
      ["own"] = "no paper's claims are known about own",
      ["tnn/table2"] = "compare: no trial here answers tnn/table2",
      ["tnn/table100"] = "no table or experiment 'tnn/table100'; did you mean 'tnn/table10'",
      ["decay"] = "no table or experiment 'decay'; did you mean 'decays'?",
      ["decays --by decay"] = "--by needs KEY=A KEY=B",
      ["decays -m best_val_ppl"] = "--metric needs KEY=A KEY=B",
      ["decays scale=gpu"] = "no trial of decays matches; there are: decays scale=laptop",
      ["decays seed=9"] = "no trial of decays scale=laptop has seed=9 (there are: 1, 2, 3)",
    } do
      local text, code, said = run(folder, "compare " .. words)
      t.eq({ text, code }, { "", 2 })
      t.holds(said, want)
    end
  end)
end)

t.done()
