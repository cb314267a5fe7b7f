-- init.lua -- module "toeplab": the engine, and the library of layers, models, experiments over it.
--
--   local tl = require "toeplab"
--   local model = tl.models.tnn_lm { vocab = 256, layers = 2, dim = 64 }
--
-- All of toeplab.core is here under its own name (tl.matmul); parts are loaded when first used.

local core = require "toeplab.core"
local streams = require "toeplab.streams"
local suggest = require "toeplab.suggest"

local parts = {
  nn = "toeplab.nn", models = "toeplab.models", optim = "toeplab.optim",
  schedule = "toeplab.schedule", train = "toeplab.train", eval = "toeplab.eval",
  generate = "toeplab.generate", recurrent = "toeplab.recurrent",
  options = "toeplab.options", published = "toeplab.published",
  experiment = "toeplab.experiment", corpus = "toeplab.corpus", blocks = "toeplab.blocks",
  lm = "toeplab.lm",
  tasks = "toeplab.tasks", classify = "toeplab.classify", masking = "toeplab.masking",
  plot = "toeplab.plot", cost = "toeplab.cost", profile = "toeplab.profile",
  gradcheck = "toeplab.gradcheck",
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
