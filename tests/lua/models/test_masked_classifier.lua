-- test_masked_classifier.lua: tnn_mlm_classifier: its head, what its mean counts, its start from a
-- masked model, its gradients, numbers as targets.
local t = require "harness"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"

local body = { vocab = 9, layers = 2, dim = 6, expand = 1.5, rpe_dim = 4, rpe_layers = 1,
  backend = "naive", pad = 7, init = "torch" }

local function with(more)
  local o = {}
  for key, v in pairs(body) do o[key] = v end
  for key, v in pairs(more or {}) do o[key] = v end
  return o
end

local function make(more)
  local o = with(more)
  o.classes = o.classes or 3
  return tl.models.tnn_mlm_classifier(o)
end

local ids = core.ids { { 1, 8, 3, 5 }, { 4, 2, 7, 7 } }

t.test("the head is Linear, tanh, Linear of the mean over the tokens", function()
  for _, published in ipairs { false, true } do
    tl.seed(1)
    local model = make { as_published = published }
    local x = core.no_grad(model.hidden, model, ids)
    local tokens = x:view(4 * 6, { 2, 6 }):mean(1):reshape(1, 6) -- the first two of row 2
    local all = x:narrow(1, 2, 1):reshape(4, 6):mean(1):reshape(1, 6)
    local z = published and all or tokens
    local want = core.no_grad(function() return model.head(core.tanh(model.dense(z))) end)
    local got = core.no_grad(model, ids):narrow(1, 2, 1)
    for i, v in ipairs(want:reshape(-1):totable()) do
      t.eq(got:reshape(-1):get(i), v, 1e-6)
    end
    t.ok(core.abs(tokens - all):amax():item() > 1e-3)
  end
end)

t.test("without a padding token the lengths mark the tokens", function()
  tl.seed(1)
  local plain = tl.models.tnn_mlm_classifier { vocab = 9, layers = 1, dim = 6, expand = 1.5,
    rpe_dim = 4, rpe_layers = 1, backend = "naive", classes = 2 }
  local x = core.no_grad(plain.hidden, plain, ids)
  local z = x:narrow(1, 2, 1):narrow(2, 1, 2):mean(2)
  local want = core.no_grad(function() return plain.head(core.tanh(plain.dense(z))) end)
  local got = core.no_grad(plain, ids, core.ids { 4, 2 }):narrow(1, 2, 1)
  t.eq(core.abs(got - want):amax():item(), 0, 1e-6)
  t.raises(plain, "row 2 has the length 5, not 1..4", ids, core.ids { 4, 5 })
end)

t.test("starts from a masked model, all except its head", function()
  tl.seed(2)
  local mlm, model = tl.models.tnn_mlm(with()), make()
  local head = model.head.weight:clone()
  t.ok(t.bits(core.no_grad(mlm.hidden, mlm, ids)) ~= t.bits(core.no_grad(model.hidden, model, ids)))
  t.ok(model:start_from(mlm) == model)
  t.eq(t.bits(core.no_grad(mlm.hidden, mlm, ids)), t.bits(core.no_grad(model.hidden, model, ids)))
  t.eq(t.bits(model.head.weight), t.bits(head))
  -- it is a copy, not the same tensors
  model.embed.weight:fill(0)
  t.ok(core.abs(mlm.embed.weight):sum():item() > 0)
  t.ok(make({ dropout = 0.5, backend = "fft" }):start_from(mlm))
  for _, other in ipairs { { "vocab", 10 }, { "layers", 3 }, { "layers", 1 }, { "layout", "A" },
    { "rpe_act", "silu" }, { "positions", "learned" }, { "decay", 0.5 } } do
    local name, value = other[1], other[2]
    t.raises(model.start_from, "start_from: the tnn_mlm has " .. name, make { [name] = value }, mlm)
  end
  local function mixed(heads)
    return with { mixer = "attention", mixer_options = { heads = heads } }
  end
  local attention = tl.models.tnn_mlm(mixed(2))
  t.ok(make(mixed(2)):start_from(attention))
  t.raises(model.start_from, "the tnn_mlm has mixer_options", make(mixed(1)), attention)
  t.raises(model.start_from, "takes a tnn_mlm", model, make())
end)

t.test("gradients against differences", function()
  tl.seed(4)
  local model = make { layers = 1, rpe_act = "silu" } -- relu has kinks between the differences
  core.stream(1, "x"):normal(model.embed.weight, 0, 1)
  local function loss() return core.cross_entropy(model(ids), core.ids { 2, 0 }) end
  slopes.check(loss, slopes.trained(model), 0.06)
end)

t.test("dropout before both maps of the head, in training only", function()
  tl.seed(5)
  local model = make { head_dropout = 0.5 }
  model:eval()
  t.eq(t.bits(core.no_grad(model, ids)), t.bits(core.no_grad(model, ids)))
  model:train()
  t.ok(t.bits(core.no_grad(model, ids)) ~= t.bits(core.no_grad(model, ids)))
end)

t.test("one class with real labels is a regression", function()
  tl.seed(3)
  local model = make { classes = 1 }
  local opt = tl.optim.adam(model, { lr = 0.01 })
  local batch = { ids = ids, lengths = core.ids { 4, 2 }, labels = core.tensor { 0.9, 0.1 } }
  local first = tl.classify.step(model, opt, batch)
  local want = core.no_grad(function()
    tl.seed(3)
    local fresh = make { classes = 1 }
    local e = fresh(ids):reshape(2) - batch.labels
    return (e * e):mean():item()
  end)
  t.eq(first, want, 1e-5)
  local last, info
  for _ = 1, 60 do last, info = tl.classify.step(model, opt, batch) end
  t.ok(last < 0.01, last)
  t.eq(info.accuracy, nil)
end)

t.test("the published size, and a name", function()
  local model = tl.models.describe("tnn_mlm_classifier", tl.models.preset("blm-tnn-12",
    { classes = 2 }))
  -- 126,400,089 without the head for masked tokens, and with the head for classes
  t.eq(model:count(), 126400089 - (768 * 769 + 2 * 768 + 50265) + 768 * 769 + 2 * 769)
  t.eq(tl.models.name_of(model), "tnn_mlm_classifier")
end)

t.test("lengths hide padding from attention, as the padding token does", function()
  tl.seed(4)
  local model = tl.models.tnn_mlm_classifier { vocab = 9, layers = 2, dim = 8, classes = 2,
    init = "torch", mixer = "attention", mixer_options = { heads = 2 } }
  local alone = core.no_grad(model, core.ids { { 5, 6 } })
  for _, rest in ipairs { { 1, 1 }, { 3, 4 } } do
    local row = core.ids { { 5, 6, rest[1], rest[2] } }
    t.eq(core.no_grad(model, row, core.ids { 2 }), alone, 1e-6)
  end
end)

t.done()
