-- init.lua: defines the module "toeplab": the engine, and the library of layers, models, tasks and
-- experiments on top of it.
--
--   local tl = require "toeplab"
--   local model = tl.models.tnn_lm { vocab = 256, layers = 2, dim = 64 }
--
-- Every function of toeplab.core is also a field of tl (tl.matmul). The parts of the library are
-- loaded when they are first used, so that a short script starts quickly.

local core = require "toeplab.core"
local streams = require "toeplab.base.streams"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"
require "toeplab.base.errors" -- by which lua/main.c names the lines of a script in its errors
local pytorch = require "toeplab.tensors.pytorch"
require "toeplab.tensors.errors"

local parts = {
  nn = "toeplab.nn", models = "toeplab.models", optim = "toeplab.train.optim",
  schedule = "toeplab.train.schedule", train = "toeplab.train", eval = "toeplab.train.eval",
  generate = "toeplab.models.generate", recurrent = "toeplab.models.recurrent",
  carried = "toeplab.models.carried", recompute = "toeplab.models.recompute",
  decode = "toeplab.models.decode", distill = "toeplab.models.distill",
  options = "toeplab.base.options", overlay = "toeplab.base.overlay",
  published = "toeplab.models.published",
  experiment = "toeplab.trials.experiment", corpus = "toeplab.tasks.corpus",
  blocks = "toeplab.tasks.blocks", lm = "toeplab.recipes.lm",
  mlm = "toeplab.recipes.mlm",
  tasks = "toeplab.tasks", classify = "toeplab.train.classify", masking = "toeplab.tasks.masking",
  recall = "toeplab.tasks.synthetic.recall", mad = "toeplab.tasks.synthetic.mad",
  metrics = "toeplab.train.metrics",
  augmentation = "toeplab.train.augmentation",
  plot = "toeplab.report.figures.plot", scaling = "toeplab.report.scaling",
  cost = "toeplab.train.cost", profile = "toeplab.train.profile",
  gradcheck = "toeplab.verify.gradcheck", check_causal = "toeplab.verify.check_causal",
  einsum = "toeplab.tensors.einsum",
}

local tl = {
  seed = streams.seed,       -- tl.seed(7) restarts all random streams from seed 7
  streams = streams.list,    -- returns {{name=, stream=}, ...}, for checkpoints
  stream_of = streams.get,   -- tl.stream_of "data" returns the stream of that purpose
}

-- tl.model(id or path) opens a stored model (trials/open_model.lua).
function tl.model(...) return require("toeplab.trials.open_model").open(...) end

-- tl.load(path) and tl.save(path, tensors): safetensors, .npy, .npz and HDF5.
for _, name in ipairs { "load", "save" } do
  tl[name] = function(...) return require("toeplab.models.files.tensor_files")[name](...) end
end

for name, f in pairs(require "toeplab.tensors.derived") do tl[name] = f end

return setmetatable(tl, {
  __index = function(_, name)
    local value = parts[name] and require(parts[name])
    if value == nil then value = rawget(core, name) end
    if value == nil then
      local names = sorted_keys(core)
      for part in pairs(parts) do names[#names + 1] = part end
      for own in pairs(tl) do names[#names + 1] = own end
      error(("toeplab has no '%s'%s"):format(tostring(name),
        pytorch.hint(name) or suggest.hint(name, names)), 2)
    end
    rawset(tl, name, value)
    return value
  end,
})
