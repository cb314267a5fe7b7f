-- test_classifier.lua: tnn_classifier: published sizes, pooling, gradients, learning, and that an
-- interrupted training run goes on to the same bits; experiments/lra.lua.
local t = require "harness"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"
local records = require "toeplab.store.records"
local runner = require "toeplab.runs.runner"
local errors = require "toeplab.base.errors"
local trials = require "trials"

local classifier = tl.models.tnn_classifier

-- ---- Sizes --------------------------------------------------------------------------------------

-- Parameters without the embedding and the output map.
local function backbone(o)
  o.vocab, o.classes = 1, 1
  local model = tl.models.describe("tnn_classifier", o)
  return model:count() - model.opt.dim - (model.opt.dim + 1)
end

t.test("the published backbones have the published sizes", function()
  -- TNN Table 4: the older GTU with a norm and a shortcut of its own; 66.6 k.
  t.eq(backbone { layout = "B", inner_norm = "layernorm", decay = "none" }, 66624)
  -- TNN Table 14: IMDB 623 k, ListOps 426 k with its output map of 1290, retrieval 67 k.
  t.eq(backbone { layers = 4, dim = 128, glu_dim = 256, rpe_dim = 32, decay = 0.9 }, 622592)
  t.eq(backbone { layers = 4, dim = 128, glu_dim = 128, rpe_dim = 32, decay = 1 }, 424960)
  t.eq(backbone { decay = 0.6 }, 66496)
end)

t.test("the start: GTUs N(0,0.02) with their biases, the embedding N(0,1), else torch", function()
  tl.seed(2)
  local model = classifier { vocab = 50, classes = 2 }
  local function deviation(p) return core.square(p):mean():item() ^ 0.5 end
  local gtu, glu = model.layers[1].token, model.layers[1].feature
  for _, linear in ipairs { gtu.u, gtu.v, gtu.o } do
    t.eq(deviation(linear.weight), 0.02, 0.001)
    t.eq(deviation(linear.bias), 0.02, 0.006)
  end
  t.eq(deviation(model.embed.weight), 1, 0.05)
  t.eq(deviation(glu.l1.weight), 0.125 / 3 ^ 0.5, 0.003) -- uniform within 1/sqrt(64)
end)

-- ---- Pooling ------------------------------------------------------------------------------------

local function random_ids(b, n, vocab)
  local ids, stream = {}, tl.stream_of "test"
  for i = 1, b do
    ids[i] = {}
    for j = 1, n do ids[i][j] = stream:below(vocab) end
  end
  return core.ids(ids)
end

local function tiny(more)
  local o = { vocab = 7, classes = 3, layers = 1, dim = 4, glu_dim = 6, rpe_dim = 4,
    backend = "naive" }
  for key, v in pairs(more or {}) do o[key] = v end
  return classifier(o)
end

-- Without token mixer and batch norm a state depends on its token and place alone.
local function apart(pool)
  return tiny { mixer = function() return tl.nn.Activation "silu" end, norm = "layernorm",
    final_norm = "layernorm", pool = pool }
end

t.test("what is pooled is what is no padding", function()
  for _, pool in ipairs { "mean", "last" } do
    local model, ids = apart(pool), random_ids(2, 6, 7)
    local both = core.no_grad(model, ids, core.ids { 4, 6 })
    local first = core.no_grad(model, ids:narrow(1, 1, 1):narrow(2, 1, 4), core.ids { 4 })
    local second = core.no_grad(model, ids:narrow(1, 2, 1))
    t.eq(both:narrow(1, 1, 1), first, 1e-6)
    t.eq(both:narrow(1, 2, 1), second, 1e-6)
    local hidden = core.no_grad(function() return model:hidden(ids) end)
    local pooled = pool == "last" and hidden:narrow(1, 1, 1):narrow(2, 4, 1):reshape(1, 4)
      or hidden:narrow(1, 1, 1):narrow(2, 1, 4):mean(2)
    t.eq(both:narrow(1, 1, 1), core.no_grad(model.head, pooled), 1e-6)
  end
end)

