-- test_published_names.lua: weights under published names. The recorded cases of tests/reference.h5
-- hold parameters and results of the published code; what PyTorch would save of them is written as
-- safetensors, loaded here, and gives the same results; what is exported here is what was recorded.
local core = require "toeplab.core"
local exported = require "toeplab.models.files.exported"
local form = require "published_form"
local json = require "toeplab.base.json"
local t = require "harness"
local tl = require "toeplab"
local distance = require("toeplab.verify.distance").distance

local published = tl.published
local reference = t.root .. "tests/reference.h5"

-- The parameters of a case, and its attributes.
local function recorded(file, name)
  local params, a = {}, {}
  for _, child in ipairs(file:children("/" .. name .. "/param")) do
    params[child.name] = file:read(("/%s/param/%s"):format(name, child.name))
  end
  for key, value in pairs(file:attrs "/") do
    local short = key:match("^" .. name .. "/(.*)$")
    if short then a[short] = value end
  end
  a.causal, a.tied = a.causal == 1, a.tied == 1
  return params, a
end

local function same_tensors(got, want)
  for name, x in pairs(want) do
    t.ok(got[name], name .. " is missing")
    t.eq(got[name]:shape(), x:shape())
    t.eq(core.sha256(got[name]), core.sha256(x))
  end
  for name in pairs(got) do t.ok(want[name], name .. " is one more") end
end

-- Calls check(module, read) with the module of a case, whose parameters have been through a file.
local function through_a_file(name, check)
  t.in_folder(function(folder)
    local path = folder .. "/model.safetensors"
    local file <close> = core.h5_open(reference)
    local params, a = recorded(file, name)
    tl.save(path, params, { metadata = { format = "pt" } })
    local module = published.module(a.kind, a, (tl.load(path)))
    check(module, function(set) return file:read(("/%s/%s"):format(name, set)) end)
    same_tensors(published.dictionary(a.kind, module), params)
  end)
end

t.test("a published layer loads and gives the recorded output; ours is saved unchanged", function()
  through_a_file("layer", function(layer, read)
    local e = distance(layer(read "x"), read "y")
    t.ok(e < 1e-5, "distance " .. e)
  end)
end)

t.test("a published language model loads and gives the recorded loss", function()
  through_a_file("train", function(model, read)
    local ids, loss = read "ids", read "loss"
    local inputs, targets = tl.train.split(ids:narrow(1, 1, 1):reshape(ids:dim(2), ids:dim(3)))
    t.eq(tl.train.loss(model, inputs, targets):item(), loss:get(1), 1e-5)
  end)
end)

-- ---- fairseq ------------------------------------------------------------------------------------

local sizes = { vocab = 7, layers = 2, dim = 4, glu_dim = 3, rpe_dim = 3, rpe_layers = 1,
  heads = 2 }

local function with(more)
  local o = {}
  for key, value in pairs(sizes) do o[key] = value end
  for key, value in pairs(more or {}) do o[key] = value end
  return o
end

local layer_names = [[
self_attn.gtu.u_proj.weight self_attn.gtu.u_proj.bias self_attn.gtu.v_proj.weight
self_attn.gtu.v_proj.bias self_attn.gtu.o.weight self_attn.gtu.o.bias self_attn.gtu.toep.gamma
self_attn.gtu.toep.rpe.pos_proj.weight self_attn.gtu.toep.rpe.pos_proj.bias
self_attn.gtu.toep.rpe.layers.0.2.weight self_attn.gtu.toep.rpe.layers.0.2.bias
self_attn.gtu.toep.rpe.out.2.weight self_attn.gtu.toep.rpe.out.2.bias
glu.l1.weight glu.l1.bias glu.l2.weight glu.l2.bias glu.l3.weight glu.l3.bias]]

local models = {
  { "tnn_lm", "fairseq_lm", "decoder.", [[decoder.version decoder.embed_tokens.weight
    decoder.output_projection.weight decoder.layer_norm.weight decoder.layer_norm.bias]] },
  { "tnn_mlm", "fairseq_mlm", "encoder.sentence_encoder.", [[encoder.sentence_encoder.version
    encoder.sentence_encoder.embed_tokens.weight encoder.sentence_encoder.layernorm_embedding.weight
    encoder.sentence_encoder.layernorm_embedding.bias encoder.lm_head.weight encoder.lm_head.bias
    encoder.lm_head.dense.weight encoder.lm_head.dense.bias encoder.lm_head.layer_norm.weight
    encoder.lm_head.layer_norm.bias]] },
}

