-- tasks/init.lua: collects the classification tasks by name, as in tl.tasks.listops {...}.

local imdb = require "toeplab.tasks.imdb"
local listops = require "toeplab.tasks.listops"
local suggest = require "toeplab.base.suggest"

local hashes = { listops = listops.hash, imdb = imdb.hash }

local tasks = { listops = listops.open, imdb = imdb.open }

-- Returns the sha256 that identifies the data of the task of that name in the store; nil if there
-- is no such task. If the data is absent, raises a usage error that tells how to get it.
function tasks.hash(name)
  return hashes[name] and hashes[name]() or nil
end

return suggest.strict("tasks", tasks)
