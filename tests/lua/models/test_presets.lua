-- test_presets.lua -- the models that TNN's tables compare with: their published numbers of
-- parameters, their frames, and the options that make them.

local t = require "harness"
local slopes = require "slopes"
local tl = require "toeplab"
local core = require "toeplab.core"
local sizes = require "toeplab.models.sizes"
local nn = tl.nn

local test, eq, raises, ok = t.test, t.eq, t.raises, t.ok

local function with(base, more)
  local all = {}
  for key, value in pairs(base) do all[key] = value end
  for key, value in pairs(more or {}) do all[key] = value end
  return all
end

-- ---- Presets ------------------------------------------------------------------------------------

-- The numbers of parameters of the released architectures, of the vocabularies 50264 and 50265.
local counts = {
  transformer = 44650496, alibi = 44650496, ["linear-attention"] = 44650496, performer = 44650496,
  cosformer = 44650496, ["cosformer-released"] = 45964288, ["synthesizer-dense"] = 46752768,
  ["synthesizer-random"] = 44647424, gmlp = 47830016, flash = 42170112, ["flash-quad"] = 42164992,
  s4 = 45692928, dss = 45727744, gss = 43844096, ["transformer-ls"] = 47894664,
  ["blm-transformer"] = 124696665, ["blm-linear-attention"] = 124696665,
  ["blm-performer"] = 124696665, ["blm-cosformer"] = 124696665,
  ["blm-synthesizer-dense"] = 130999385,
  ["blm-synthesizer-random"] = 129419865, ["blm-gmlp"] = 131083353, ["blm-flash"] = 127123521,
  ["blm-flash-quad"] = 127111233, ["blm-s4"] = 131786841, ["blm-dss"] = 123764825,
  ["blm-gss"] = 122797657, ["blm-ls"] = 128277081, ["blm-fnet"] = 124701273,
  ["blm-gfnet"] = 121566297, ["blm-afno"] = 130064985,
}

