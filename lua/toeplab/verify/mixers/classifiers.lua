-- verify/mixers/classifiers.lua: runs the reference cases of TNN's classifiers: the models of the
-- Long Range Arena, and the image model.

local core = require "toeplab.core"
local models = require "toeplab.models"
local module_case = require "toeplab.verify.module_case"

local kinds = {}

-- Returns the set of the names in a group of the case.
local function present(case, group)
  local set = {}
  for _, name in ipairs(case:children(group)) do set[name] = true end
  return set
end

-- The published names of a linear map or a norm, without weight or bias, and ours.
local function add(names, theirs, ours)
  names[#names + 1] = { theirs .. "%.(%a+)", ours .. ".%1" }
end

-- ---- Long Range Arena ---------------------------------------------------------------------------

-- Adds the names of the operators of a GTU: one, or two of an image.
local function add_operators(names, theirs, ours)
  for their_name, our_name in pairs { toep = "tno", toep1 = "tno.along_width",
    toep2 = "tno.along_height" } do
    local inside, place = theirs .. their_name .. "%.", ours .. our_name
    names[#names + 1] = { inside .. "gamma", place .. ".decay.gamma" }
    add(names, inside .. "dpb%.pos_proj", place .. ".encoder.input")
    add(names, inside .. "dpb%.pos1%.1", place .. ".encoder.layers.1.linear")
    add(names, inside .. "dpb%.pos2%.1", place .. ".encoder.layers.2.linear")
    add(names, inside .. "dpb%.pos3%.0", place .. ".encoder.output.norm")
    add(names, inside .. "dpb%.pos3%.2", place .. ".encoder.output.linear")
  end
end

-- Returns the published names of an LRA model of `layers` layers, with the statistics of its batch
-- norms, named like their norm. A layer is two residual blocks of the released code.
local function lra_names(layers)
  local names = {}
  add(names, "encoder%.0", "embed")
  for layer = 1, layers do
    local ours = ("layers.%d."):format(layer)
    local token = ("model%%.layers%%.%d%%."):format(2 * layer - 2)
    local feature = ("model%%.layers%%.%d%%."):format(2 * layer - 1)
    for theirs, norm in pairs { [token] = "token_norm", [feature] = "feature_norm" } do
      for _, inner in ipairs { "norm%.norm", "norm" } do -- of batch norm, of layer norm
        names[#names + 1] = { theirs .. inner .. "%.([%l_]+)", ours .. norm .. ".%1" }
      end
    end
    add(names, token .. "layer%.pre_norm", ours .. "token_inner")
    names[#names + 1] = { token .. "layer%.([uvo])[_proj]*%.(%a+)", ours .. "token.%1.%2" }
    add_operators(names, token .. "layer%.", ours .. "token.")
    names[#names + 1] = { feature .. "layer%.(l%d)%.(%a+)", ours .. "feature.%1.%2" }
  end
  for _, inner in ipairs { "norm%.norm", "norm" } do
    names[#names + 1] = { "model%." .. inner .. "%.([%l_]+)", "final_norm.%1" }
  end
  add(names, "decoder%.output_transform", "head")
  add(names, "decoder%.retrieval%.classifier%.0", "inner")
  add(names, "decoder%.retrieval%.classifier%.2", "head")
  return names
end

-- Returns the options of the model of a case.
local function lra_options(a)
  local norm = a.norm == "batch" and "batchnorm" or "layernorm"
  local image = a.arch == "tno2d"
  return {
    vocab = a.vocab or 256, pixels = image and { mean = 0, deviation = 1 } or nil,
    classes = a.classes, layers = a.layers, dim = a.dim, expand = a.expand, glu_dim = a.glu_dim,
    rpe_dim = a.rpe_dim, decay = a.gamma, layout = a.layout, norm = norm, final_norm = norm,
    inner_norm = a.layout == "B" and "layernorm" or nil,
    pool = a.decoder == "last" and "last" or "mean", pair = a.decoder == "retrieval",
    max_lag = not image and a.max_lag or nil, grid = image and { a.height, a.width } or nil,
    grid_form = a.tno_type == 4 and "product" or "sum",
  }
end

-- Returns a copy of module's buffers as names.state, so that a state without them can be loaded.
local function buffers(module)
  local state = module:state()
  for name in pairs(module:named()) do state[name] = nil end
  return state
end

-- Compares the statistics of batch norms after one pass in training: adds the worst one.
local function compare_buffers(case, model, names, results)
  local state, all = model:state(), {}
  for name in pairs(present(case, "buffer")) do
    module_case.compare(case, all, "buffer/" .. name, state[module_case.ours(names, name)])
  end
  table.sort(all, function(one, other) return one.error > other.error end)
  results[#results + 1] = { name = ("statistics(%d)"):format(#all), error = all[1].error }
end

function kinds.lra_model(case)
  local a, has, results = case.attributes, present(case, ""), {}
  local model, names = models.tnn_classifier(lra_options(a)), lra_names(a.layers)
  names.state = buffers(model)
  module_case.load(case, model, names)
  local x = has.x and case:read("x"):require_grad() or case:read "ids"
  local lengths = has.lengths and case:read "lengths" or nil
  local logits = model(x, lengths)
  local loss = core.cross_entropy(logits, case:read "labels")
  loss:backward()
  module_case.compare(case, results, "logits", logits)
  module_case.compare(case, results, "loss", loss)
  if has.x then module_case.compare(case, results, "dx", x:grad()) end
  module_case.gradients(case, model, module_case.renaming(names), results)
  if has.buffer then compare_buffers(case, model, names, results) end
  core.no_grad(function() -- in this order, since a training pass changes the statistics
    module_case.compare(case, results, "eval_logits", model:eval()(x, lengths))
    module_case.compare(case, results, "hidden", model:train():hidden(x))
  end)
  return results
end

-- ---- Images -------------------------------------------------------------------------------------

-- Returns the published names of an image model of `layers` blocks, whose encoders have rpe_layers
-- layers.
local function image_names(layers, rpe_layers)
  local names = {}
  add(names, "to_patch_embedding%.1", "embed")
  add(names, "head%.1", "head")
  for layer = 1, layers do
    local theirs, ours = ("layers%%.%d%%."):format(layer - 1), ("layers.%d."):format(layer)
    names[#names + 1] = { theirs .. "token_mixer%.([uvo])[_proj]*%.(%a+)", ours .. "token.%1.%2" }
    names[#names + 1] = { theirs .. "feature_mixer%.(l%d)%.(%a+)", ours .. "feature.%1.%2" }
    for their_axis, axis in pairs { toep1 = "along_width", toep2 = "along_height" } do
      local inside = theirs .. "token_mixer%." .. their_axis .. "%."
      local place = ours .. "token.tno." .. axis .. "."
      names[#names + 1] = { inside .. "gamma", place .. "decay.gamma" }
      add(names, inside .. "rpe%.pos_proj", place .. "encoder.input")
      add(names, inside .. "rpe%.out%.2", place .. "encoder.output.linear")
      for i = 1, rpe_layers do
        add(names, ("%srpe%%.layers%%.%d%%.2"):format(inside, i - 1),
          ("%sencoder.layers.%d.linear"):format(place, i))
      end
    end
  end
  return names
end

function kinds.image_model(case)
  local a, results = case.attributes, {}
  local model = models.tnn_image {
    classes = a.classes, channels = a.channels, patch = a.patch,
    grid = { a.height // a.patch, a.width // a.patch }, layers = a.layers, dim = a.dim,
    expand = a.expand, glu_dim = a.glu_dim, rpe_dim = a.rpe_dim, rpe_layers = a.rpe_layers,
    decay = a.gamma, norm = a.norm, layout = a.layout == "prenorm" and "A" or "C-tnn",
  }
  local names = image_names(a.layers, a.rpe_layers)
  module_case.load(case, model, names)
  local x = case:read("x"):require_grad()
  local logits = model(x)
  local loss = core.cross_entropy(logits, case:read "labels")
  loss:backward()
  module_case.compare(case, results, "logits", logits)
  module_case.compare(case, results, "loss", loss)
  module_case.compare(case, results, "dx", x:grad())
  module_case.gradients(case, model, module_case.renaming(names), results)
  return results
end

return kinds
