-- init.lua: module "toeplab": the engine, and the library of layers, models, experiments over it.
--
--   local tl = require "toeplab"
--   local model = tl.models.tnn_lm { vocab = 256, layers = 2, dim = 64 }
--
-- All of toeplab.core is here under its own name (tl.matmul); parts are loaded when first used.

local core = require "toeplab.core"
local streams = require "toeplab.base.streams"
local suggest = require "toeplab.base.suggest"

local parts = {
  nn = "toeplab.nn", models = "toeplab.models", optim = "toeplab.train.optim",
  schedule = "toeplab.train.schedule", train = "toeplab.train", eval = "toeplab.train.eval",
  generate = "toeplab.models.generate", recurrent = "toeplab.models.recurrent",
  options = "toeplab.base.options", published = "toeplab.models.published",
  experiment = "toeplab.trials.experiment", corpus = "toeplab.tasks.corpus",
    blocks = "toeplab.tasks.blocks",
  lm = "toeplab.tasks.lm",
  tasks = "toeplab.tasks", classify = "toeplab.train.classify", masking = "toeplab.tasks.masking",
  plot = "toeplab.report.plot", cost = "toeplab.train.cost", profile = "toeplab.train.profile",
  gradcheck = "toeplab.verify.gradcheck",
}

local tl = {
  seed = streams.seed,       -- tl.seed(7) starts all random streams afresh
  streams = streams.list,    -- for checkpoints: {{name=, stream=}, ...}
  stream_of = streams.get,   -- tl.stream_of "data"
}

return setmetatable(tl, {
  __index = function(_, name)
    local value = parts[name] and require(parts[name])
    if value == nil then value = rawget(core, name) end
    if value == nil then
      local names = suggest.keys(core)
      for part in pairs(parts) do names[#names + 1] = part end
      for own in pairs(tl) do names[#names + 1] = own end
      error(("toeplab has no '%s'%s"):format(tostring(name), suggest.hint(name, names)), 2)
    end
    rawset(tl, name, value)
    return value
  end,
})
