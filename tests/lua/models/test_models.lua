-- test_models.lua -- whole models: parameter counts of the papers, causality, every length,
-- training, evaluation, generation, and a token mixer of one's own.

local t = require "harness"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"
local watch = require "toeplab.base.watch"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function with(base, more)
  local all = {}
  for key, value in pairs(base) do all[key] = value end
  for key, value in pairs(more or {}) do all[key] = value end
  return all
end

local function small(more)
  return tl.models.tnn_lm(with({
    vocab = 11, layers = 2, dim = 8, expand = 2, rpe_dim = 8, rpe_layers = 1,
  }, more))
end

-- The output of a model, unrecorded.
local function output(model, ids)
  return core.no_grad(function() return model(ids) end)
end

local function random_ids(rows, n, vocab)
  local stream, list = tl.stream_of "test", {}
  for i = 1, rows do
    list[i] = {}
    for j = 1, n do list[i][j] = stream:below(vocab) end
  end
  return core.ids(list)
end

-- ---- Sizes --------------------------------------------------------------------------------------

test("parameter counts of the published models", function()
  local published = { vocab = 50264 }
  local counts = {
    { {}, 48677376 },
    { { rpe_layers = 3 }, 48590016 },
    { { structure = "gtu", layers = 9 }, 48140288 },
    { { encoder = "table", layers = 5 }, 49354752 },
    { { structure = "attention+glu", layers = 8, expand = 2 }, 48845824 },
    { { structure = "attention+glu", layers = 8, expand = 2, causal = false }, 48845824 },
    { { decay = "learnable", layout = "B" }, 48677376 },
    { { decay = "none" }, 48677376 - 7 * 1536 },
    { { tied = false }, 48677376 + 50264 * 512 },
    { { rpe_input = "sincos" }, 48677376 + 7 * 19 * 64 },
  }
  for _, case in ipairs(counts) do
    local model = tl.models.describe("tnn_lm", with(published, case[1]))
    eq(model:count(), case[2])
    model = nil
    collectgarbage()
  end
end)

test("the tree of a model", function()
  local text = tostring(small { layers = 3 })
  for _, want in ipairs {
    "^TnnLM .*vocab=11", "embed: Embedding 11 x 8 +88\n", "1%-3: Block layout A", "feature: GLU",
    "token: GTU dim=8 expand=2", "tno: TNO 16 channels, causal, rac", "encoder: RPE",
  } do
    ok(text:find(want), want .. " in\n" .. text)
  end
end)

test("the memory estimate is near the real memory of training", function()
  tl.seed(1)
  for _, more in ipairs {
    {}, { layout = "B" }, { structure = "gtu" }, { structure = "attention+glu", heads = 2 },
    { structure = "mha+glu", heads = 2 },
  } do
    local model = small(with({ dim = 48, layers = 3, backend = "fft" }, more))
    local opt = tl.optim.adam(model)
    local ids = random_ids(8, 65, 11)
    tl.train.lm_step(model, opt, ids)
    local e = tl.models.estimate(model, 64, 8)
    collectgarbage()
    core.memory_reset_peak()
    tl.train.lm_step(model, opt, ids)
    local ratio = core.memory().peak / e.total_bytes
    ok(ratio > 0.7 and ratio < 1.3, ("measured over estimated: %.2f"):format(ratio))
    eq(e.parameters, (model:count()))
  end
end, "cpu")

-- ---- Behaviour ----------------------------------------------------------------------------------