t.test("padding is seen by token mixers, as published", function()
  local model, ids = tiny { norm = "layernorm", final_norm = "layernorm" }, random_ids(1, 6, 7)
  local cut = core.no_grad(model, ids:narrow(2, 1, 4), core.ids { 4 }):totable()[1]
  local padded = core.no_grad(model, ids, core.ids { 4 }):totable()[1]
  t.ok(math.abs(cut[1] - padded[1]) > 1e-7)
end)

t.test("wrong lengths are errors", function()
  local model, ids = tiny(), random_ids(2, 5, 7)
  t.raises(model, "row 2 has the length 6, wanted 1..5", ids, core.ids { 1, 6 })
  t.raises(model, "row 1 has the length 0", ids, core.ids { 0, 5 })
  t.raises(model, "3 lengths for 2 rows", ids, core.ids { 1, 2, 3 })
  t.raises(classifier, "option 'pool' = 'max' is not one of", { vocab = 3, classes = 2,
    pool = "max" })
end)

-- ---- Gradients ----------------------------------------------------------------------------------

t.test("gradients of all parameters, against differences", function()
  for _, pool in ipairs { "mean", "last" } do
    local model, ids = tiny { pool = pool, init = "torch" }, random_ids(3, 5, 7)
    local lengths, labels = core.ids { 5, 2, 4 }, core.ids { 0, 2, 1 }
    local function loss() return core.cross_entropy(model(ids, lengths), labels) end
    slopes.check(loss, model:parameters(), 0.05)
  end
end)

-- ---- Training -----------------------------------------------------------------------------------

t.test("a small task is learnt, and evaluation counts what is right", function()
  tl.seed(5)
  local rows = {}
  for i = 1, 24 do
    rows[i] = ("%d\t5\t%d\t%s"):format(i % 2, i, (i % 2 == 0 and "ab " or "cb "):rep(2 + i % 5))
  end
  local text = "text:" .. table.concat(rows, "\n")
  local data = tl.tasks.imdb { train_file = text, test_file = text, length = 16, multiple = 4 }
  local model = tiny { vocab = data.vocab, classes = 2, init = "torch", dropout = 0.1,
    gate_dropout = 0.1 }
  local opt = tl.optim.adam(model, { kind = "adamw", betas = { 0.9, 0.999 }, lr = 0.03,
    schedule = "cosine", warmup = 4, steps = 40 })
  local first, loss, info
  for step = 1, 40 do
    loss, info = tl.classify.step(model, opt, data.train:batch(step, 8))
    first = first or loss
  end
  t.ok(loss < first and info.step == 40 and info.accuracy >= 0.5, loss)
  local share, nats = tl.classify.accuracy(model, data.test, 8)
  t.ok(share > 0.9 and nats < 0.5, share)
  t.ok(model.training)
  -- By hand.
  model:eval()
  local right, sum, count = 0, 0.0, 0
  for batch in data.test:each(8) do
    local logits = core.no_grad(model, batch.ids, batch.lengths)
    for i, row in ipairs(core.log_softmax(logits):totable()) do
      local label = batch.labels:get(i)
      if row[label + 1] > row[2 - label] then right = right + 1 end
      sum, count = sum - row[label + 1], count + 1
    end
  end
  t.eq({ share, nats }, { right / count, sum / count }, 1e-5)
  local some = tl.classify.accuracy(model, data.test, 8, 16)
  t.ok(some * 16 == math.floor(some * 16))
  t.raises(tl.classify.accuracy, "there is no example", model, data.test:part {}, 8)
end)

