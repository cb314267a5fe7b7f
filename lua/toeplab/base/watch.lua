-- base/watch.lua: the display of long work within a trial, such as encoding a text or evaluating.
-- Results do not depend on it.
local defer = require "toeplab.base.defer"
local progress = require "toeplab.base.progress"

-- progress: the progress display (progress.lua) of this process, or nil. A worker sets it.
local watch = { progress = nil }

-- Calls fn(part), where part(done) shows that `done` of `total` units ("tokens"; nil: bytes) are
-- done. Shows nothing if total is nil or 0. Returns the results of fn.
function watch.work(what, total, unit, fn)
  local shown = watch.progress
  if not shown or (total or 0) == 0 then return fn(function() end) end
  shown:begin(what, total, unit)
  local _ <close> = defer(function() shown:clear() end)
  return fn(function(done) shown:part(done) end)
end

-- Warns the user. Takes the arguments of string.format.
function watch.warn(...) (watch.progress or progress.new()):warn(...) end

return watch