test("causal: a later token changes no earlier logits, in every layout and structure", function()
  tl.seed(2)
  for _, more in ipairs {
    {}, { layout = "B" }, { layout = "C-fairseq" }, { layout = "C-tnn" }, { decay = "learnable" },
    { structure = "gtu" }, { structure = "attention+glu" }, { structure = "mha+glu", heads = 2 },
    { encoder = "table", table_length = 4 }, { rpe_input = "sincos", decay = "none" },
    { positions = "sinusoidal" }, { structure = "mha+glu", positions = "alibi", heads = 2 },
  } do
    local model = small(more):eval()
    local a, b = random_ids(1, 9, 11), nil
    b = a:totable()
    b[1][7] = (b[1][7] + 1) % 11
    local x = output(model, a)
    local y = output(model, core.ids(b))
    eq(x:narrow(2, 1, 6), y:narrow(2, 1, 6), 1e-5)
    local changed = core.abs(x - y):narrow(2, 7, 3):amax():item()
    ok(changed > 1e-3, "the token itself must matter")
  end
end)

test("not causal: an earlier position sees a later token", function()
  tl.seed(3)
  for _, more in ipairs { {}, { structure = "attention+glu" }, { encoder = "table" } } do
    local model = small(with({ causal = false }, more)):eval()
    local a = random_ids(1, 6, 11)
    local b = a:totable()
    b[1][6] = (b[1][6] + 1) % 11
    local d = core.abs(output(model, a) - output(model, core.ids(b)))
    ok(d:narrow(2, 1, 1):amax():item() > 1e-6, "position 1 must see position 6")
  end
end)

test("every length works, and a longer text begins like a shorter one", function()
  tl.seed(4)
  local model = small():eval()
  local ids = random_ids(1, 40, 11)
  local long = output(model, ids)
  for _, n in ipairs { 1, 2, 3, 7, 16, 31, 40 } do
    local short = output(model, ids:narrow(2, 1, n))
    eq(short:shape(), { 1, n, 11 })
    eq(short, long:narrow(2, 1, n), 1e-4)
  end
end)

test("embed_scale multiplies the embedding by sqrt(dim)", function()
  tl.seed(12)
  local scaled = small { tied = false }
  local plain = small({ tied = false, embed_scale = false }):load(scaled:state())
  plain.embed.weight:copy(core.affine(scaled.embed.weight, math.sqrt(8), 0))
  local ids = random_ids(1, 5, 11)
  eq(output(scaled, ids), output(plain, ids), 1e-5)
end)

test("the initialisers of the layouts", function()
  local function deviation(more)
    local bias = small(with({ dim = 64, layers = 1 }, more)).layers[1].token.u.bias
    return math.sqrt(core.square(bias):mean():item())
  end
  tl.seed(13)
  eq(deviation { layout = "A" }, 1 / math.sqrt(64 * 3), 0.01)
  eq(deviation { layout = "B" }, 0.02, 0.005)
  eq(deviation { init = "bert" }, 0)
end)

test("the loss is the cross entropy of the logits, ignored targets left out", function()
  tl.seed(5)
  for _, tied in ipairs { true, false } do
    local model = small { tied = tied }
    local ids, targets = random_ids(2, 5, 11), random_ids(2, 5, 11)
    eq(model:loss(ids, targets):item(), core.cross_entropy(model(ids), targets):item(), 1e-5)
    eq(model:loss(ids, targets, 3):item(), core.cross_entropy(model(ids), targets, 3):item(), 1e-5)
  end
end)

test("gradients of the whole model agree with differences", function()
  tl.seed(6)
  local model = small { layers = 1, dim = 4, rpe_act = "silu", rpe_norm = "layernorm" }
  local ids = random_ids(2, 6, 11)
  local inputs, targets = tl.train.split(ids)
  slopes.check(function() return model:loss(inputs, targets) end, slopes.trained(model), 0.05)
end)

