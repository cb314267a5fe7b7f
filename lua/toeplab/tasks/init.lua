-- tasks/init.lua: collects the classification tasks by name, as in tl.tasks.listops {...}.

local cifar = require "toeplab.tasks.cifar"
local pathfinder = require "toeplab.tasks.pathfinder"
local glue = require "toeplab.tasks.glue"
local suggest = require "toeplab.base.suggest"

-- By task: its module, with open(options) and hash().
local modules = {
  cifar = cifar,
  ["cifar-part"] = cifar.part,
  ["cifar-standin"] = require "toeplab.tasks.cifar_standin",
  imdb = require "toeplab.tasks.imdb",
  listops = require "toeplab.tasks.listops",
  ["path-x"] = pathfinder.path_x,
  pathfinder = pathfinder,
  retrieval = require "toeplab.tasks.retrieval",
  ["retrieval-standin"] = require "toeplab.tasks.retrieval_standin",
}

local tasks, hashes = { csv = require("toeplab.tasks.tables.csv").open, glue = glue.open,
  images = require("toeplab.tasks.images").open,
  series = require("toeplab.tasks.tables.series").open }, {}
for name, module in pairs(modules) do tasks[name], hashes[name] = module.open, module.hash end
for _, name in ipairs(glue.names) do
  hashes[name] = function() return glue.hash(name) end
end

local known = {} -- by task: its hash, cached because some files have gigabytes

-- Returns the sha256 that identifies a task's data in the store; nil if there is no such task. If
-- the data is absent, raises a usage error on how to get it.
function tasks.hash(name)
  if hashes[name] then known[name] = known[name] or hashes[name]() end
  return known[name]
end

return suggest.strict("tasks", tasks)
