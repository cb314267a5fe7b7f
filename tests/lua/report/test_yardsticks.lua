-- Tests what tables say of the yardsticks that trials have logged.
local t = require "harness"
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
  local function missed(...) return yardsticks.unreached(trials_of { ... }, 1) end
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
end)

t.done()
