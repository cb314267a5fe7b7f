-- Tests what tables say of the yardsticks that trials have logged.
local t = require "harness"
local sweeps = require "sweeps"
local yardsticks = require "toeplab.report.yardsticks"

-- Returns trials, as a pool reads them, of the metrics in the lists.
local function trials_of(lists)
  local trials = {}
  for i, metrics in ipairs(lists) do
    local values = {}
    for k, name in ipairs(yardsticks.names) do values[k + 1] = metrics[name] end
    trials[i] = { status = metrics.status or "done", values = values }
  end
  return trials
end

local function lines(lists) return yardsticks.lines(yardsticks.of(trials_of(lists), 1)) end

t.test("one trial that has logged a yardstick shows it for all", function()
  local old, new = { bigram_ppl = 44.64 }, { bigram_ppl = 44.64, fivegram_ppl = 16.12 }
  local ngrams = "perplexity of n-grams of the same training text on the same test tokens: "
  t.eq(lines { old, old }, { ngrams .. "bigram 44.6" })
  t.eq(lines { old, new }, { ngrams .. "bigram 44.6, 5-gram by Kneser-Ney 16.1" })
  t.eq(lines { new, { bigram_ppl = 44.64, fivegram_ppl = 16.5 } }, { ngrams .. "bigram 44.6" })
  t.eq(lines { {}, {} }, {})
end)

t.test("yardsticks of several tasks are on one line, shares in percent", function()
  t.eq(lines { { ridge_accuracy = 0.3 }, { operator_accuracy = 0.3355, tokens_seen = 2.5e6 } }, {
    "test accuracy of simple models of the same training examples: ridge regression on pixels "
      .. "30.0 %, the most frequent value of the outer operator 33.6 %",
    "each model saw 2.5 M training tokens" })
end)

t.test("a yardstick is missed if all finished trials are worse", function()
  local function missed(...) return yardsticks.unreached(trials_of { ... }, 1, "accuracy") end
  local function text(accuracy, status)
    return { test_accuracy = accuracy, bayes_accuracy = 0.74, status = status }
  end
  t.eq(missed(text(0.6), text(0.73)), "naive Bayes on character n-grams")
  t.eq(missed(text(0.6), text(0.75)), nil)
  t.eq(missed(text(0.6), text(0.74)), nil)
  t.eq(missed(text(0.6), text(0.75, "failed")), "naive Bayes on character n-grams")
  t.eq(missed(text(0.6, "failed")), nil)
  t.eq(missed(text(0.6), { test_accuracy = 0.5 }), nil) -- of a trial without it nothing is known
  t.eq(missed(), nil)
  for _, metric in ipairs { "steps_per_second", "loss", "peak_mib" } do
    t.eq(yardsticks.unreached(trials_of { text(0.6) }, 1, metric), nil)
  end
end)

t.test("losses of n-grams are shown only where no perplexity is", function()
  t.eq(lines { { bigram_ppl = 44.64, bigram_loss = 3.8 } }, {
    "perplexity of n-grams of the same training text on the same test tokens: bigram 44.6" })
  t.eq(lines { { bigram_loss = 2.5, fivegram_loss = 1.75 } }, { "loss of n-grams of the same "
    .. "training text on the same tokens: bigram 2.5, 5-gram by Kneser-Ney 1.75" })
end)

-- Returns the output of compare for trials of model=a and model=b (three seeds, b is better)
-- whose metric is near `level`, with other metrics and words. One of model=a has the value `best`.
local function compared(metric, level, others, words, best)
  local text
  t.in_folder(function(folder)
    local trials = {}
    for seed = 1, 3 do
      for i, model in ipairs { "b", "a" } do
        local value = level * (1 + 0.1 * i + 0.001 * (seed * i % 3))
        if seed == 1 and model == "a" then value = best or value end
        local trial = { config = { model = model }, seed = seed, metrics = { [metric] = value } }
        for name, other in pairs(others) do trial.metrics[name] = other end
        trials[#trials + 1] = trial
      end
    end
    sweeps.write(folder, { experiment = "own", axes = { "model" }, columns = { metric },
      trials = trials })
    text = t.toeplab(("compare own model=a model=b %s -C '%s'"):format(words or "", folder))
  end)
  return text
end

local UNTRAINED = "cannot tell: both sides predict worse than %s, so nothing may be claimed before "
  .. "they are trained better"

t.test("compare claims nothing about models that all miss a yardstick of the metric's unit",
  function()
    for _, case in ipairs {
      { "test_bits", { ngram_bits = 2 }, "n-grams of their training text" },
      { "bits", { ngram_bits = 2 }, "n-grams of their training text" },
      { "bits@256", { ["bits of n-gram 5"] = 2, ["bits of n-gram 6"] = 2.9 },
        "n-grams of order 5 of their training text" },
      { "val_loss", { fivegram_loss = 1.7 }, "5-grams of their training text" },
      { "test_ppl", { fivegram_ppl = 1.7 }, "5-grams of their training text" },
      { "best_val_ppl", { bigram_ppl = 1.7 }, "bigrams of their training text" },
      { "test_mse", { linear_mse = 0.3 }, "a ridge regression on the last rows" },
      { "valid_mse", { last_mse = 0.3 }, "the last row repeated" },
    } do
      local metric, others, name = table.unpack(case)
      local text = compared(metric, 2.5, others)
      t.holds(text, "\n" .. UNTRAINED:format(name) .. "\n")
      t.ok(not text:find "is better than", text)
      t.ok(not text:find "seeds in all", text)
      t.holds(compared(metric, 2.5, others, "", 0.1), "model") -- one model is better
      t.ok(not compared(metric, 2.5, others, "", 0.1):find "cannot tell", metric)
      t.holds(compared(metric, 0.2, others), "model=b is better than model=a: by")
    end
  end)

t.test("compare shows the metric's simple models, and none of a training metric", function()
  local others = { bayes_accuracy = 0.5, linear_mse = 0.3, ngram_bits = 2, bigram_loss = 0.1 }
  t.holds(compared("test_accuracy", 0.7, others), "model=b is worse than model=a",
    "\ntest accuracy of simple models of the same training examples: naive Bayes on character "
    .. "n-grams 50.0 %\n")
  t.holds(compared("test_accuracy", 0.3, others),
    UNTRAINED:format("naive Bayes on character n-grams"))
  t.ok(not compared("test_accuracy", 0.3, others):find "regression")
  for _, metric in ipairs { "loss", "train_loss", "parameters" } do
    t.holds(compared(metric, 2.5, others, "--lower"), "model=b is better than model=a")
  end
end)

t.test("a metric of the test part decides before the compared one", function()
  -- At another length the models are worse than 5-grams, but where they were trained they are not.
  t.holds(compared("ppl@2048", 30, { test_ppl = 10, fivegram_ppl = 12 }),
    "model=b is better than model=a")
  t.holds(compared("ppl@2048", 11, { test_ppl = 15, fivegram_ppl = 12 }),
    UNTRAINED:format("5-grams of their training text"))
end)

t.done()
