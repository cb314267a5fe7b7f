-- report/yardsticks.lua: yardsticks for the results of models: the results of simple models of the
-- same data, which trials log (recipes/lm.lua, recipes/mlm.lua, tasks/simple_models.lua,
-- tasks/tables/series.lua, experiments/quickstart.lua). docs/reference/command.md lists them.
-- Trials older than a yardstick stay valid: a table shows it if one trial has logged it.
local suggest = require "toeplab.base.suggest"

local yardsticks = {}

local NGRAMS = "perplexity of n-grams of the same training text on the same test tokens"
local LOSSES = "loss of n-grams of the same training text on the same tokens"
local BITS = "bits of n-grams of the same training text on the same tokens"
local RULES = "test accuracy of simple models of the same training examples"
local ERRORS = "squared error of simple predictions of the same rows"
local MOST_ORDER = 8 -- of the metrics "bits of n-gram ORDER"

-- A yardstick has the metric that is compared with it (of), whether that is a share, the line that
-- shows it, its name there and, if models that miss it have learnt too little for a verdict, its
-- name in a sentence. A trial that lacks one takes the value
-- of a trial with the same value of `key`, which has the same text. One with `instead` is shown
-- only where that other yardstick is missing.
local list = {
  { "unigram_ppl", of = "test_ppl", line = NGRAMS, name = "unigram" },
  { "bigram_ppl", of = "test_ppl", line = NGRAMS, name = "bigram",
    plural = "bigrams of their training text" },
  { "trigram_ppl", of = "test_ppl", line = NGRAMS, name = "trigram" },
  { "fivegram_ppl", of = "test_ppl", line = NGRAMS, name = "5-gram by Kneser-Ney",
    key = "bigram_ppl", plural = "5-grams of their training text" },
  { "sixgram_ppl", of = "test_ppl", line = NGRAMS, name = "6-gram by Kneser-Ney" },
  { "both_sides_ppl", of = "test_ppl", name = "n-gram of two tokens on either side",
    line = "perplexity of masked test tokens by the same training text",
    plural = "n-grams of both sides" },
  { "ridge_accuracy", of = "test_accuracy", share = true, line = RULES,
    name = "ridge regression on pixels", plural = "a ridge regression on pixels" },
  { "bayes_accuracy", of = "test_accuracy", share = true, line = RULES,
    name = "naive Bayes on character n-grams", plural = "naive Bayes on character n-grams" },
  { "operator_accuracy", of = "test_accuracy", share = true, line = RULES,
    name = "the most frequent value of the outer operator",
    plural = "the most frequent value of the outer operator" },
  { "linear_mse", of = "test_mse", line = ERRORS, name = "ridge regression on the last rows",
    plural = "a ridge regression on the last rows" },
  { "last_mse", of = "test_mse", line = ERRORS, name = "the last row repeated",
    plural = "the last row repeated" },
  { "ngram_bits", of = "test_bits", line = BITS, name = "n-gram",
    plural = "n-grams of their training text" },
}
for i = 1, 5 do
  local ppl = list[i]
  local function loss(name) return name and name:gsub("_ppl$", "_loss") or nil end
  list[#list + 1] = { loss(ppl[1]), of = "test_loss", line = LOSSES, name = ppl.name,
    plural = ppl.plural, key = loss(ppl.key), instead = ppl[1] }
end
for order = 1, MOST_ORDER do
  list[#list + 1] = { "bits of n-gram " .. order, of = "test_bits", unit = "bits", line = BITS,
    name = "order " .. order,
    plural = ("n-grams of order %d of their training text"):format(order) }
end

-- The metrics that `of` and `unreached` read, in the order of their values.
yardsticks.names = { "test_ppl", "test_accuracy", "test_mse", "test_loss", "test_bits",
  "tokens_seen", "test_text_se" }
for _, yardstick in ipairs(list) do table.insert(yardsticks.names, yardstick[1]) end