local script = [[
local tl = require "toeplab"
return tl.experiment "classes" {
  fixed = { steps = 14, fail_at = 0, flag = "" },
  checkpoint = { steps = 3 },
  trial = function(t, c)
    local data = tl.tasks.listops { train = 20, valid = 8, test = 8, min_length = 3,
      max_length = 15, length = 12, multiple = 4 }
    local model = tl.models.tnn_classifier { vocab = data.vocab, classes = data.classes,
      layers = 1, dim = 4, glu_dim = 4, rpe_dim = 4, dropout = 0.2, gate_dropout = 0.1,
      backend = "naive" }
    local opt = tl.optim.adam(model, { kind = "adamw", lr = 0.02, schedule = "cosine",
      warmup = 2, steps = c.steps })
    for step in t:steps(c.steps, model, opt) do
      local loss, info = tl.classify.step(model, opt, data.train:batch(step, 6))
      t:log { loss = loss, accuracy = info.accuracy }
      if step % 2 == 0 then t:best(1 - tl.classify.accuracy(model, data.valid, 4)) end
      local flag = step == c.fail_at and io.open(c.flag)
      if flag then
        flag:close()
        error("broken at " .. step)
      end
    end
    t:load_best()
    t:log { test = tl.classify.accuracy(model, data.test, 4) }
  end,
  report = function() end,
}
]]

-- Runs the script in folder; all metrics and the hashes of the last checkpoints as text.
local function run(folder, at, want)
  local out = { write = function() end, flush = function() end }
  t.write(folder .. "/x.lua", script)
  local words = { "fail_at=" .. at, "flag=" .. folder .. "/flag" }
  local ok, code = pcall(runner.run, folder .. "/x.lua", words,
    { dir = folder .. "/results", out = out, command = { "toeplab", "run" } })
  if not ok and not errors.is(code) then error(code, 0) end
  t.eq(ok and code or code.code, want) -- the exit code
  local lines, store <close> = {}, records.open(folder .. "/results", "r")
  for _, m in ipairs(store:rows "SELECT * FROM v_metrics ORDER BY name, step") do
    lines[#lines + 1] = ("%s %d %a"):format(m.name, m.step, m.value)
  end
  for _, a in ipairs(store:rows [[SELECT kind, max(step) AS step, sha256 FROM v_artifacts
    WHERE kind IN ('best', 'checkpoint') GROUP BY kind ORDER BY kind]]) do
    lines[#lines + 1] = ("%s %d %s"):format(a.kind, a.step, a.sha256)
  end
  return table.concat(lines, "\n")
end

t.test("training that was broken goes on to the same bits", function()
  t.in_folder(function(whole)
    local want = run(whole, 5, 0)
    for _, at in ipairs { 2, 5, 11 } do
      t.in_folder(function(folder)
        t.write(folder .. "/flag", "")
        run(folder, at, 1)
        os.remove(folder .. "/flag")
        t.eq(run(folder, at, 0), want)
      end)
    end
  end)
end)

t.test("experiments lra and mlm end before any trial where a value makes no sense", function()
  local folder = arg[0]:match "^(.*)tests/lua/.*$" .. "experiments/"
  for words, want in pairs {
    ["lra.lua model=x"] = "known are fd, ski,", ["mlm.lua model=x"] = "known are fd, ski,",
    ["lra.lua batch=0"] = "batch must be at least 1",
    ["mlm.lua valid_batches=0"] = "valid_batches must be at least 1",
    ["lra.lua listops_length=10"] = "listops_shortest must be below listops_length",
  } do
    local pipe = assert(io.popen(("'%s' run -n %s%s scale=smoke 2>&1"):format(
      core.sys.executable(), folder, words)))
    local said = pipe:read "a"
    t.eq(select(3, pipe:close()), 2)
    t.ok(said:find(want), said)
  end
end)

t.test("experiments/lra.lua runs in its scale smoke", function()
  t.in_folder(function(folder)
    local script_path = arg[0]:match "^(.*)tests/lua/.*$" .. "experiments/lra.lua"
    local pipe = assert(io.popen(("'%s' run -q -C '%s/results' '%s' scale=smoke seeds=1 2>&1")
      :format(core.sys.executable(), folder, script_path)))
    local said = pipe:read "a"
    t.ok(pipe:close(), said)
    for _, model in ipairs { "tnn", "ski", "ski%-published", "fd" } do
      for _, task in ipairs { "listops ", "text " } do
        t.ok(said:find("\n" .. task .. model .. " +%d%.%d+ +%d%.%d+ +%d%.%d+"), said)
      end
    end
    t.ok(core.sys.exists(folder .. "/results/tables/lra-smoke.md"), said)
    t.eq(trials.losses(folder, 6), 8) -- no two of them are the same model
  end)
end)

t.done()
