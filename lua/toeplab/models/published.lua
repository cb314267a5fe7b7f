-- models/published.lua: converts the published PyTorch models: translates the names of their
-- parameters, and builds Toeplab modules from their state dictionaries.
--
-- The kinds of models are "tno" and "tno_multi" (an operator with its encoder), "layer" (a block in
-- layout A) and "train" (a language model).

local nn = require "toeplab.nn"
local models = require "toeplab.models"
local suggest = require "toeplab.base.suggest"

local published = {}

-- The functions below translate the names of published parameters, and return nil for unknown ones.

local function rpe(name)
  local layer, place, rest = name:match "^layers%.(%d+)%.([02])%.(.*)$"
  if layer then
    return ("layers.%d.%s.%s"):format(layer + 1, place == "0" and "norm" or "linear", rest)
  end
  place, rest = name:match "^out%.([02])%.(.*)$"
  if place then return ("output.%s.%s"):format(place == "0" and "norm" or "linear", rest) end
  rest = name:match "^pos_proj%.(.*)$"
  return rest and "input." .. rest
end

local function tno(name)
  if name == "gamma" then return "decay.gamma" end
  local rest = name:match "^rpe%.(.*)$"
  local ours = rest and rpe(rest)
  return ours and "encoder." .. ours
end

local function tno_multi(name)
  return name == "gamma" and "decay.theta" or tno(name)
end

local function layer(name)
  if name:find "^token_norm%." or name:find "^feature_norm%." then return name end
  local rest = name:match "^feature_mixer%.(l[123]%..*)$"
  if rest then return "feature." .. rest end
  local part, more = name:match "^token_mixer%.([uvo])[_proj]*%.(.*)$"
  if part then return ("token.%s.%s"):format(part, more) end
  rest = name:match "^token_mixer%.toep%.(.*)$"
  local ours = rest and tno(rest)
  return ours and "token.tno." .. ours
end

local function train(name)
  if name == "embed.weight" then return name end
  local rest = name:match "^norm%.(.*)$"
  if rest then return "final_norm." .. rest end
  local index, more = name:match "^layers%.(%d+)%.(.*)$"
  local ours = index and layer(more)
  return ours and ("layers.%d.%s"):format(index + 1, ours)
end

local names = suggest.strict("published", {
  tno = tno, tno_multi = tno_multi, layer = layer, train = train,
})

-- Returns Toeplab's name of a published parameter: published.ours("layer",
-- "token_mixer.u_proj.weight") is "token.u.weight". An unknown name is an error.
function published.ours(kind, name)
  local ours = names[kind](name)
  if not ours then
    error(("no parameter corresponds to the published '%s' of a %s"):format(name, kind), 2)
  end
  return ours
end

-- Returns a published state dictionary (name -> tensor) under Toeplab's names. Decays of the shape
-- [h,1,w] are flattened to [h w].
function published.state(kind, dictionary)
  local state = {}
  for name, t in pairs(dictionary) do
    local ours = published.ours(kind, name)
    state[ours] = ours:find "decay%.%a+$" and t:reshape(-1) or t
  end
  return state
end

-- Returns the options of the encoder whose tensors are in state, from which sizes and norm follow.
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

-- Returns the module that a reference case describes, with its parameters loaded. attributes are
-- those of the case, dictionary maps published names to tensors, and more is {backend=,
-- backend_options=}, both of which may be nil.
function published.module(kind, attributes, dictionary, more)
  local state = published.state(kind, dictionary)
  return build[kind](attributes, state, more or {}):load(state)
end

return suggest.strict("published", published)