test("errors name wrong options of a model", function()
  raises(tl.models.tnn_lm, "TnnLM: option 'vocab' is required", {})
  local function fails(want, more)
    raises(tl.models.tnn_lm, want, with({ vocab = 3, layers = 1, dim = 4 }, more))
  end
  fails("unknown option 'layer'; did you mean 'layers'", { layer = 2 })
  fails("option 'layers' = 0 must be between 1 and", { layers = 0 })
  fails("option 'layers' must be an integer, got '2'", { layers = "2" })
  fails("'layout' = 'D' is not one of", { layout = "D" })
  fails("fttt", { backend = "fttt" })
  fails("'decay' = 'slow' is not one of alibi, learnable, none", { decay = "slow" })
  fails("'decay' = 1.5 must be above 0 and at most 1", { decay = 1.5 })
  fails("biases attention", { positions = "alibi" })
  raises(function() return tl.models.tnn end, "models has no 'tnn'")
  local rows = tl.options.describe(tl.models.options "tnn_lm")
  eq({ rows[1].name, rows[1].default, rows[1].type }, { "vocab", "required", "int" })
end)

-- ---- Training -----------------------------------------------------------------------------------

local function losses(model, opt, ids, steps, parts)
  local list = {}
  for i = 1, steps do list[i] = tl.train.lm_step(model, opt, ids, parts) end
  return list
end

test("thirty steps reduce the loss, with dropout and without", function()
  tl.seed(7)
  for _, dropout in ipairs { 0, 0.1 } do
    local model = small { dropout = dropout }
    local opt = tl.optim.adam(model, { lr = 1e-2, clip = 1 })
    local list = losses(model, opt, random_ids(4, 17, 11), 30)
    ok(list[30] < 0.7 * list[1], ("from %.3f to %.3f"):format(list[1], list[30]))
  end
end)

test("micro batches give the same update as one batch", function()
  tl.seed(8)
  local a = small()
  local b = small():load(a:state())
  local ids = random_ids(5, 9, 4)
  for _, parts in ipairs { 2, 3, 5 } do
    local la = tl.train.lm_step(a, tl.optim.sgd(a, { lr = 0.1 }), ids)
    local lb, info = tl.train.lm_step(b, tl.optim.sgd(b, { lr = 0.1 }), ids, parts)
    eq(la, lb, 1e-5)
    eq(info.tokens, 5 * 8)
    eq(a.embed.weight, b.embed.weight, 1e-5)
  end
  raises(tl.train.lm_step,
    "micro_batches = 6, must be 1 to the 5 rows of the batch", a, tl.optim.sgd(a), ids, 6)
end)

test("a user's token mixer, in a model, trained", function()
  local Shift = nn.class("Shift", { dim = "int", by = 1 }, { "dim" })
  function Shift:build(o)
    self.mix = nn.Linear(2 * o.dim, o.dim)
  end
  function Shift:forward(x)
    local b, n, by = x:dim(1), x:dim(2), math.min(self.opt.by, x:dim(2) - 1)
    local past = core.concat({ core.zeros(b, by, self.opt.dim), x:narrow(2, 1, n - by) }, 2)
    return self.mix(core.concat({ x, past }, 3))
  end
  tl.seed(9)
  local model = small { mixer = function(dim) return Shift(dim) end }
  local list = losses(model, tl.optim.adam(model, { lr = 1e-2 }), random_ids(4, 9, 11), 30)
  ok(list[30] < 0.7 * list[1], ("from %.3f to %.3f"):format(list[1], list[30]))
end)

-- ---- Evaluation and generation ------------------------------------------------------------------

-- A model that gives the next token of a cycle probability p.
local Cycle = nn.class("Cycle", { vocab = 4, p = 0.5 })
function Cycle:build(o)
  local rows = {}
  for i = 1, o.vocab do
    rows[i] = {}
    for j = 1, o.vocab do
      rows[i][j] = math.log(j == i % o.vocab + 1 and o.p or (1 - o.p) / (o.vocab - 1))
    end
  end
  self.table = core.tensor(rows)
  self.sizes = {}