local function baselines()
  local list = {}
  for _, preset in ipairs(tl.models.presets) do
    if preset.options.mixer and preset.model ~= "tnn_image" then list[#list + 1] = preset end
  end
  return list
end

test("presets of other mixers have the published numbers of parameters", function()
  local listed = {}
  for _, preset in ipairs(baselines()) do
    listed[preset.name] = preset.parameters
    local model = tl.models.describe(preset.model, tl.models.preset(preset.name))
    local all = model:count()
    ok(all == counts[preset.name], ("%s: %d"):format(preset.name, all))
    if preset.model == "tnn_lm" then eq(sizes.parameters(model.opt), all) end
    model = nil
    collectgarbage()
  end
  eq(listed, counts)
end)

-- DeiT's counts are 5,717,416 and 22,050,664; ours lack the class token and its position.
local image_counts = { ["image-tnn-tiny"] = 6422056, ["image-tnn-small"] = 23401192,
  ["image-transformer-tiny"] = 5717416 - 2 * 192,
  ["image-transformer-small"] = 22050664 - 2 * 384 }

test("presets of images have the published numbers of parameters, and take a step", function()
  local listed = {}
  for _, preset in ipairs(tl.models.presets) do
    if preset.model == "tnn_image" then
      listed[preset.name] = tl.models.describe("tnn_image", preset.options):count()
      if preset.parameters then eq(preset.parameters, image_counts[preset.name]) end
      tl.seed(1)
      local model = tl.models.tnn_image(tl.models.preset(preset.name, { dim = 12, layers = 1,
        classes = 2, patch = 2, grid = { 2, 2 }, rpe_dim = 4, glu_dim = 8 }))
      local x = tl.stream_of "test":normal(core.zeros(2, 3, 4, 4), 0, 1)
      core.cross_entropy(model(x), core.ids { 0, 1 }):backward()
      ok(core.grad_norm { model.embed.weight } > 0, preset.name)
    end
  end
  eq(listed, image_counts)
end)

test("presets of other mixers take a step at small sizes", function()
  tl.seed(1)
  local ids = core.ids { { 2, 3, 4, 5, 6, 7 }, { 7, 6, 5, 4, 3, 2 } }
  for _, preset in ipairs(baselines()) do
    local more = { vocab = 9, dim = 24, layers = 2, glu_dim = 8 }
    local model = tl.models[preset.model](tl.models.preset(preset.name, more))
    local causal = preset.model == "tnn_lm"
    eq(model.opt.causal, causal or preset.name == "blm-gss")
    if causal then
      local _, info = tl.train.lm_step(model, tl.optim.adam(model, { lr = 1e-3 }), ids)
      ok(info.grad_norm > 0 and info.tokens == 10, preset.name)
    else
      model:loss(ids, core.ids { 1, 7 }, core.ids { 3, 2 }):backward()
      ok(model.embed.weight:grad():abs():amax():item() > 0, preset.name)
    end
  end
end)

-- ---- Frames -------------------------------------------------------------------------------------

local function small(more)
  return tl.models.tnn_lm(with({
    vocab = 11, layers = 2, dim = 8, mixer = "attention", heads = 2, channel = "ffn", glu_dim = 12,
    act = "relu", norm = "layernorm",
  }, more))
end

local ids = core.ids { { 2, 3, 4, 5, 6 }, { 7, 6, 5, 4, 3 } }

local function output(model, given)
  return core.no_grad(function() return model:eval()(given or ids) end)
end

test("FeedForward is W2 act(W1 x + b1) + b2", function()
  tl.seed(2)
  local f = nn.FeedForward(3, { hidden = 5, act = "gelu" })
  local x = tl.stream_of "test":normal(core.zeros(2, 4, 3), 0, 1)
  eq(f(x), f.fc2(core.gelu(f.fc1(x))), 1e-6)
  eq(f:count(), 3 * 5 + 5 + 5 * 3 + 3)
  ok(tl.gradcheck(function() return f(x) end, f:parameters()) < 1e-2)
end)

test("gate_dropout acts inside a feed-forward network, in training alone", function()
  local o = with({ vocab = 3, layers = 1, dim = 4, glu_dim = 400, rpe_dim = 4 },
    { channel = "ffn", gate_dropout = 0.5 })
  local f, x, zeros = tl.models.tnn_lm(o).layers[1].feature, core.ones(1, 1, 4), 0
  f:train()
  f(x):sum():backward()
  for _, slope in ipairs(f.fc1.bias:grad():totable()) do zeros = zeros + (slope == 0 and 1 or 0) end
  ok(zeros > 150 and zeros < 250, zeros)
  eq(f:eval()(x), f.fc2(core.silu(f.fc1(x))), 1e-6)
  raises(tl.models.tnn_lm, "gate_dropout acts in the channel mixers glu and ffn",
    with(o, { channel = "none" }))
end)

test("channel: glu, ffn, none; by default from the structure", function()
  local function feature(more)
    local block = tl.models.tnn_lm(with({ vocab = 3, layers = 1, dim = 4, rpe_dim = 4 }, more))
      .layers[1]
    return block.feature and block.feature.kind or "none"
  end
  eq(feature {}, "GLU")
  eq(feature { structure = "gtu" }, "none")
  eq(feature { structure = "gtu", channel = "ffn" }, "FeedForward")
  eq(feature { channel = "none" }, "none")
end)

test("layout none is the mixer alone, without norms", function()
  tl.seed(3)
  local model = small { layout = "none", channel = "none", layers = 1 }
  local block, x = model.layers[1], tl.stream_of "test":normal(core.zeros(2, 3, 8), 0, 1)
  eq(block(x), block.token(x))
  eq({ block:count() }, { block.token:count() })
end)

test("a narrow embedding is scaled by the wide dim and mapped there and back", function()
  tl.seed(4)
  local model = small { embed_dim = 6 }
  eq(model.embed.weight:shape(), { 11, 6 })
  eq(sizes.parameters(model.opt), (model:count()))
  local x = model.project_in(core.affine(model.embed(ids), math.sqrt(8), 0))
  for _, layer in model.layers:each() do x = layer(x) end
  local y = core.linear(model.project_out(model.final_norm(x)), model.embed.weight)
  eq(output(model), y, 1e-5)
  eq(output(model):shape(), { 2, 5, 11 })
end)

test("output_bias is added to the logits and counts in the loss", function()
  tl.seed(5)
  for _, more in ipairs { { output_bias = true }, { output_bias = true, embed_dim = 6 } } do
    local model = small(more)
    eq(sizes.parameters(model.opt), (model:count()))
    local before = output(model)
    model.output_bias:fill(0.25)
    eq(output(model) - before, core.full({ 2, 5, 11 }, 0.25), 1e-5)
    model.output_bias:copy(core.range(0, 10))
    local want = core.cross_entropy(model(ids), ids):item()
    eq(model:loss(ids, ids):item(), want, 1e-4)
  end
end)

test("positions: fairseq's begin at 2, learned ones are an error beyond the end", function()
  tl.seed(6)
  local plain = small { embed_scale = false }
  local zero = core.zeros(1, 2, 8)
  eq(plain.position, nil)
  for name, first in pairs { ["sinusoidal-fairseq"] = 2, ["learned-fairseq"] = 2, learned = 0 } do
    local model = small { positions = name, max_length = 5 }
    eq(sizes.parameters(model.opt), (model:count()))
    eq(model.position.opt.first, first)
    eq(output(model):shape(), { 2, 5, 11 })
    if name ~= "sinusoidal-fairseq" then
      eq(model.position(zero):reshape(2, 8), model.position.weight:narrow(1, first + 1, 2))
      local long = core.ids { { 1, 2, 3, 4, 5, 6 } }
      raises(output, "6 positions, but max_length = 5", model, long)
    end
  end
end)

test("alibi reaches only mixers that take positions", function()
  eq(small({ positions = "alibi" }).layers[1].token.opt.positions, "alibi")
  raises(small, "this mixer has none", { positions = "alibi", mixer = "gmlp" })
end)

test("the model's options reach a named mixer, except init = auto", function()
  for _, name in ipairs { "s4", "s4d", "dss", "gss" } do
    local token = small({ mixer = name, init = "bert", backend = "fft" }).layers[1].token
    eq({ token.tno.opt.backend, token.o.opt.init }, { "fft", "bert" })
    eq(token.o.bias:amax():item(), 0)
  end
  eq(small({ mixer = "gmlp", max_length = 7 }).layers[1].token.gate.weight:shape(), { 7, 7 })
  eq(small({ init = "bert" }).layers[1].token.opt.init, "bert")
  eq(small({ mixer_options = { init = "xavier" } }).layers[1].token.opt.init, "xavier")
  eq(small({}).layers[1].token.opt.init, "torch")
end)

test("softmax attention of a masked model leaves out padding, and other mixers do not", function()
  tl.seed(7)
  local function masked(mixer, more)
    return tl.models.tnn_mlm(with({ vocab = 11, layers = 2, dim = 8, mixer = mixer, channel = "ffn",
      norm = "layernorm", heads = 2, pad = 1, positions = "learned-fairseq" }, more)):eval()
  end
  local short, long = core.ids { { 4, 5, 6 } }, core.ids { { 4, 5, 6, 1, 1 } }
  local model = masked "attention"
  eq(output(model, long):narrow(2, 1, 3), output(model, short), 1e-5)
  model = masked "gfnet"
  local apart = core.abs(output(model, long):narrow(2, 1, 3) - output(model, short))
  ok(apart:amax():item() > 1e-4, "padding takes part in the mixing")
end)

test("mixer = 'gtu' is the GTU of the structure, with all of the model's options", function()
  local given = { vocab = 11, layers = 1, dim = 8, decay = 0.5, expand = 1.0, rpe_layers = 1,
    rpe_dim = 4, backend = "fft", causal = false }
  local function output(more)
    tl.seed(1)
    return core.no_grad(tl.models.tnn_lm(with(given, more)), ids)
  end
  eq(output { mixer = "gtu" }, output {})
  eq(output { mixer = "gtu", mixer_options = { tno = { decay = 0.9 } } }, output { decay = 0.9 })
end)

test("mixer_options that contradict the model, or have no mixer, are errors", function()
  local function make(more)
    return function() return tl.models.tnn_lm(with({ vocab = 11, layers = 1, dim = 8 }, more)) end
  end
  raises(make { mixer = "attention", mixer_options = { causal = false } },
    "mixer_options of 'attention': causal is an option of the model")
  raises(make { mixer = "gtu", mixer_options = { tno = { causal = false } } },
    "mixer_options of 'gtu': causal is an option of the model")
  raises(make { mixer = "attention", mixer_options = { dim = 4 } }, "dim is an option of the model")
  raises(make { mixer_options = { heads = 2 } }, "mixer_options requires a named mixer")
  raises(make { mixer = function(dim) return tl.nn.Attention(dim) end,
    mixer_options = { heads = 2 } }, "mixer_options requires a named mixer")
end)

test("gradients of the frames agree with differences", function()
  tl.seed(8)
  for _, more in ipairs {
    { embed_dim = 3, output_bias = true, positions = "learned", act = "gelu" },
    { layout = "C-fairseq", positions = "alibi", act = "gelu", final_norm = "none" },
  } do
    local model = small(with({ layers = 1, dim = 4, glu_dim = 5, init = "torch" }, more))
    slopes.check(function() return model:loss(ids, ids) end, slopes.trained(model), 0.05,
      { "k.bias" }) -- the same for all keys: softmax ignores it
  end
end)

t.test("options of the TNO of mixer gtu override the model's, and its encoder's too", function()
  local function count(more)
    local o = { vocab = 5, layers = 1, dim = 4, rpe_layers = 0, rpe_dim = 8 }
    for name, value in pairs(more) do o[name] = value end
    return (tl.models.tnn_lm(o):count())
  end
  local function gtu(tno) return count { mixer = "gtu", mixer_options = { tno = tno } } end
  t.eq(gtu {}, count {})
  t.eq(gtu { rpe = { hidden = 4 } }, count { rpe_dim = 4 }) -- and rpe_layers stays 0
  t.eq(gtu { encoder = "table", table_length = 7 }, count { encoder = "table", table_length = 7 })
end)

t.done()
