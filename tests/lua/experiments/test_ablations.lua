-- test_ablations.lua: every ablation experiment, and others that answer a table, run at scale smoke
-- and answer their published table.
local t = require "harness"
local core = require "toeplab.core"
local experiment = require "toeplab.trials.experiment"
local logged_tensors = require "toeplab.store.logged_tensors"
local plan = require "toeplab.trials.plan"
local published_tables = require "toeplab.trials.published_tables"
local smoke = require "smoke"
local space = require "toeplab.trials.space"
local tl = require "toeplab"

-- By experiment: its trials with one seed, and a key by which they differ.
local experiments = {
  ["tnn-table7"] = { 6, "structure" }, ["tnn-table8"] = { 6, "rpe_input" },
  ["tnn-table9"] = { 3, "encoder" }, ["tnn-table10"] = { 6, "decay" },
  ["tnn-table2"] = { 20, "model" },
}

for name, want in pairs(experiments) do
  t.test(name .. " at scale smoke", function()
    smoke(name, { "seeds=1", "steps=4" }, function(store, path)
      local rows = store:rows(([[SELECT count(DISTINCT json_extract(config, '$.%s')) AS kinds,
        count(*) AS trials FROM v_trials WHERE status = 'done']]):format(want[2]))
      t.eq(rows[1].trials, want[1])
      t.ok(rows[1].kinds >= 2, rows[1].kinds)
      local means = store:rows [[SELECT count(*) AS n FROM v_last
        WHERE name IN ('best_val_ppl', 'test_ppl', 'mean_extrapolation_ppl') AND value > 1]]
      t.eq(means[1].n, 3 * want[1])
      local id = core.sys.read_file(path):match 'answers = .-"(%l+/%w+)"'
      t.ok(core.sys.exists("../../results/published/" .. id .. ".lua"), id)
    end)
  end)
end

-- Runs a trial of tnn-table10 whose test part has some groups of blocks; returns the last values of
-- metrics, the tensor test_loss_parts as a table, and the table of the experiment as text.
local function evaluated(words)
  local metrics, parts, text = {}, nil, nil
  smoke("tnn-table10", { "decay=0.99", "seeds=1", "steps=4", "length=4", "lengths=[4,8]",
    table.unpack(words) }, function(store)
    for _, row in ipairs(store:rows "SELECT trial, name, value FROM v_last") do
      metrics[row.name], metrics.trial = row.value, row.trial
    end
    local _, tensor = logged_tensors.series(store, metrics.trial, "test_loss_parts")
    parts = tensor:totable()[1]
    text = t.toeplab(("table tnn-table10 -C '%s'"):format(store.folder))
  end)
  return metrics, parts, text
end