end
function Cycle:forward(ids)
  self.sizes[#self.sizes + 1] = ids:shape()
  return self.table:gather(ids)
end

test("evaluation: every target once, blocks of n, the last one shorter", function()
  local model = Cycle()
  local stream = {}
  for i = 1, 24 do stream[i] = (i - 1) % 4 end
  local ids = core.ids(stream)
  for _, n in ipairs { 1, 5, 7, 23 } do
    local bits, count = tl.eval.bits_per_token(model, ids, n)
    eq({ bits, count }, { 1, 23 }, 1e-6)
  end
  eq(tl.eval.perplexity(model, ids, 6), 2, 1e-5)
  eq(model.training, true)
  tl.eval.perplexity(model:eval(), ids, 6)
  eq(model.training, false)
  model.sizes = {}
  tl.eval.bits_per_token(model, ids, 5, { batch_tokens = 12 })
  eq(model.sizes, { { 2, 5 }, { 2, 5 }, { 1, 3 } })
  local _, count = tl.eval.bits_per_token(model, ids, 5, { blocks = 2 })
  eq(count, 10)
  raises(tl.eval.bits_per_token, "at least 1", model, ids, 0)
  raises(tl.eval.bits_per_token, "24 targets .* stream, which has 23", model, ids, 24)
  raises(tl.eval.bits_per_token, "nothing to predict", model, core.ids { 1 }, 4)
  raises(tl.eval.bits_per_token, "unknown option 'bloks'", model, ids, 4, { bloks = 1 })
end)

test("groups of an evaluation equal parts of the stream, without the remainder", function()
  tl.seed(12)
  local model, n, group = small { dropout = 0.0 }, 5, 3
  local ids = random_ids(1, 38, 11):reshape(38) -- 7 blocks of 5 targets and one of 2
  for _, batch_tokens in ipairs { 5, 10, 100 } do
    local nats, count, groups = tl.eval.nats_per_token(model, ids, n, { group = group,
      batch_tokens = batch_tokens })
    eq({ nats, count }, { tl.eval.nats_per_token(model, ids, n) }, 1e-6)
    eq(#groups, 2)
    for i, mean in ipairs(groups) do
      local part = ids:narrow(1, 1 + (i - 1) * group * n, group * n + 1)
      eq(mean, (tl.eval.nats_per_token(model, part, n)), 1e-6)
    end
  end
  local _, _, groups = tl.eval.perplexity(model, ids, n, { group = group, blocks = 5 })
  eq(#groups, 1)
  eq(select("#", tl.eval.nats_per_token(model, ids, n)), 3)
  eq(select(3, tl.eval.nats_per_token(model, ids, n)), nil)
end)

test("an evaluation shows its progress, and clears the display", function()
  local model, told = small { dropout = 0.0 }, {}
  watch.progress = {
    begin = function(_, ...) told[#told + 1] = { ... } end,
    part = function(_, done) told[#told + 1] = done end,
    clear = function() told[#told + 1] = "clear" end,
  }
  tl.eval.perplexity(model, random_ids(1, 24, 11):reshape(24), 5, { batch_tokens = 12 })
  watch.work("empty", 0, "tokens", function(part) part(0) end) -- of which nothing is a share
  watch.progress = nil
  eq(told, { { "evaluating at length 5", 23, "tokens" }, 10, 20, 23, "clear" })
end)

test("evaluation leaves the model as it was and agrees with the model's own loss", function()
  tl.seed(10)
  local model = small { dropout = 0.5 }
  local ids = random_ids(1, 13, 11):reshape(13)
  local nats, count = tl.eval.nats_per_token(model, ids, 12)
  ok(model.training and model.layers[1].drop.training, "training must be on again")
  local inputs, targets = tl.train.split(ids:reshape(1, 13))
  model:eval()
  eq(nats, core.no_grad(model.loss, model, inputs, targets):item(), 1e-6)
  eq(count, 12)
  eq(core.tape_length(), 0)
end)

test("generation follows the model, through its window", function()
  local model = Cycle { p = 0.97 }
  local vocab = core.vocab_chars "abcd"
  eq(tl.generate(model, vocab, "ab", { tokens = 6, temperature = 0, window = 3 }), "abcdabcd")
  tl.seed(11)
  local lm = tl.models.tnn_lm { vocab = 4, layers = 1, dim = 8, rpe_dim = 4, rpe_layers = 1 }
  local function draw(seed)
    local o = { tokens = 12, window = 8, seed = seed }
    return tl.generate(lm, vocab, "abca", o)
  end
  eq(draw(1), draw(1))
  ok(draw(1) ~= draw(2), "another stream must draw other tokens")
  eq(#draw(1), 16)
  -- Filled up at the right or cut at the left, it is the window of the last tokens that decides.
  local ids = vocab:encode("abcd"):totable()
  for _ = 1, 5 do
    local last = table.move(ids, math.max(1, #ids - 5), #ids, 1, {})
    local logits = output(lm:eval(), core.ids { last }):narrow(2, #last, 1)
    ids[#ids + 1] = logits:reshape(-1):argmax():item()
  end
  eq(tl.generate(lm, vocab, "abcd", { tokens = 5, temperature = 0, window = 6 }),
    vocab:decode(ids))
  raises(tl.generate, "needs at least one token", lm, vocab, "")
  local two_sided = small { causal = false }
  raises(tl.generate, "not causal", two_sided, vocab, "a")
end)

-- ---- Published models ---------------------------------------------------------------------------

test("published names are ours, and unknown ones are errors", function()
  local ours = tl.published.ours
  eq(ours("train", "layers.0.token_mixer.toep.rpe.layers.2.2.weight"),
    "layers.1.token.tno.encoder.layers.3.linear.weight")
  eq(ours("train", "norm.bias"), "final_norm.bias")
  eq(ours("layer", "token_mixer.u_proj.bias"), "token.u.bias")
  eq(ours("layer", "token_mixer.o.weight"), "token.o.weight")
  eq(ours("layer", "feature_mixer.l3.bias"), "feature.l3.bias")
  eq(ours("tno", "rpe.out.0.weight"), "encoder.output.norm.weight")
  eq(ours("tno_multi", "gamma"), "decay.theta")
  raises(ours, "token_mixer.q", "layer", "token_mixer.q.weight")
  raises(ours, "published has no 'lm'", "lm", "x")
end)

test("a published learnable decay has its gamma as the floor", function()
  local module = tl.published.module("tno_multi", { causal = true, gamma = 0.9 }, {
    gamma = core.tensor { { { -1, 2 } } },
    ["rpe.pos_proj.weight"] = core.ones(3, 1), ["rpe.pos_proj.bias"] = core.zeros(3),
    ["rpe.out.2.weight"] = core.ones(2, 3), ["rpe.out.2.bias"] = core.zeros(2),
  })
  local function sigmoid(x) return 1 / (1 + math.exp(-x)) end
  eq(module.decay:value(), { 0.9 + 0.1 * sigmoid(-1), 0.9 + 0.1 * sigmoid(2) }, 1e-6)
end)

test("the number of parameters is known from the options alone", function()
  local sizes = require "toeplab.models.sizes"
  for _, o in ipairs {
    {}, { layout = "B", rpe_norm = "layernorm", rpe_input = "sincos", decay = "learnable" },
    { structure = "gtu", mixer_norm = "layernorm", encoder = "table", heads = 3, tied = false },
    { structure = "mha+glu", heads = 2, norm = "layernorm" },
    { structure = "attention+glu", norm = "scalenorm", glu_dim = 10, expand = 1.7 },
    { decay = "none", rpe_layers = 0, final_norm = "none", norm = "rmsnorm" },
  } do
    o.vocab, o.layers, o.dim = 11, 2, 8
    local model = tl.models.tnn_lm(o)
    eq(sizes.parameters(model.opt), (model:count()))
  end
end)

test("refuses a model that memory cannot hold before making anything", function()
  local before = core.memory().live
  raises(tl.models.describe, "about 4.81e%+12 parameters take %d+%.%d GiB .* are available",
    "tnn_lm", { vocab = 50264, dim = 200000, layers = 10 })
  eq(core.memory().live, before)
end)

t.done()
