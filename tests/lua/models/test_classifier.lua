-- test_classifier.lua: tnn_classifier: published sizes, pooling, images, pairs, gradients,
-- learning, and that an interrupted training run resumes to the same bits.
local t = require "harness"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"
local records = require "toeplab.store.records"
local runner = require "toeplab.runs.runner"
local errors = require "toeplab.base.errors"

local classifier = tl.models.tnn_classifier

-- ---- Sizes --------------------------------------------------------------------------------------

-- Parameters without the embedding and the output map.
local function backbone(o)
  o.vocab, o.classes = o.vocab or 1, 1
  local model = tl.models.describe("tnn_classifier", o)
  return model:count() - model.embed:count() - (model.opt.dim + 1)
end

-- The options of a published model of images, whose GTU owns an unused norm of 2 dim parameters.
local function image(o)
  o.pixels, o.vocab = { mean = 0.5, deviation = 0.5 }, 256
  o.decay, o.grid_form = o.decay or 0.7, "product"
  return o
end

t.test("the published backbones have the published sizes", function()
  -- TNN Table 4: the older GTU with a norm and a shortcut of its own; 66.6 k.
  t.eq(backbone { layout = "B", inner_norm = "layernorm", decay = "none" }, 66624)
  -- TNN Table 14: IMDB 623 k, ListOps 426 k with its output map of 1290, retrieval 67 k.
  t.eq(backbone { layers = 4, dim = 128, glu_dim = 256, rpe_dim = 32, decay = 0.9 }, 622592)
  t.eq(backbone { layers = 4, dim = 128, glu_dim = 128, rpe_dim = 32, decay = 1 }, 424960)
  t.eq(backbone { decay = 0.6 }, 66496)
  -- Images: two operators a layer. Pathfinder and Path-X differ in nothing that counts.
  t.eq(backbone(image { grid = { 32, 32 } }) + 2 * 128, 70272)
  t.eq(backbone(image { layers = 12, dim = 128, expand = 2.0, glu_dim = 384, grid = { 32, 32 } })
    + 12 * 256, 3102208)
  t.eq(backbone(image { layers = 6, expand = 3.0, glu_dim = 160, grid = { 128, 128 } }) + 6 * 128,
    461696)
end)