t.test("all of the test part is scored, or the part that tables name, with the text's own error",
  function()
    local all, groups, text = evaluated {}
    t.ok(#groups > 2, #groups)
    t.ok(not text:find("tested on", 1, true), text)
    local some, first, told = evaluated { "test_scored=130" }
    t.eq(#first, 2) -- of 16 blocks of 4 targets
    t.eq(first, { groups[1], groups[2] }, 1e-5)
    t.holds(told, "tested on the first 128 of the ")
    t.eq(some.test_loss, (first[1] + first[2]) / 2, 1e-5)
    t.eq(some.test_text_se, math.abs(first[1] - first[2]) / 2, 1e-5)
    t.ok(some.bigram_ppl ~= all.bigram_ppl and some["ppl@8"] ~= all["ppl@8"])
    t.eq({ some.best_val_ppl, some["ppl@4"] }, { all.best_val_ppl, some.test_ppl })
    local sum = 0.0
    for _, loss in ipairs(groups) do sum = sum + loss / #groups end
    t.eq(all.test_loss, sum, 3 * all.test_text_se) -- which counts the remainder, too
  end)

t.test("the scale laptop is what runs without a scale", function()
  local count = 0
  for _, name in ipairs(core.sys.list "../../experiments") do
    local path = "../../experiments/" .. name
    local laptop = name:find "%.lua$" and experiment.load(path).scale.laptop
    count = count + (laptop and 1 or 0)
    t.ok(not laptop or next(laptop) == nil, name)
  end
  t.ok(count > 10, count)
end)

t.test("what the model, the corpus or Adam refuses is refused before any trial runs", function()
  local exp = experiment.load "../../experiments/tnn-table10.lua"
  for word, want in pairs {
    ["structure=gtu-glu"] = "table10.lua:%d+: tnn_lm: .*'gtu%-glu' is not one of gtu%+glu, gtu, ",
    ["decay=0.9,nonee"] = "table10.lua:7: tnn_lm: .*alibi, learnable, none; did you mean 'none'%? "
      .. "%(trial decay=nonee ",
    ["tokenizer=bpee"] = "corpus: option 'tokenizer' = 'bpee' is not one of char, byte, ",
    ["schedule=cosin"] = "optim.adam: option 'schedule' = 'cosin' is not one of ",
  } do
    t.raises(plan.trials, want, exp, { "scale=smoke", word })
  end
  t.raises(tl.lm.train, "lm.train: unknown option 'patiense'; did you mean 'patience'", nil, {},
    { patiense = 3 })
  t.eq(#plan.trials(exp, { "scale=smoke", "structure=gtu", "seeds=1" }), 6)
end)

t.test("tnn-lm trains the operators that its presets name", function()
  local path = "../../experiments/tnn-lm.lua"
  for word, want in pairs { ["preset=fd-7/4"] = "preset.*'fd%-7/4'",
    ["preset=fd-7/3"] = "the preset fd%-7/3 is of backend=fd" } do
    t.raises(plan.trials, want, experiment.load(path), { word, "backend=naive" })
  end
  smoke("tnn-lm", { "seeds=1", "steps=2", "warmup=1", "preset=tnn-7/3,fd-7/3" }, function(store)
    local backends = {}
    for i, row in ipairs(store:rows [[SELECT path FROM v_artifacts WHERE kind = 'model'
        ORDER BY (SELECT json_extract(config, '$.preset') FROM v_trials t WHERE t.id = trial)]]) do
      backends[i] = core.sys.read_file(store.folder .. "/" .. row.path):match '"backend": ?"(%w+)"'
    end
    t.eq(backends, { "fd", "rac" })
  end)
end)

t.test("no key of a named row makes a trial answer the published row of another one", function()
  for name, ids in pairs { ["tnn-table2"] = { "tnn/table2", "tnn/table15" },
    ["tnn-table7"] = { "tnn/table7" }, image = { "tnn/table6" }, mlm = { "ski/figure8" },
    ["tnn-table5"] = { "tnn/table5" } } do
    local list = plan.trials(experiment.load(("../../experiments/%s.lua"):format(name)),
      { "scale=smoke", "seeds=1" })
    for _, id in ipairs(ids) do
      for _, row in ipairs(published_tables.read(id).rows) do
        local found = {}
        for _, trial in ipairs(list) do
          for _, where in ipairs(row.where or {}) do
            if space.fits(where, trial.config) then found[trial.label] = true end
          end
        end
        local one = next(found)
        t.ok(not one or not next(found, one), ("%s: %s: %s"):format(id, row[1], one))
      end
    end
  end
end)

t.test("tnn-table7 has the depths of each scale", function()
  local exp = experiment.load "../../experiments/tnn-table7.lua"
  for scale, want in pairs { smoke = { 1, 1, 1, 1, 1, 1 }, laptop = { 3, 4, 3, 3, 3, 3 },
    gpu = { 6, 8, 7, 7, 7, 7 }, paper = { 7, 9, 8, 8, 8, 8 } } do
    for i, trial in ipairs(plan.trials(exp, { "scale=" .. scale, "seeds=1" })) do
      t.eq(trial.config.layers, want[i])
    end
  end
end)

t.test("the contests of Tables 7 and 9 have a row each for what their last claim names", function()
  for name, want in pairs { ["tnn-table7"] = "attention-fair", ["tnn-table9"] = "table" } do
    local exp = experiment.load(("../../experiments/%s.lua"):format(name))
    local table_ = published_tables.read((exp.answers[1]))
    local over = table_.claims[#table_.claims].over
    for _, scale in ipairs { "laptop", "gpu", "paper" } do
      local found, depth = {}, nil
      for _, trial in ipairs(plan.trials(exp, { "scale=" .. scale, "seeds=1" })) do
        local c = trial.config
        if space.fits(over, c) then found[#found + 1] = c end
        depth = depth or c.layers -- of the first row, TNN
      end
      t.eq({ #found, found[1].row or found[1].encoder }, { 1, want })
      t.ok(name ~= "tnn-table9" or found[1].layers == depth, scale)
    end
  end
end)

t.test("the embedding's scale is a key of the language models", function()
  local function loss(name, words)
    local value
    smoke(name, { "seeds=1", "steps=2", table.unpack(words) }, function(store)
      value = store:rows("SELECT value FROM v_last WHERE name = 'best_val_ppl'")[1].value
    end)
    return value
  end
  for name, row in pairs { ["tnn-table10"] = "decay=0.99", ["tnn-table2"] = "model=transformer",
    ["tnn-lm"] = "warmup=1" } do
    t.eq(loss(name, { row }), loss(name, { row, "embed_scale=true" }))
    t.ok(loss(name, { row }) ~= loss(name, { row, "embed_scale=false" }), name)
  end
end)

t.test("the rows of tnn-table2 have one weight decay, but at scale paper the published ones",
  function()
    local exp = experiment.load "../../experiments/tnn-table2.lua"
    for _, trial in ipairs(plan.trials(exp, { "scale=paper", "seeds=1" })) do
      local c = trial.config
      local is_tnn = c.base:find "^tnn" or c.base:find "^fd"
      t.eq({ c.small, c.weight_decay * c.published_decay }, { false, is_tnn and 0.2 or 0.1 })
    end
    for _, trial in ipairs(plan.trials(exp, { "scale=laptop", "seeds=1", "lr=0.003" })) do
      t.eq({ trial.config.small, trial.config.weight_decay }, { true, 0.2 })
    end
  end)

t.test("tnn-table2 has no key that its presets decide", function()
  local exp = experiment.load "../../experiments/tnn-table2.lua"
  for _, scale in ipairs { "smoke", "laptop", "gpu", "paper" } do
    t.raises(plan.trials, "unknown key 'decay'", exp, { "scale=" .. scale, "decay=0.5" })
    t.eq(plan.trials(exp, { "scale=" .. scale })[1].config.glu_dim, nil)
  end
end)

t.test("tnn-table5 at scale smoke: every model has a speed at each length", function()
  smoke("tnn-table5", {}, function(store)
    local rows = store:rows [[SELECT count(*) AS n FROM v_last WHERE value > 0
      AND name IN ('steps_per_second@64', 'steps_per_second@128')]]
    t.eq(rows[1].n, 2 * 13)
    -- the keys and metrics are those of the published table
    local table5 = published_tables.read "tnn/table5"
    t.eq(table5.columns[1].metrics, { "steps_per_second@1024" })
    local models = {}
    local trials = store:rows [[SELECT json_extract(config, '$.model') AS m FROM v_trials]]
    for _, trial in ipairs(trials) do models[trial.m] = true end
    for _, row in ipairs(table5.rows) do t.ok(models[row.where[1].model], row[1]) end
  end)
end)

t.test("tokens_seen counts the steps of a training that ends early, and short epochs", function()
  smoke("wikitext2", { "decay=none", "patience=1", "lr=1e-12", "end_lr=1e-12", "steps=400" },
    function(store)
      local rows = store:rows "SELECT step, value FROM v_last WHERE name = 'tokens_seen'"
      t.eq({ rows[1].step, rows[1].value }, { 2 * 48, 2 * 3024 }) -- 48 batches of at most 4 x 16
    end)
end)

t.test("mqar at scale smoke", function()
  smoke("mqar", { "seeds=1" }, function(store)
    local rows = store:rows [[SELECT count(*) AS n FROM v_last WHERE name = 'test_accuracy'
      AND value BETWEEN 0 AND 1]]
    t.eq(rows[1].n, 14) -- seven mixers, two widths
  end)
end)

t.test("state-tracking at scale smoke: two groups, eight mixers", function()
  smoke("state-tracking", { "seeds=1" }, function(store)
    local rows = store:rows [[SELECT count(*) AS n FROM v_last WHERE name = 'test_accuracy'
      AND value BETWEEN 0 AND 1]]
    t.eq(rows[1].n, 16)
  end)
end)

t.test("nanogpt at scale smoke: three models beside n-grams and the published loss", function()
  smoke("nanogpt", { "seeds=1" }, function(store)
    local rows = store:rows [[SELECT count(DISTINCT v.value) AS n, min(f.value) AS least,
      max(p.value) AS published FROM v_last v JOIN v_last f USING (trial)
      JOIN v_last p USING (trial) WHERE v.name = 'val_loss' AND f.name = 'fivegram_loss'
      AND p.name = 'published_loss']]
    t.eq({ rows[1].n, rows[1].published }, { 3, 1.88 })
    t.ok(rows[1].least > 0)
  end)
end)

t.test("scaling at scale smoke: four sizes of each model, on texts that grow, and a fit", function()
  smoke("scaling", { "seeds=1" }, function(store)
    local rows = store:rows [[SELECT count(*) AS n, min(s.value) AS least, max(s.value) AS most
      FROM v_last s JOIN v_last f USING (trial) JOIN v_last l USING (trial)
      JOIN v_last b USING (trial) WHERE s.name = 'tokens_seen' AND f.name = 'training_flop'
      AND l.name = 'test_loss' AND b.name = 'fivegram_loss' AND f.value > 0 AND l.value > 0
      AND b.value > 0]]
    -- 1 and 12 batches of 4 x 16
    t.eq({ rows[1].n, rows[1].least, rows[1].most }, { 16, 64, 12 * 64 })
    -- a text of one batch tells bigrams less than one of twelve
    rows = store:rows [[SELECT json_extract(config, '$.dim') AS dim, max(value) AS most,
      min(value) AS least FROM v_trials JOIN v_last ON trial = id WHERE name = 'bigram_loss'
      GROUP BY 1 ORDER BY 1]]
    for i = 1, 4 do
      t.eq(rows[i].most, rows[i].least)
      t.ok(i == 1 or rows[i].most < rows[i - 1].most)
    end
    -- the encoder is evaluated once a step: a table, which has none, saves less than a third
    rows = store:rows [[SELECT a.value / b.value AS ratio FROM v_trials x
      JOIN v_last a ON a.trial = x.id JOIN v_trials y JOIN v_last b ON b.trial = y.id
      WHERE a.name = 'training_flop' AND b.name = 'training_flop'
      AND json_extract(x.config, '$.model') = 'table' AND json_extract(y.config, '$.model') = 'tnn'
      AND json_extract(x.config, '$.dim') = 20 AND json_extract(y.config, '$.dim') = 20]]
    t.ok(#rows == 1 and rows[1].ratio < 1 and rows[1].ratio > 2 / 3, rows[1].ratio)
    local fits = t.read(store.folder .. "/tables/scaling-smoke.md")
    for _, model in ipairs { "tnn", "table", "fd", "ski" } do
      t.ok(fits:find("| " .. model .. " ", 1, true), fits)
    end
    t.ok(t.read(store.folder .. "/figures/scaling-smoke.svg"):find("tnn: exponent", 1, true))
  end)
end)

t.test("image at scale smoke: six different models, by the keys of the published table", function()
  smoke("image", { "seeds=1" }, function(store, path)
    local rows = store:rows [[SELECT count(*) AS n FROM v_last WHERE name = 'test_accuracy'
      AND value BETWEEN 0 AND 1]]
    t.eq(rows[1].n, 6)
    rows = store:rows [[SELECT count(DISTINCT value) AS n FROM v_metrics WHERE name = 'loss'
      AND step = 6]]
    t.eq(rows[1].n, 6)
    rows = store:rows [[SELECT count(*) AS n FROM v_last WHERE name = 'ridge_accuracy'
      AND value BETWEEN 0 AND 1]]
    t.eq(rows[1].n, 6)
    local table6, models = published_tables.read "tnn/table6", {}
    t.eq(table6.columns[1].metrics, { "test_accuracy" })
    for _, trial in ipairs(store:rows [[SELECT json_extract(config, '$.model') AS m,
      json_extract(config, '$.size') AS size FROM v_trials]]) do
      models[trial.m] = trial.size
    end
    for _, row in ipairs(table6.rows) do t.eq(models[row.where[1].model], "smoke") end
    t.eq(experiment.load(path).report.rows, { "model", "size" })
  end)
end)

t.done()
