-- verify/mixers/classifiers.lua: runs the reference cases of TNN's classifiers: the models of the
-- Long Range Arena, and the image model.

local core = require "toeplab.core"
local models = require "toeplab.models"
local module_case = require "toeplab.verify.module_case"
local published = require "toeplab.models.published"

local kinds = {}

-- Returns the set of the names in a group of the case.
local function present(case, group)
  local set = {}
  for _, name in ipairs(case:children(group)) do set[name] = true end
  return set
end

-- Returns the function from published names of a kind (models/published.lua) to ours.
local function ours(kind)
  return function(name) return published.ours(kind, name) end
end

-- ---- Long Range Arena ---------------------------------------------------------------------------

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
  local model = models.tnn_classifier(lra_options(a))
  local names = { rename = ours "lra", state = buffers(model) }
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

function kinds.image_model(case)
  local a, results = case.attributes, {}
  local model = models.tnn_image {
    classes = a.classes, channels = a.channels, patch = a.patch,
    grid = { a.height // a.patch, a.width // a.patch }, layers = a.layers, dim = a.dim,
    expand = a.expand, glu_dim = a.glu_dim, rpe_dim = a.rpe_dim, rpe_layers = a.rpe_layers,
    decay = a.gamma, norm = a.norm, layout = a.layout == "prenorm" and "A" or "C-tnn",
  }
  local names = { rename = ours "image" }
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