t.test("initial values: GTUs N(0,0.02) with biases, the embedding N(0,1), else torch", function()
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

t.test("pools all tokens except padding", function()
  for _, pool in ipairs { "mean", "last", "first", "sum" } do
    local model, ids = apart(pool), random_ids(2, 6, 7)
    local both = core.no_grad(model, ids, core.ids { 4, 6 })
    local first = core.no_grad(model, ids:narrow(1, 1, 1):narrow(2, 1, 4), core.ids { 4 })
    local second = core.no_grad(model, ids:narrow(1, 2, 1))
    t.eq(both:narrow(1, 1, 1), first, 1e-6)
    t.eq(both:narrow(1, 2, 1), second, 1e-6)
    local hidden = core.no_grad(function() return model:hidden(ids) end)
    local states = hidden:narrow(1, 1, 1):narrow(2, 1, 4)
    local pooled = ({ mean = states:mean(2), sum = states:sum(2),
      last = states:narrow(2, 4, 1):reshape(1, 4),
      first = states:narrow(2, 1, 1):reshape(1, 4) })[pool]
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
  t.raises(model, "row 2 has the length 6, not 1..5", ids, core.ids { 1, 6 })
  t.raises(model, "row 1 has the length 0", ids, core.ids { 0, 5 })
  t.raises(model, "3 lengths for 2 rows", ids, core.ids { 1, 2, 3 })
  t.raises(classifier, "option 'pool' = 'max' is not one of", { vocab = 3, classes = 2,
    pool = "max" })
end)

-- ---- Images -------------------------------------------------------------------------------------

local pixels = { mean = 0.4, deviation = 0.25 }

t.test("pixels: grey levels are normalised and mapped linearly; or passed normalised", function()
  local model, ids = tiny { vocab = 256, pixels = pixels, grid = { 2, 3 } }, random_ids(2, 6, 256)
  t.eq({ model:named()["embed.weight"]:shape(), model.embed.kind }, { { 4, 1 }, "Linear" })
  local values = {}
  for i, row in ipairs(ids:totable()) do
    values[i] = {}
    for j, level in ipairs(row) do values[i][j] = { (level / 255 - 0.4) / 0.25 } end
  end
  local x = core.tensor(values)
  local logits = core.no_grad(model, ids)
  t.eq(logits, core.no_grad(model, x), 1e-6)
  t.eq(logits:shape(), { 2, 3 })
  -- The first block, computed manually: its GTU sees the embedded pixels and their places.
  local seen
  model:eval()
  rawset(model.layers[1].token, "forward", function(self, y)
    seen = y
    return getmetatable(self).forward(self, y)
  end)
  core.no_grad(model, ids)
  t.eq(seen, model.layers[1].token_norm(model.position(model.embed(x))), 1e-5)
  t.eq(model.layers[1].token.tno.kind, "TNO2d")
  t.eq(model.layers[1].token.tno.opt.grid, { 2, 3 })
end)

t.test("wrong pixels and grids are errors", function()
  for _, given in ipairs { {}, { mean = 0.5 }, { mean = 0.5, deviation = 0 },
    { mean = 0.5, deviation = 1, std = 1 } } do
    t.raises(tiny, "pixels.*must be two numbers {mean, deviation}", { pixels = given })
  end
  t.raises(tiny { grid = { 2, 3 } }, "a grid of 2 x 3", random_ids(1, 5, 7))
end)

-- ---- Pairs --------------------------------------------------------------------------------------

t.test("pairs: both sequences by the same blocks, then [z, z', z - z', z z']", function()
  local model, ids = tiny { pair = true }, random_ids(4, 5, 7)
  local lengths = core.ids { 5, 3, 2, 4 }
  model:eval()
  local single = core.no_grad(function()
    local z = {}
    for i, length in ipairs(lengths:totable()) do
      local hidden = model:hidden(ids):narrow(1, i, 1):narrow(2, 1, length)
      z[i] = hidden:mean(2)
    end
    local first, second = core.concat({ z[1], z[2] }, 1), core.concat({ z[3], z[4] }, 1)
    local features = core.concat({ first, second, first - second, first * second }, 2)
    return model.head(core.gelu(model.inner(features)))
  end)
  t.eq(core.no_grad(model, ids, lengths), single, 1e-6)
  t.eq(single:shape(), { 2, 3 })
  t.raises(model, "TnnClassifier: 3 rows are not pairs of sequences, as", random_ids(3, 5, 7))
  t.raises(model, "2 lengths for 4 rows", ids, core.ids { 1, 2 })
end)

-- A set of pairs, as a task gives them: the label says whether both begin with the same token.
local function pairs_set(count)
  local set = {}
  function set:each(size)
    local done = 0
    return function()
      if done >= count then return nil end
      local rows, lengths, labels = {}, {}, {}
      for i = 1, size do
        local number = done + i
        local one, other = number % 2 * 3, number // 2 % 2 * 3
        rows[i], rows[size + i] = { one, one, 6, 6 }, { other, other, other, 6 }
        lengths[i], lengths[size + i] = 2, 3
        labels[i] = one == other and 1 or 0
      end
      done = done + size
      return { ids = core.ids(rows), lengths = core.ids(lengths), labels = core.ids(labels) }
    end
  end
  return set
end

t.test("pairs are learnt and counted by pairs, not by rows", function()
  tl.seed(3)
  local model = tiny { pair = true, classes = 2, init = "torch", norm = "layernorm",
    final_norm = "layernorm" }
  local opt = tl.optim.adam(model, { kind = "adamw", lr = 0.05 })
  local batch, first, loss, info = pairs_set(8):each(8)(), nil, nil, nil
  for _ = 1, 25 do
    loss, info = tl.classify.step(model, opt, batch)
    first = first or loss
  end
  t.ok(loss < 0.2 * first and info.accuracy == 1, loss)
  local share, nats = tl.classify.accuracy(model, pairs_set(12), 4)
  t.eq(share, 1)
  t.ok(nats < 0.2 * first, nats)
end)

-- ---- Gradients ----------------------------------------------------------------------------------

t.test("gradients of all parameters, against differences", function()
  for _, pool in ipairs { "mean", "last", "first", "sum" } do
    local model, ids = tiny { pool = pool, init = "torch", rpe_act = "silu" }, random_ids(3, 5, 7)
    local lengths, labels = core.ids { 5, 2, 4 }, core.ids { 0, 2, 1 }
    local function loss() return core.cross_entropy(model(ids, lengths), labels) end
    -- Batch norm takes the mean of each channel away, and with it what these add.
    slopes.check(loss, model:parameters(), 0.05, { "token.o.bias", "feature.l3.bias" })
  end
end)

-- The parameters of a model whose names contain part.
local function parameters(model, part)
  local list = {}
  for _, p in ipairs(model:parameters()) do
    if p.name:find(part, 1, true) then list[#list + 1] = p end
  end
  return list
end

t.test("gradients of the parts for images and pairs, against differences", function()
  tl.seed(4)
  local smooth = { init = "torch", rpe_act = "silu", norm = "layernorm", final_norm = "layernorm" }
  local labels = core.ids { 0, 2 }
  local function check(more, ids, ...)
    for name, value in pairs(smooth) do more[name] = value end
    local model = tiny(more)
    local function loss() return core.cross_entropy(model(ids), labels) end
    for _, part in ipairs { ... } do slopes.check(loss, parameters(model, part), 0.05) end
  end
  check({ vocab = 256, pixels = pixels, grid = { 2, 3 }, grid_form = "product" },
    random_ids(2, 6, 256), "embed", "layers.1.linear.weight")
  check({ pair = true }, random_ids(4, 5, 7), "embed", "inner", "head")
end)

-- ---- Training -----------------------------------------------------------------------------------

t.test("learns a small task, and evaluation counts correct answers", function()
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
  local all, wanted = tl.classify.predict(model, data.test, 8)
  local some, labels = tl.classify.predict(model, data.test, 8, 16)
  t.eq({ #all, some, labels }, { 24, table.move(all, 1, 16, 1, {}),
    table.move(wanted, 1, 16, 1, {}) })
  t.eq(tl.classify.accuracy(model, data.test, 8, 16), tl.metrics.accuracy(some, labels))
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

t.test("interrupted training resumes to the same bits", function()
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

t.done()
