-- models/published.lua: converts the published PyTorch models: translates the names of their
-- parameters in both directions, and builds Toeplab modules from their state dictionaries.
--
-- The kinds of state dictionaries are, of tnn-pytorch, "tno" and "tno_multi" (an operator with its
-- encoder), "layer" (a block in layout A) and "train" (a language model of such layers); and of
-- fairseq, "fairseq_lm" (a causal language model, also the FD-TNN of SKI's code) and "fairseq_mlm"
-- (RoBERTa's). Two kinds are read only: "lra" (TNN's models for Long Range Arena) and "image"
-- (those for ImageNet).

local core = require "toeplab.core"
local nn = require "toeplab.nn"
local models = require "toeplab.models"
local published_options = require "toeplab.models.published_options"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local published = {}

-- ---- Names --------------------------------------------------------------------------------------
-- Rows {published name, our name}. In both, "*" stands for the same rest of the name, and "#" for
-- the number of a layer, which counts from 0 in theirs and from 1 in ours. "@" and "&" in theirs
-- stand for the even and the odd numbers from 0, of which ours, "#", is one layer. The first match
-- is used.

-- Returns the rows, with a prefix before each name.
local function within(theirs, ours, rows)
  local list = {}
  for i, row in ipairs(rows) do list[i] = { theirs .. row[1], ours .. row[2] } end
  return list
end

local function all(...)
  local list = {}
  for _, rows in ipairs { ... } do table.move(rows, 1, #rows, #list + 1, list) end
  return list
end

local rpe = within("rpe.", "encoder.", {
  { "pos_proj.*", "input.*" },
  { "layers.#.0.*", "layers.#.norm.*" }, { "layers.#.2.*", "layers.#.linear.*" },
  { "out.0.*", "output.norm.*" }, { "out.2.*", "output.linear.*" },
})
-- The piecewise linear kernel and the taps of SKI's code.
local ski = { { "alphas", "encoder.pos" }, { "betas", "encoder.neg" },
  { "conv_kernel", "backend_taps" } }
local fixed, learnable = { "gamma", "decay.gamma" }, { "gamma", "decay.theta" }
local tno, tno_multi = all(rpe, { fixed, learnable }, ski), all(rpe, { learnable, fixed })

local maps = { { "u_proj.*", "u.*" }, { "v_proj.*", "v.*" }, { "o.*", "o.*" } }
local gtu = all(maps, { { "norm.*", "norm.*" } }, within("toep.", "tno.", tno))
local glu = { { "l1.*", "l1.*" }, { "l2.*", "l2.*" }, { "l3.*", "l3.*" } }

local layer = all({ { "token_norm.*", "token_norm.*" }, { "feature_norm.*", "feature_norm.*" } },
  within("token_mixer.", "token.", gtu), within("feature_mixer.", "feature.", glu))
local fairseq_layer = all({ { "self_attn_layer_norm.*", "token_norm.*" },
  { "final_layer_norm.*", "feature_norm.*" },
  { "self_attn.gtu.pre_norm.*", "token_inner.*" } }, -- of layout B
  within("self_attn.gtu.", "token.", gtu), within("glu.", "feature.", glu))

-- A GTU of images has two operators with encoders of these names.
local function axes(rows)
  return all(within("toep1.", "tno.along_width.", rows),
    within("toep2.", "tno.along_height.", rows))
end

-- The encoder of the LRA models, and their layers: every other one is a GTU.
local dpb = all(within("dpb.", "encoder.", {
  { "pos_proj.*", "input.*" }, { "pos1.1.*", "layers.1.linear.*" },
  { "pos2.1.*", "layers.2.linear.*" }, { "pos3.0.*", "output.norm.*" },
  { "pos3.2.*", "output.linear.*" } }), tno)
local either_norm = function(ours) return { { "norm.norm.*", ours }, { "norm.*", ours } } end
local lra = all({ { "encoder.0.*", "embed.*" } },
  within("model.layers.@.", "layers.#.", all(either_norm "token_norm.*",
    { { "layer.pre_norm.*", "token_inner.*" } },
    within("layer.", "token.", all(maps, within("toep.", "tno.", dpb), axes(dpb))))),
  within("model.layers.&.", "layers.#.", all(either_norm "feature_norm.*",
    within("layer.", "feature.", glu))),
  within("model.", "", either_norm "final_norm.*"),
  { { "decoder.output_transform.*", "head.*" }, { "decoder.retrieval.classifier.0.*", "inner.*" },
    { "decoder.retrieval.classifier.2.*", "head.*" } })

local image = all({ { "to_patch_embedding.1.*", "embed.*" }, { "head.1.*", "head.*" } },
  within("layers.#.token_mixer.", "layers.#.token.", all(axes(tno), gtu)),
  within("layers.#.feature_mixer.", "layers.#.feature.", glu))

-- tied: their second name of the embedding, which is also the output map; version: a tensor that
-- fairseq stores with every model; unused: the end of our names of parameters that their code owns
-- without using them.
local kinds = suggest.strict("published", {
  lra = { rows = lra, unused = "token_inner%.%a+$" }, image = { rows = image },
  tno = { rows = tno }, tno_multi = { rows = tno_multi }, layer = { rows = layer },
  train = {
    rows = all({ { "embed.weight", "embed.weight" }, { "norm.*", "final_norm.*" } },
      within("layers.#.", "layers.#.", layer)),
  },
  fairseq_lm = {
    rows = all(within("decoder.", "", {
      { "embed_tokens.weight", "embed.weight" }, { "layer_norm.*", "final_norm.*" },
      { "output_projection.weight", "head.weight" },
    }), within("decoder.layers.#.", "layers.#.", fairseq_layer)),
    tied = "decoder.output_projection.weight", version = "decoder.version",
  },
  fairseq_mlm = {
    rows = all(within("encoder.sentence_encoder.", "", {
      { "embed_tokens.weight", "embed.weight" }, { "layernorm_embedding.*", "embed_norm.*" },
    }), within("encoder.sentence_encoder.layers.#.", "layers.#.", fairseq_layer),
    within("encoder.lm_head.", "", {
      { "dense.*", "head.*" }, { "layer_norm.*", "head_norm.*" }, { "bias", "bias" },
    })),
    tied = "encoder.lm_head.weight", version = "encoder.sentence_encoder.version",
  },
})

-- By mark: their number of a layer from ours (1) and the reverse (2); nil if it has none.
local numbers = { ["#"] = { function(i) return i - 1 end, function(i) return i + 1 end } }
for mark, odd in pairs { ["@"] = 0, ["&"] = 1 } do
  numbers[mark] = { function(i) return 2 * i - 2 + odd end,
    function(i) return i % 2 == odd and i // 2 + 1 or nil end }
end

-- Translates a name by a row from column `from` to column `to`, or returns nil.
local function by_row(row, name, from, to)
  local pattern = row[from]:gsub("[%p]", "%%%0"):gsub("%%%*", "(.*)"):gsub("%%[#@&]", "(%%d+)")
  local found = { name:match("^" .. pattern .. "$") }
  if not found[1] then return nil end
  local at = 0
  for mark in row[1]:gmatch "[#@&*]" do
    at = at + 1
    if mark ~= "*" then found[at] = numbers[mark][to](math.tointeger(found[at])) end
    if not found[at] then return nil end
  end
  at = 0
  return (row[to]:gsub("[#@&*]", function()
    at = at + 1
    return tostring(found[at])
  end))
end

-- Translates a name by the first row that matches, or returns nil.
local function translated(rows, name, from, to)
  for _, row in ipairs(rows) do
    local other = by_row(row, name, from, to)
    if other then return other end
  end
end

local function translate(kind, name, from, to, whose)
  local other = translated(kinds[kind].rows, name, from, to)
  if not other then
    error(("no parameter corresponds to %s '%s' of a %s"):format(whose, name, kind), 3)
  end
  return other
end

-- Returns Toeplab's name of a published parameter: published.ours("layer",
-- "token_mixer.u_proj.weight") is "token.u.weight". An unknown name is an error.
function published.ours(kind, name) return translate(kind, name, 1, 2, "the published") end

-- Returns the published name of a parameter of ours, the reverse of published.ours.
function published.theirs(kind, name) return translate(kind, name, 2, 1, "our") end

-- ---- State dictionaries -------------------------------------------------------------------------

-- Returns whether two tensors have the same shape and bits.
local function equal(a, b)
  return a and b and table.concat(a:shape(), ",") == table.concat(b:shape(), ",")
    and core.sha256(a) == core.sha256(b)
end

-- Returns whether the published code owns the parameter of our name without using it in a model
-- such as module.
local function unused(k, module, ours)
  if k.unused and ours:find(k.unused) then return true end
  local operator = ("." .. ours):match "^%.?(.-)%.?decay%.gamma$"
  for _, entry in ipairs(operator and module:modules() or {}) do
    if entry.name == operator then
      return entry.module.domain ~= "lag" or entry.module.opt.encoder == "piecewise"
    end
  end
  return false
end

-- Returns our name and form of a parameter of SKI's code. Its kernel alphas and betas [1,d,1,r] are
-- transposed, and so are its taps [d,m], which it stores for lags from m//2 down to -(m//2); the
-- causal form, where own has taps of the TNO, for lags from 0 up.
local function of_ski(ours, t, own)
  if ours:find "%f[%w]encoder%.%a+$" then return ours, t:reshape(-1, t:dim(-1)):transpose(1, 2) end
  local causal = ours:gsub("backend_taps$", "taps")
  t = t:transpose(1, 2)
  if own[causal] then return causal, t end
  local m, reversed = t:dim(1), {}
  for i = 1, m do reversed[i] = m - i end
  return ours, t:gather(core.ids(reversed))
end

-- Returns a published state dictionary (name -> tensor) under Toeplab's names, for load. Decays of
-- the shape [h,1,w] are flattened to [h w]; fairseq's version is left out, and so is an output map
-- that equals the embedding. module (may be nil) is the target: it determines whether the decay is
-- learnable and whether the output map is tied. If it lacks parameters that the published code owns
-- without using them, they are left out: the second norm of GTUs (kind "lra"), and the decay of FD
-- and SKI, in whose code it is an option. The causal SKI keeps our unused values of negative lags.
function published.state(kind, dictionary, module)
  local state, k, own = {}, kinds[kind], module and module:state() or {}
  local untied = k.tied and translated(k.rows, k.tied, 1, 2) -- our name of a separate output map
  for name, t in pairs(dictionary) do
    local embedding = name == k.tied and dictionary[published.theirs(kind, "embed.weight")]
    local tied = equal(t, embedding) and not (untied and own[untied])
    if embedding and not tied and not untied then
      error(("'%s' differs from the embedding, to which it is tied here"):format(name), 2)
    end
    local ours = name ~= k.version and not tied and not name:find "%.num_batches_tracked$"
      and published.ours(kind, name)
    if ours and not (module and not own[ours] and unused(k, module, ours)) then
      local theta = ours:gsub("decay%.gamma$", "decay.theta")
      if own[theta] then ours = theta end
      if ours:find "encoder%.pos$" or ours:find "encoder%.neg$" or ours:find "backend_taps$" then
        ours, t = of_ski(ours, t, own)
      end
      state[ours] = ours:find "decay%.%a+$" and t:reshape(-1) or t
    end
  end
  for name, t in pairs(own) do
    local positive, found = name:gsub("encoder%.neg$", "encoder.pos")
    if found == 1 and state[positive] and not state[name] then state[name] = t end
  end
  return state
end

-- Returns the options {name = value} with which the published code computes the module's function
-- from its dictionary; an error if it cannot.
published.options = published_options

-- Returns the state of a module as a published state dictionary (name -> tensor), the reverse of
-- published.state. Raises if the published code lacks a parameter or an option of the module.
function published.dictionary(kind, module)
  if kind == "lra" or kind == "image" then
    error(("published.dictionary: state dictionaries of kind '%s' can be read but not "
      .. "written"):format(kind), 2)
  end
  published.options(kind, module)
  local dictionary, k, heads, state = {}, kinds[kind], {}, module:state()
  for _, entry in ipairs(module:modules()) do
    local prefix = entry.name == "" and "" or entry.name .. "."
    heads[prefix .. "decay."] = rawget(entry.module.opt, "heads") or 1
  end
  for name, t in pairs(state) do
    local h = heads[name:match "^(.*decay%.)%a+$"]
    dictionary[published.theirs(kind, name)] = h and t:reshape(h, 1, t:numel() // h) or t
  end
  if k.tied and not dictionary[k.tied] then dictionary[k.tied] = state["embed.weight"] end
  if k.version then dictionary[k.version] = core.full({ 1 }, 3) end
  return dictionary
end

local forms = suggest.strict("published", {
  ["tnn-pytorch"] = { tnn_lm = "train" },
  fairseq = { tnn_lm = "fairseq_lm", tnn_mlm = "fairseq_mlm" },
})

-- The forms of state dictionaries in which whole models can be published, sorted.
published.forms = sorted_keys(forms)

-- Returns the kind of state dictionary of a model in a form, such as "fairseq".
function published.kind(form, model)
  local name = models.name_of(model)
  local kind = forms[form][name]
  if not kind then
    error(("%s has no %s"):format(form, name or "model of a class of the script's own"), 2)
  end
  return kind
end

-- ---- Modules ------------------------------------------------------------------------------------

-- Returns the options of the encoder, with sizes and norm derived from its tensors in state.
local function encoder(a, state, prefix)
  local layers = 0
  while state[("%slayers.%d.linear.weight"):format(prefix, layers + 1)] do layers = layers + 1 end
  local inputs = { "integer", "normalised", "exp" }
  return {
    hidden = state[prefix .. "input.weight"]:dim(1), layers = layers,
    input = inputs[a.par_type or 1],
    norm = state[prefix .. "output.norm.bias"] and "layernorm"
      or (state[prefix .. "output.norm.weight"] and "rmsnorm" or "simplermsnorm"),
  }
end

local build = {}

function build.tno(a, state, more)
  local dim = state["encoder.output.linear.weight"]:dim(1)
  local rpe_options = encoder(a, state, "encoder.")
  rpe_options.act = a.act or "relu"
  local learnable = state["decay.theta"] ~= nil
  return nn.TNO(dim, {
    causal = a.causal, heads = a.h or 1, rpe = rpe_options, backend = more.backend,
    backend_options = more.backend_options, decay = learnable and "learnable" or a.gamma,
    decay_mean = 0.0, decay_floor = learnable and a.gamma or 0.0,
  })
end

build.tno_multi = build.tno

function build.layer(a, state, more)
  local token = nn.GTU(a.dim, {
    expand = a.expand, act = a.act,
    tno = {
      causal = a.causal, heads = a.heads, decay = a.gamma,
      rpe = encoder(a, state, "token.tno.encoder."),
      backend = more.backend, backend_options = more.backend_options,
    },
  })
  local feature = nn.GLU(a.dim, { hidden = a.glu_dim, act = a.act })
  return nn.Block(a.dim, token, feature, { layout = "A", norm = a.norm })
end

function build.train(a, state, more)
  if a.layout ~= "prenorm" then error(("layout '%s' is not 'prenorm'"):format(a.layout), 0) end
  local e = encoder(a, state, "layers.1.token.tno.encoder.")
  return models.tnn_lm {
    vocab = a.vocab, layers = a.layers, dim = a.dim, expand = a.expand, glu_dim = a.glu_dim,
    decay = a.gamma, norm = a.norm, final_norm = a.final_norm, tied = a.tied, layout = "A",
    rpe_dim = e.hidden, rpe_layers = e.layers, rpe_norm = e.norm,
    backend = more.backend, backend_options = more.backend_options,
  }
end

-- Returns the module of a reference case, with its parameters loaded. attributes are the case's,
-- dictionary maps published names to tensors, and more is {backend=, backend_options=}, both of
-- which may be nil.
function published.module(kind, attributes, dictionary, more)
  local state = published.state(kind, dictionary)
  return build[kind](attributes, state, more or {}):load(state)
end

return suggest.strict("published", published)