t.test("the names of fairseq's models, in both directions", function()
  for _, case in ipairs(models) do
    local name, kind, prefix, others = table.unpack(case)
    local model, wanted = tl.models[name](with { pad = 1 }), {}
    t.eq(published.kind("fairseq", model), kind)
    for word in others:gmatch "%S+" do wanted[word] = true end
    for word in layer_names:gmatch "%S+" do
      for i = 0, 1 do wanted[("%slayers.%d.%s"):format(prefix, i, word)] = true end
    end
    local dictionary = published.dictionary(kind, model)
    for found in pairs(dictionary) do t.ok(wanted[found], found .. " is one more") end
    for word in pairs(wanted) do t.ok(dictionary[word], word .. " is missing") end
    t.eq(dictionary[prefix .. "layers.1.self_attn.gtu.toep.gamma"]:shape(), { 2, 1, 6 })
    t.eq(dictionary[prefix .. "version"], { 3 })
    local other = tl.models[name](with { pad = 1 }):load(published.state(kind, dictionary))
    same_tensors(other:state(), model:state())
  end
end)

t.test("the model decides whether decay is learnable and the output map separate", function()
  local model = tl.models.tnn_lm(with { decay = "learnable", tied = false })
  local dictionary = published.dictionary("fairseq_lm", model)
  local other = tl.models.tnn_lm(with { decay = "learnable", tied = false })
  other:load(published.state("fairseq_lm", dictionary, other))
  same_tensors(other:state(), model:state())
  t.raises(published.state, "differs from the embedding", "fairseq_mlm", {
    ["encoder.sentence_encoder.embed_tokens.weight"] = core.zeros(2, 2),
    ["encoder.lm_head.weight"] = core.ones(2, 2) })
end)

-- ---- Kinds that are read only -------------------------------------------------------------------

-- Returns the state of a model under published names, with the decays as [1,1,w].
local function dictionary_of(kind, model)
  local dictionary = {}
  for name, x in pairs(model:state()) do
    dictionary[published.theirs(kind, name)] = name:find "gamma$" and x:reshape(1, 1, -1) or x
  end
  return dictionary
end

local function read_back(kind, model, dictionary, wants)
  for _, name in ipairs(wants) do t.ok(dictionary[name], name .. " is missing") end
  same_tensors(published.state(kind, dictionary, model), model:state())
end

t.test("reads the names of the LRA models, without the norm that they do not use", function()
  local o = { vocab = 7, classes = 2, dim = 4, layers = 2, decay = 0.9 }
  local model = tl.models.tnn_classifier(o)
  local dictionary = dictionary_of("lra", model)
  for _, i in ipairs { 0, 2 } do
    dictionary[("model.layers.%d.layer.pre_norm.weight"):format(i)] = core.ones(4)
    dictionary[("model.layers.%d.norm.norm.num_batches_tracked"):format(i)] = core.ones(1)
  end
  read_back("lra", model, dictionary, { "encoder.0.weight", "model.layers.0.norm.norm.weight",
    "model.layers.2.norm.norm.running_mean", "model.layers.2.layer.u_proj.bias",
    "model.layers.0.layer.toep.gamma", "model.layers.2.layer.toep.dpb.pos1.1.weight",
    "model.layers.3.layer.l3.weight", "model.norm.norm.bias", "decoder.output_transform.weight" })
  t.raises(published.ours, "no parameter corresponds", "lra", "model.layers.1.layer.u_proj.weight")
  o.norm, o.final_norm, o.pair, o.grid = "layernorm", "layernorm", true, { 2, 3 }
  model = tl.models.tnn_classifier(o)
  local plain = {}
  for name, x in pairs(dictionary_of("lra", model)) do
    name = name:gsub("norm%.norm", "norm") -- as layer norms are named
    plain[name:gsub("output_transform", "retrieval.classifier.2")] = x
  end
  read_back("lra", model, plain, { "model.layers.3.norm.weight", "model.norm.weight",
    "model.layers.0.layer.toep1.gamma", "model.layers.0.layer.toep2.dpb.pos3.2.weight",
    "decoder.retrieval.classifier.0.weight", "decoder.retrieval.classifier.2.bias" })
  o.layout, o.inner_norm = "B", "layernorm"
  model = tl.models.tnn_classifier(o)
  read_back("lra", model, dictionary_of("lra", model), { "model.layers.2.layer.pre_norm.bias" })
  t.raises(published.dictionary, "kind 'lra' can be read but not written", "lra", model)
end)

t.test("reads the names of the image models", function()
  local model = tl.models.tnn_image { classes = 3, patch = 2, grid = { 2, 3 }, dim = 4, layers = 2 }
  read_back("image", model, dictionary_of("image", model), { "to_patch_embedding.1.weight",
    "head.1.bias", "layers.1.token_mixer.toep1.rpe.pos_proj.weight",
    "layers.0.token_mixer.toep2.gamma", "layers.1.token_mixer.o.bias",
    "layers.1.feature_mixer.l2.weight" })
end)