local place = {}
for i, name in ipairs(yardsticks.names) do place[name] = i end

-- Returns the unit of a metric, the last word of its name: "ppl" of best_val_ppl and ppl@512. nil
-- for a metric of the training part, which no yardstick has.
local function unit_of(metric)
  if metric == "loss" or metric:find "^train" then return nil end
  return metric:gsub("@.*$", ""):match "[^_ ]+$"
end

for _, yardstick in ipairs(list) do yardstick.unit = yardstick.unit or unit_of(yardstick[1]) end

-- Returns the yardsticks of trials, name -> value; false if trials logged different values.
-- text_error: {least=, most=} of the standard errors by the test text. first: the index before the
-- values of yardsticks.names in a trial's values.
function yardsticks.of(trials, first)
  local found = {}
  for i, name in ipairs(yardsticks.names) do
    for _, t in ipairs(trials) do
      local value = t.values[first + i]
      if value then
        local same = found[name] == nil or found[name] == value
        found[name] = same and value
        if name == "test_text_se" then
          local range = found.text_error or { least = value, most = value }
          range.least, range.most = math.min(range.least, value), math.max(range.most, value)
          found.text_error = range
        end
      end
    end
  end
  return found
end

-- Returns the lines that show what yardsticks.of found. metric: only those of its unit; nil: all,
-- and what else the trials logged of their data.
function yardsticks.lines(found, metric)
  local lines, number, unit = {}, {}, metric and unit_of(metric)
  for _, y in ipairs(list) do
    local value = found[y[1]]
    local hidden = not metric and found[y.instead]
    if value and not hidden and (not metric or y.unit == unit) then
      local text = y.share and ("%s %.1f %%"):format(y.name, 100 * value)
        or (y.unit == "ppl" and "%s %.1f" or "%s %.4g"):format(y.name, value)
      local at = number[y.line]
      if at then
        lines[at] = lines[at] .. ", " .. text
      else
        lines[#lines + 1] = y.line .. ": " .. text
        number[y.line] = #lines
      end
    end
  end
  if metric then return lines end
  if found.text_error then
    lines[#lines + 1] = ("with other test texts of this kind the perplexity of one model would "
      .. "differ by %.2g to %.2g %% (2 standard errors over the parts of the text)"):format(
      100 * (math.exp(2 * found.text_error.least) - 1),
      100 * (math.exp(2 * found.text_error.most) - 1))
  end
  if found.tokens_seen then
    lines[#lines + 1] = ("each model saw %.3g M training tokens"):format(found.tokens_seen / 1e6)
  end
  return lines
end

-- Returns a function that returns the value of a yardstick in a trial.
local function reader(trials, first, y)
  local at, key, known = first + place[y[1]], y.key and first + place[y.key], {}
  for _, t in ipairs(key and trials or {}) do
    if t.values[key] and t.values[at] then known[t.values[key]] = t.values[at] end
  end
  return function(t)
    return t.values[at] or key and t.values[key] and known[t.values[key]]
  end
end

-- Returns the name of a yardstick of the unit of a metric that all finished trials miss; nil: there
-- is none. at_metric: the index of the metric in a trial's values, which stands for that of the
-- yardstick where the trial has not logged the latter; nil: none.
function yardsticks.unreached(trials, first, metric, at_metric)
  local unit = unit_of(metric)
  for i = #list, 1, -1 do
    local y, count = list[i], 0
    local value_of, at = reader(trials, first, y), first + place[y.of]
    for _, t in ipairs(y.plural and y.unit == unit and trials or {}) do
      local value, least = t.values[at] or at_metric and t.values[at_metric], value_of(t)
      local gain = value and least and (least - value) * (y.share and -1 or 1)
      if t.status == "done" then
        if not gain or gain >= 0 then goto next end
        count = count + 1
      end
    end
    if count > 0 then return y.plural end
    ::next::
  end
end

return suggest.strict("yardsticks", yardsticks)
