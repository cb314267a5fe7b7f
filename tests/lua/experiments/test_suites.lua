-- test_suites.lua: the experiments of the suites of synthetic tasks run at scale smoke, and log
-- what their published tables say.
local t = require "harness"
local experiment = require "toeplab.trials.experiment"
local json = require "toeplab.base.json"
local plan = require "toeplab.trials.plan"
local published_tables = require "toeplab.trials.published_tables"
local smoke = require "smoke"
local space = require "toeplab.trials.space"
local tl = require "toeplab"

t.test("icl at scale smoke: five models on two tasks, beside the published accuracies", function()
  local published = published_tables.read "field/icl"
  local column = { associative_recall = 2, induction_heads = 3 }
  smoke("icl", { "seeds=1" }, function(store)
    local rows = store:rows [[SELECT config, a.value AS here, p.value AS published
      FROM v_trials JOIN v_last a ON a.trial = v_trials.id AND a.name = 'test_accuracy'
      LEFT JOIN v_last p ON p.trial = v_trials.id AND p.name = 'published_accuracy']]
    t.eq(#rows, 10)
    for _, row in ipairs(rows) do
      local c, wanted = json.decode(row.config), nil
      for _, line in ipairs(published.rows) do
        for _, where in ipairs(line.where) do
          if space.fits(where, c) then wanted = line[column[c.task]] end
        end
      end
      t.ok(row.here >= 0 and row.here <= 1, row.here)
      t.eq(row.published and 100 * row.published, wanted, 1e-9)
    end
  end)
end)

t.test("mad at scale smoke: six tasks, of which compression trains an auto-encoder", function()
  smoke("mad", {}, function(store)
    local rows = store:rows [[SELECT json_extract(config, '$.task') AS task, count(*) AS n,
      min(value) AS least, max(value) AS most FROM v_trials JOIN v_last ON trial = v_trials.id
      WHERE name = 'test_accuracy' GROUP BY task ORDER BY task]]
    t.eq(#rows, 6)
    for _, row in ipairs(rows) do
      t.eq(row.n, 4) -- two mixers, two weight decays
      t.ok(row.least >= 0 and row.most <= 1, row.task)
    end
  end)
end)

t.test("mad's score is the mean of tasks over settings of the best of six runs", function()
  local exp, printed = experiment.load "../../experiments/mad.lua", nil
  local trials = {}
  for i, trial in ipairs(plan.trials(exp, { "scale=paper", "mixer=tnn" })) do
    local c = trial.config
    local best = c.lr == 5e-4 and c.weight_decay == 0.1
    -- The best of a setting is 0.5, but 1 where the sequence is longer.
    local value = best and (c.setting:find "length" and 1.0 or 0.5) or 0.4 * (i % 2)
    trials[i] = { config = c, seed = 1, metrics = { test_accuracy = value } }
  end
  t.eq(#trials, 66 * 6)
  exp.report(trials, {
    print = function(header, rows) printed = { header, rows } end,
    mean = function(list)
      local sum = 0.0
      for _, value in ipairs(list) do sum = sum + value end
      return sum / #list
    end,
  })
  local wanted = { in_context_recall = 0.5 + 1.5 / 11, fuzzy_recall = 0.5 + 1.5 / 11,
    noisy_recall = 0.5 + 1.5 / 14, selective_copying = 0.5 + 1 / 13,
    compression = 0.5 + 1.5 / 11, memorization = 0.5 }
  local sum = 0.0
  for i = 2, 7 do
    t.eq(printed[2][1][i], wanted[printed[1][i]], 1e-9)
    sum = sum + wanted[printed[1][i]] / 6
  end
  t.eq({ printed[1][8], printed[2][1][1] }, { "score", "tnn" })
  t.eq(printed[2][1][8], sum, 1e-9)
  exp.report({ trials[1] }, { print = function(_, rows) printed = rows end,
    mean = function(list) return list[1] end })
  t.eq({ printed[1][3], printed[1][8] }, { "-", "-" }) -- without trials of a task there is no score
end)

t.test("the auto-encoder sees all tokens through the state after the last one", function()
  tl.seed(3)
  local exp = experiment.load "../../experiments/mad.lua"
  local made = {}
  local trial = { log = function(_, values) made.values = values end,
    steps = function(_, _, model)
      made.model = model
      return function() end
    end }
  local config
  for _, one in ipairs(plan.trials(exp, { "scale=smoke", "mixer=tnn" })) do
    if one.config.task == "compression" then config = one.config end
  end
  exp.trial(trial, config)
  local ids = tl.ids { { 1, 2, 3, 4 }, { 9, 2, 3, 4 } }
  local hidden = made.model:hidden(ids)
  t.eq(hidden:shape(), { 2, 4, 16 })
  t.eq(made.model:logits(hidden):shape(), { 2, 4, 16 })
  local rows = hidden:totable()
  for place = 1, 4 do -- another first token changes every place, and places differ
    t.ok(math.abs(rows[1][place][1] - rows[2][place][1]) > 1e-6)
    t.ok(place == 1 or math.abs(rows[1][place][1] - rows[1][place - 1][1]) > 1e-6)
  end
end)

t.test("mqar at scale zoology: the paper's lengths and widths, each for 64 epochs, at four rates",
  function()
    local exp = experiment.load "../../experiments/mqar.lua"
    local list = plan.trials(exp, { "scale=zoology", "lr=1e-4,4.6416e-4,2.1544e-3,1e-2" })
    t.eq(#list, 7 * 3 * 4 * 4)
    local tasks = {}
    for _, trial in ipairs(list) do
      local c = trial.config
      tasks[("%d tokens, %d pairs"):format(c.length, c.pairs)] = true
      local data = tl.recall.mqar { vocab = c.vocab, length = c.length, pairs = c.pairs,
        train = c.train, batch = c.batch }
      t.eq({ c.steps, c.filler, c.channel }, { 64 * data:steps(), "zero", "none" })
    end
    t.eq(tasks, { ["64 tokens, 4 pairs"] = true, ["128 tokens, 8 pairs"] = true,
      ["256 tokens, 16 pairs"] = true })
    smoke("mqar", { "seeds=1", "mixer=attention,tnn", "dim=8", "train=20", "filler=zero",
      "channel=none", "dropout=0.1" }, function(store)
      t.eq(store:rows("SELECT count(*) AS n FROM v_last WHERE name = 'test_accuracy'")[1].n, 2)
    end)
    t.eq(#plan.trials(exp, { "seeds=1", "lr=3e-3" }), 21)
  end)

t.done()