t.test("reads an FD-TNN by fairseq's names, without the decay that it does not use", function()
  local model = tl.models.tnn_lm(with { backend = "fd", decay = "none", heads = 1 })
  local dictionary = dictionary_of("fairseq_lm", model)
  dictionary["decoder.version"] = core.ones(1)
  dictionary["decoder.layers.1.self_attn.gtu.toep.gamma"] = core.ones(1, 1, 12)
  read_back("fairseq_lm", model, dictionary,
    { "decoder.layers.1.self_attn.gtu.toep.rpe.out.2.weight" })
end)

t.test("reads SKI's kernel and taps, both ways and causal", function()
  local r, lambda = 3, 0.8
  local function random(...) return tl.nn.init.normal(core.zeros(...), 0, 1) end
  local dictionary = { alphas = random(1, 2, 1, r), betas = random(1, 2, 1, r),
    conv_kernel = random(2, 5), gamma = core.ones(1) }
  local function tno(more)
    return tl.nn.TNO(2, tl.overlay({ decay = "none", encoder = "piecewise",
      encoder_options = { nodes = 2 * r + 1, lambda = lambda } }, more))
  end
  local both = tno { causal = false, backend = "ski", backend_options = { inducing = r, taps = 5,
    lambda = lambda, parts = "sparse" } }
  both:load(published.state("tno", dictionary, both))
  local function values(c, i) -- of the grid on [-1,1]: betas, 0, alphas
    if i == r then return 0 end
    return i < r and dictionary.betas:get(1, c, 1, i + 1)
      or dictionary.alphas:get(1, c, 1, i - r)
  end
  local at = core.tensor { -1, -0.4, 0, 0.1, 1 }
  local got, dense = both.encoder(at, 6, "warp"), both:dense(6)
  for c = 1, 2 do
    for p = 1, 5 do
      local place = (at:get(p) + 1) * r
      local low = math.min(place // 1, 2 * r - 1) | 0
      t.eq(got:get(p, c), values(c, low) + (place - low) * (values(c, low + 1) - values(c, low)),
        1e-5)
    end
    for i = 1, 6 do -- y_i = sum over j of w_j x_(i+j-m//2)
      for j = 1, 6 do
        local k = j - i + 3
        t.eq(dense:get(c, i, j), k >= 1 and k <= 5 and dictionary.conv_kernel:get(c, k) or 0, 1e-6)
      end
    end
  end
  dictionary.betas = nil
  local causal = tno { nodes = r, taps = 5 }
  causal:load(published.state("tno", dictionary, causal))
  t.eq(causal.taps, dictionary.conv_kernel:transpose(1, 2):totable())
  t.eq(causal.encoder.pos, dictionary.alphas:reshape(2, r):transpose(1, 2):totable())
end)

-- ---- Options ------------------------------------------------------------------------------------

local ids = { 3, 1, 6, 0, 1, 2 }

-- Exports the model and compares its logits with those of the published form that the file's names
-- and options make.
local function check_form(names, model, about)
  local tokens, state = tl.ids { ids }, {}
  for name, x in pairs(model:state()) do -- norms, biases and decays that change the result
    state[name] = x + tl.nn.init.uniform(core.zeros(x:shape()), -0.2, 0)
  end
  model:load(state):eval()
  t.in_folder(function(folder)
    local path = folder .. "/model.safetensors"
    local options = exported.write(path, model, { model = "?" }, { names = names })
    local tensors, metadata = tl.load(path)
    t.eq(json.decode(metadata.toeplab).published, options)
    local e = distance(core.tensor(form.logits(tensors, options, ids)),
      model(tokens):reshape(#ids, -1))
    t.ok(e < 2e-5, ("%s, %s: distance %g"):format(names, about, e))
  end)
end

local everywhere = { {}, { act = "gelu", rpe_act = "silu" }, { act = "relu", rpe_act = "elu" },
  { norm = "layernorm", rpe_norm = "layernorm" }, { causal = false }, { decay = "alibi" },
  { decay = "none" }, { embed_scale = false }, { rpe_layers = 0 } }
local in_fairseq = { { layout = "B" }, { layout = "B", norm = "layernorm", rpe_norm = "layernorm" },
  { layout = "C-fairseq", final_norm = "none" }, { final_norm = "none" }, { tied = false },
  { decay = "learnable", decay_floor = 0.5 }, { mixer_norm = "simplermsnorm" },
  { mixer_norm = "layernorm", norm = "layernorm", rpe_norm = "layernorm" },
  { coef_act = "sigmoid" }, { rpe_residual = true }, { rpe_input = "normalised" },
  { rpe_input = "exp" }, { heads = 1 }, { final_act = "silu" },
  { normalize = true, coef_act = "sigmoid" } }

local function check_forms(names, model, list)
  for _, more in ipairs(list) do
    local about = json.encode(more)
    check_form(names, tl.models[model](with(more)), about)
  end
end

t.test("every export computes the same function in the published form", function()
  check_forms("tnn-pytorch", "tnn_lm", everywhere)
  check_forms("tnn-pytorch", "tnn_lm", { { layout = "C-tnn" }, { final_norm = "simplermsnorm" } })
  check_forms("fairseq", "tnn_lm", everywhere)
  check_forms("fairseq", "tnn_lm", in_fairseq)
  check_forms("fairseq", "tnn_mlm", { { pad = 1 }, { pad = 1, causal = true },
    { pad = 1, act = "gelu", norm = "layernorm", rpe_norm = "layernorm" },
    { pad = 1, decay = "learnable", coef_act = "elu", rpe_residual = true } })
end)

t.test("refuses what the published model lacks", function()
  local function refused(kind, model, rows)
    for want, more in pairs(rows) do
      t.raises(published.dictionary, want, kind, tl.models[model](with(more)))
    end
  end
  refused("fairseq_lm", "tnn_lm", {
    ["layers%.1%.token%.tno: the published code has no backend = 'fd'"] = { backend = "fd",
      decay = "none" },
    ["no encoder = 'table'"] = { encoder = "table" },
    ["no rpe_input = 'sincos'"] = { rpe_input = "sincos" },
    ["no max_lag = 5"] = { max_lag = 5 },
    ["no horizon = 0.01"] = { horizon = 0.01 },
    ["layers%.1: the published code has no channel = 'none'"] = { structure = "gtu" },
    ["no channel = 'FeedForward'"] = { channel = "ffn" },
    ["layers%.1: the published code has no mixer = 'Attention'"] = { mixer = "attention" },
    ["no layout = 'C%-tnn'; it has 'A', 'B', 'C%-fairseq'"] = { layout = "C-tnn" },
    ["no layout = 'C%-fairseq' where no_decoder_final_norm = false"] = { layout = "C-fairseq" },
    ["no norm = 'rmsnorm'; it has 'layernorm', 'simplermsnorm'"] = { norm = "rmsnorm" },
    ["no rpe_norm = 'simplermsnorm' where norm_type = 'layernorm'"] = { norm = "layernorm" },
    ["no inner_norm = 'rmsnorm'"] = { layout = "B", inner_norm = "rmsnorm" },
    ["no act = 'tanh'"] = { act = "tanh" },
    ["no bias = false; it has true"] = { bias = false },
    ["no act_first = true; it has false"] = { coef_act = "silu", coef_act_first = true },
    ["no nodes = 4"] = { nodes = 4 },
    ["no coef_taps = 4"] = { coef_taps = 4 },
    ["no shift = 0.5"] = { shift = 0.5 },
    ["no glu_form = 'shared'; it has 'glu'"] = { glu_form = "shared" },
    ["no gtu_form = 'dtu'; it has 'gtu'"] = { gtu_form = "dtu" },
    ["no mixer_norm = 'gatedrmsnorm'"] = { mixer_norm = "gatedrmsnorm" },
    ["no positions = 'sinusoidal'"] = { positions = "sinusoidal" },
    ["no parameter corresponds to our 'output_bias'"] = { output_bias = true },
  })
  refused("train", "tnn_lm", {
    ["layers%.1: the published code has no layout = 'B'; it has 'A', 'C%-tnn'"] = { layout = "B" },
    ["no decay = 'learnable'; it has 'fixed', 'none'"] = { decay = "learnable" },
    ["no mixer_norm = 'simplermsnorm'"] = { mixer_norm = "simplermsnorm" },
    ["no rpe_input = 'normalised'"] = { rpe_input = "normalised" },
    ["no rpe_residual = true"] = { rpe_residual = true },
    ["no coef_act = 'silu'"] = { coef_act = "silu" },
    ["no final_act = 'silu'; it has 'none'"] = { final_act = "silu" },
    ["no normalize = true; it has false"] = { normalize = true },
    ["no feature_first = true; it has false"] = { feature_first = true },
    ["no tied = false"] = { tied = false },
  })
  refused("fairseq_mlm", "tnn_mlm", {
    ["no pad = 'none'; it has 1"] = {},
    ["no layout = 'A'"] = { pad = 1, layout = "A" },
  })
  t.raises(published.kind, "tnn%-pytorch has no tnn_mlm", "tnn-pytorch", tl.models.tnn_mlm(with()))
  t.raises(published.kind, "did you mean", "fairsek", tl.models.tnn_mlm(with()))
end)

t.done()
