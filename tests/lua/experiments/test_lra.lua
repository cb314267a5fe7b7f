-- test_lra.lua: experiments/lra.lua and mlm.lua: values that make no sense, the scale smoke of all
-- tasks that need no data, the published sizes, and rows of the published tables.
local t = require "harness"
local core = require "toeplab.core"
local experiment = require "toeplab.trials.experiment"
local plan = require "toeplab.trials.plan"
local published_tables = require "toeplab.trials.published_tables"
local smoke = require "smoke"
local space = require "toeplab.trials.space"
local trials = require "trials"
local tl = require "toeplab"

local folder = t.root .. "experiments/"

local function run(words)
  local said, code = t.shell(("'%s' run %s 2>&1"):format(core.sys.executable(), words))
  return code, said
end

t.test("a value that makes no sense ends a run before any trial", function()
  for words, want in pairs {
    ["lra.lua model=x"] = "lra.lua:%d+: model: there is no row 'x' %(present: tnn, ski,",
    ["lra.lua model=gla"] = "lra.lua:%d+: .*GLA sees earlier tokens only",
    ["lra.lua batch=0"] = "batch must be at least 1",
    ["lra.lua length=10"] = "length must be at least 16",
    ["lra.lua length=100 task=pathfinder"] = "length: images of pathfinder have 1024, 4096, 16384",
    ["lra.lua length=1023 task=cifar-standin"] = "length: images of cifar.standin have 1024 pixels",
    ["lra.lua padding=none task=pathfinder"] = "padding: known are masked and seen",
    ["lra.lua train=-1"] = "train must be at least 0",
    ["lra.lua cycle=-1"] = "cycle must be at least 0",
    ["image.lua data=pathfinder"] = "data = pathfinder: known are cifar, cifar%-part and ",
    ["pathfinder-conv.lua size=64"] = "size must be 32 or 128",
    ["pathfinder-conv.lua images=0"] = "images must be at least 1",
    ["pathfinder-conv.lua window=4"] = "window must be at least 5",
    ["pathfinder-conv.lua test=0"] = "test must be at least 1",
    ["lra.lua task=cifa"] = "task: 'cifa' has no sizes at sizes=smoke",
    ["lra.lua sizes=tiny"] = "sizes: there is no row 'tiny' %(present: smoke, laptop, ",
    ["mlm.lua model=x"] = "model: there is no row 'x' %(present: tnn, ski, ski%-published,",
    ["mlm.lua valid_batches=0"] = "valid_batches must be at least 1",
  } do
    local code, said = run(("-n %s%s scale=smoke"):format(folder, words))
    t.eq(code, 2)
    t.ok(said:find(want), said)
  end
end)

t.test("the scale smoke: every task that needs no data, and no two models are the same", function()
  t.in_folder(function(results)
    local code, said = run(("-q -C '%s/results' '%slra.lua' scale=smoke seeds=1"):format(results,
      folder))
    t.ok(code == 0, said)
    for _, model in ipairs { "tnn", "ski", "ski%-published", "fd", "skyformer", "s4" } do
      for _, task in ipairs { "listops", "text:[^\n]*bytes%)", "retrieval%-standin",
        "cifar%-standin", "pathfinder" } do
        t.ok(said:find("\n" .. task .. " +" .. model .. " +%d%.%d+ +%d%.%d+ +%d%.%d+"), said)
      end
    end
    t.eq(trials.losses(results, 4), 30)
    local chance = trials.query(results, [[SELECT count(*) AS n FROM v_last
      WHERE name = 'chance' AND value >= 0.1]])
    t.eq(chance[1].n, 30)
  end)
end)

