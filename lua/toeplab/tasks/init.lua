-- tasks/init.lua -- classification tasks by name: tl.tasks.listops {...}, tl.tasks.imdb {...}.

local imdb = require "toeplab.tasks.imdb"
local listops = require "toeplab.tasks.listops"
local suggest = require "toeplab.base.suggest"

local hashes = { listops = listops.hash, imdb = imdb.hash }

local tasks = { listops = listops.open, imdb = imdb.open }

-- The sha256 that stands for the data of the task of that name, for what is stored with results;
-- nil if there is no such task. Raises a usage error that says how to get what is not here.
function tasks.hash(name)
  return hashes[name] and hashes[name]() or nil
end

return suggest.strict("tasks", tasks)
