-- test_glue.lua: experiments/glue.lua at scale smoke starts from the model of a trial of
-- glue-mlm.lua and from its file alike, and says what is wrong with another start.
local t = require "harness"
local tl = require "toeplab"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local records = require "toeplab.store.records"
local runner = require "toeplab.runs.runner"

-- Runs an experiment at scale smoke in a folder; returns the exit code and what was said.
local function run(folder, name, words)
  local said, printed = {}, _G.print
  local out = { write = function(_, ...) said[#said + 1] = table.concat { ... } end,
    flush = function() end }
  _G.print = function() end
  local ok, code = pcall(runner.run, ("../../experiments/%s.lua"):format(name),
    { "scale=smoke", "seeds=1", table.unpack(words) },
    { dir = folder, out = out, command = { "toeplab", "run" } })
  _G.print = printed
  if not ok then said[#said + 1] = errors.text(code) end
  return ok and code or code.code, table.concat(said)
end

local function query(folder, sql)
  local store <close> = records.open(folder, "r")
  return store:rows(sql)
end

-- The first losses of the trials of a task, by their start.
local function losses(folder, task)
  local list = {}
  for _, row in ipairs(query(folder, ([[SELECT json_extract(t.config, '$.start') AS start, m.value
      FROM v_trials t JOIN v_metrics m ON m.trial = t.id WHERE m.name = 'loss' AND m.step = 6
      AND t.status = 'done' AND json_extract(t.config, '$.task') = '%s']]):format(task))) do
    list[row.start] = row.value
  end
  return list
end

t.test("glue.lua starts at random, from a trial and from its file", function()
  t.in_folder(function(folder)
    t.eq(run(folder, "glue-mlm", {}), 0)
    local id = query(folder, "SELECT id FROM v_trials")[1].id:sub(1, 12)
    local path = query(folder, "SELECT path FROM v_artifacts WHERE kind = 'best'")[1].path
    local file = folder .. "/" .. path
    t.eq(run(folder, "glue", { ("start=random,%s,%s"):format(id, file) }), 0)
    for _, task in ipairs { "text:cola", "text:rte", "text:stsb" } do
      local loss = losses(folder, task)
      t.eq(loss[id], loss[file])
      t.ok(loss[id] ~= loss.random, task)
    end
    local last = query(folder, [[SELECT name, count(*) AS n FROM v_last WHERE name IN ('cola',
      'rte', 'stsb', 'majority_cola', 'accuracy', 'spearman', 'best_val_ppl') GROUP BY name]])
    local counts = {}
    for _, row in ipairs(last) do counts[row.name] = row.n end
    t.eq(counts, { cola = 3, rte = 3, stsb = 3, majority_cola = 3, accuracy = 6, spearman = 3,
      best_val_ppl = 1 })

    local code, said = run(folder, "glue", { "start=" .. id, "dim=16", "task=text:rte" })
    t.eq(code, 1)
    local failed = query(folder, "SELECT error FROM v_trials WHERE status = 'failed'")[1]
    t.ok(failed.error:find("the tnn_mlm has dim = 8, and this model 16", 1, true), failed.error)
    t.eq(run(folder, "glue", { "start=" .. id, "tokenizer=word", "task=text:rte" }), 1)
    t.eq(#query(folder, "SELECT 1 FROM v_trials WHERE error LIKE '%has tokenizer = bpe, but this "
      .. "run has word; give tokenizer=bpe%'"), 1)
    code, said = run(folder, "glue", { "start=@last" })
    t.ok(code ~= 0 and said:find "start takes an id", said)
    t.eq(run(folder, "glue", { "start=" .. folder .. "/none.h5", "task=text:rte" }), 1)
    local described = folder .. "/" .. path:match "^(.*)/"
    local model = t.read(described .. "/model-00000000.json")
    local vocabulary = t.read(described .. "/vocabulary-00000000.txt")
    os.remove(described .. "/model-00000000.json")
    t.eq(run(folder, "glue", { "start=" .. file, "task=text:rte", "lr=0.002" }), 1)
    t.eq(run(folder, "lra", { "task=cifar-standin", "model=tnn", "steps=1" }), 0)
    local other = query(folder, [[SELECT a.path FROM v_artifacts a JOIN v_trials t ON t.id = a.trial
      WHERE a.kind = 'best' AND t.experiment = 'lra']])[1].path
    local alone = folder .. "/alone" -- a checkpoint beside the files of another model
    assert(core.sys.mkdir(alone))
    t.write(alone .. "/best.h5", t.read(folder .. "/" .. other))
    t.write(alone .. "/model-00000000.json", model)
    t.eq(run(folder, "glue", { "start=" .. alone .. "/best.h5", "task=text:rte" }), 1)
    t.write(alone .. "/vocabulary-00000000.txt", vocabulary)
    t.eq(run(folder, "glue", { "start=" .. alone .. "/best.h5", "task=text:rte", "lr=0.002" }), 1)
    local why = {}
    for _, row in ipairs(query(folder, "SELECT error FROM v_trials WHERE status = 'failed'")) do
      why[#why + 1] = row.error
    end
    why = table.concat(why, "\n")
    t.ok(why:find("none.h5: there is no such file", 1, true), why)
    t.ok(why:find("model-00000000.json, is not beside it", 1, true), why)
    t.ok(why:find("best.h5: the file of its vocabulary, vocabulary-00000000.txt, is not", 1, true),
      why)
    t.ok(why:find "does not fit [^\n]*json: TnnMLM cannot load this state: mismatch: embed", why)
    t.ok(not why:find("missing: bias", 1, true), why)
    t.ok(core.sys.exists(folder .. "/tables/glue-smoke.md"))
  end)
end)

-- The sizes of a scale of tl.mlm.
local function sizes(model, layers, dim)
  return { model = model, layers = layers, dim = dim, length = 24, expand = 3.0, rpe_dim = 4,
    rpe_layers = 1, dropout = 0.1, decay = 0.99, backend = "rac" }
end

t.test("every model of TNN's Table 3 is pre-trained, small and at its published size", function()
  local parameters = {}
  for _, name in ipairs(tl.mlm.models) do
    tl.seed(1)
    local small = tl.mlm.options_of_model(sizes(name, 2, 64), { vocab = 270, pad = 1 })
    local model = tl.models.tnn_mlm(small)
    local loss = model:loss(tl.ids { { 5, 6, 7, 8, 1, 1 } }, tl.ids { 1, 2 }, tl.ids { 9, 4 })
    t.eq(loss:item(), math.log(270), 0.6)
    parameters[#parameters + 1] = (model:count())
  end
  for name, want in pairs {
    transformer = { layers = 12, dim = 768, glu_dim = 3072, heads = 12 },
    gmlp = { layers = 24, dim = 768, mixer_options = { as_published = true, ffn_dim = 3072 } },
    s4 = { layers = 10, dim = 1536 }, fd = { layers = 12, dim = 768, expand = 3.0 },
    gss = { layers = 14, dim = 768, mixer_options = { expand = 4, state = 512, inner = 256 } },
  } do
    local full = tl.mlm.options_of_model(sizes(name, 12, 768), { vocab = 50265, pad = 1 })
    for key, value in pairs(want) do t.eq(full[key], value) end
  end
  table.sort(parameters)
  t.ok(parameters[#parameters] < 2 * parameters[1], table.concat(parameters, " "))
end)

t.test("glue.lua fine-tunes another model, and refuses one that another was trained for", function()
  t.in_folder(function(folder)
    t.eq(run(folder, "glue-mlm", { "model=transformer" }), 0)
    local id = query(folder, "SELECT id FROM v_trials")[1].id:sub(1, 12)
    t.eq(run(folder, "glue", { "model=transformer", "start=" .. id, "task=text:rte" }), 0)
    t.eq(run(folder, "glue", { "model=gmlp", "start=" .. id, "task=text:rte" }), 1)
    local failed = query(folder, "SELECT error FROM v_trials WHERE status = 'failed'")[1]
    t.ok(failed.error:find("the tnn_mlm has", 1, true), failed.error)
    local code, said = run(folder, "glue", { "model=transfomer", "task=text:rte" })
    t.ok(code ~= 0 and said:find("there is no model 'transfomer'; did you mean", 1, true), said)
  end)
end)

t.done()