-- The configuration of a trial of a scale.
local function config_of(scale, task, model)
  local list = plan.trials(experiment.load(folder .. "lra.lua"),
    { "scale=" .. scale, "task=" .. task, "model=" .. model, "seeds=1" })
  t.eq(#list, 1)
  return list[1].config
end

t.test("the scales paper and large have the published sizes and steps", function()
  local c = config_of("paper", "listops", "tnn")
  t.eq({ c.length, c.batch, c.lr, c.warmup, c.decay, c.steps, c.layout, c.init },
    { 2048, 32, 5.75e-3, 1000, 0.95, 50000, "B", "lra" })
  c = config_of("paper", "cifar", "tnn")
  t.eq({ c.length, c.batch, c.lr, c.grid_form, c.decay }, { 1024, 50, 7.25e-3, "sum", 1.0 })
  c = config_of("large", "cifar", "tnn")
  t.eq({ c.layers, c.dim, c.expand, c.glu_dim, c.decay, c.steps, c.cycle, c.grid_form },
    { 12, 128, 2.0, 384, 0.7, 45000, 50000, "product" })
  c = config_of("large", "path-x", "tnn")
  t.eq({ c.length, c.layers, c.expand, c.glu_dim, c.decay, c.batch, c.steps, c.pool },
    { 16384, 6, 3.0, 160, 0.999, 64, 250000, "last" })
  c = config_of("large", "retrieval", "tnn")
  t.eq({ c.steps, c.warmup, c.decay, c.weight_decay }, { 45960, 25000, 0.6, 0.01 })
end)

t.test("SKI has the published sizes at the scales paper and large", function()
  local function ski(scale, task, model)
    local c = config_of(scale, task, model)
    return { c.inducing, c.taps, c.lambda }
  end
  for _, scale in ipairs { "paper", "large" } do
    for _, task in ipairs { "listops", "imdb", "retrieval" } do
      t.eq(ski(scale, task, "ski"), { 64, 32, 0.99 })
    end
    for _, task in ipairs { "cifar", "pathfinder" } do
      t.eq(ski(scale, task, "ski"), { 32, 16, 0.99 })
    end
  end
  t.eq(ski("paper", "retrieval", "ski-published"), { 64, 32, 0.95 })
  t.eq(ski("paper", "imdb", "ski-published"), { 64, 32, 0.99 })
  t.eq(ski("large", "imdb", "ski-published"), { 64, 32, 0.9 })
  t.eq(ski("large", "retrieval", "ski-published"), { 64, 32, 0.6 })
  t.eq(ski("large", "cifar", "ski-published"), { 32, 16, 0.7 })
  t.eq(ski("large", "path-x", "ski-published"), { 32, 16, 0.999 })
  t.eq(ski("laptop", "pathfinder", "ski"), { 16, 8, 0.99 })
end)

t.test("SKI is made with the numbers of inducing points and taps that a trial stores", function()
  t.in_folder(function(results)
    local code, said = run(("-C '%s/results' '%slra.lua' scale=smoke seeds=1 task=pathfinder "
      .. "model=ski inducing=32 taps=16 layers=1"):format(results, folder))
    t.ok(code == 0, said)
    local many = tonumber(said:match "(%d+) parameters")
    code, said = run(("-C '%s/results' '%slra.lua' scale=smoke seeds=1 task=pathfinder "
      .. "model=ski inducing=32 taps=8 layers=1"):format(results, folder))
    t.ok(code == 0, said)
    t.eq(many - tonumber(said:match "(%d+) parameters"), 2 * 8 * 8) -- taps, along both axes
  end)
end)

t.test("a trial says that it chooses by the test part", function()
  t.in_folder(function(results)
    local words = ("-C '%s/results' '%slra.lua' scale=smoke seeds=1 model=fd steps=1 task="):format(
      results, folder)
    local text = experiment.load(folder .. "lra.lua").scale.smoke.task[2]
    local want = "the best model is chosen by the test part"
    local code, said = run(words .. "listops")
    t.ok(code == 0 and not said:find(want, 1, true), said)
    code, said = run(words .. "'" .. text .. "' valid=0")
    t.ok(code == 0 and said:find(want, 1, true), said)
  end)
end)

t.test("mlm at the scale paper has the published text, rates and encoders", function()
  for _, trial in ipairs(plan.trials(experiment.load(folder .. "mlm.lua"), { "scale=paper",
    "seeds=1" })) do
    local c = trial.config
    t.eq({ c.small, c.lr, c.rpe_layers }, { false, 5e-4, 3 }) -- FD's: twice that, as follows
    t.eq({ c.corpus, c.tokenizer }, { "wikitext-103-raw", "gpt2" })
  end
end)

t.test("mlm: FD has twice the learning rate of the others where models are not small", function()
  for small, want in pairs { ["true"] = { fd = 0.01, tnn = 0.01 },
    ["false"] = { fd = 0.02, tnn = 0.01 } } do
    smoke("mlm", { "seeds=1", "steps=4", "lr=0.01", "model=tnn,fd", "small=" .. small },
      function(store)
      local highest = {}
      for _, row in ipairs(store:rows [[SELECT json_extract(t.config, '$.model') AS model,
        max(m.value) AS lr FROM v_trials t JOIN v_metrics m ON m.trial = t.id
        WHERE m.name = 'lr' GROUP BY 1]]) do
        highest[row.model] = row.lr
      end
      t.eq(highest, want)
    end)
  end
end)

t.test("the published tables find the trials of each task", function()
  for id, names in pairs {
    ["tnn/table4"] = { "listops", "imdb", "retrieval", "cifar", "pathfinder" },
    ["tnn/table14"] = { "listops", "imdb", "retrieval", "cifar", "pathfinder", "path-x" },
    ["ski/table2"] = { "listops", "imdb", "retrieval", "cifar-part", "pathfinder" },
  } do
    for _, task in ipairs(names) do
      t.ok(tl.tasks[task], task)
      local found = 0
      for _, column in ipairs(published_tables.read(id).columns) do
        if column.where and space.fits(column.where, { task = task }) then found = found + 1 end
      end
      t.eq(found, 1)
    end
  end
  local rows = published_tables.read("tnn/table4").rows
  for _, row in ipairs(rows) do
    t.eq(config_of("paper", "listops", row.where[1].model).sizes, "paper")
  end
end)

t.done()
