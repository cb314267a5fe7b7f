-- base/streams.lua: the named random streams of a program: one per purpose, all from one seed.
--
-- Number i of a stream depends on (seed, purpose, i) alone (core.stream), so a checkpoint stores
-- for each stream the two numbers that stream:state() returns. Modules draw from "init" and
-- "dropout". Like a framework's default generator, the streams belong to the program, because a
-- layer is made and called without one; streams.with gives a call streams of its own.

local core = require "toeplab.core"
local defer = require "toeplab.base.defer"

local streams = {}

local seed, live = 1, {}

-- Starts all streams afresh from a seed (an integer; 1 if never called).
function streams.seed(value)
  if math.type(value) ~= "integer" then
    error("seed must be an integer, got " .. tostring(value), 2)
  end
  seed, live = value, {}
end

-- Calls fn(...) with streams that start from a seed; afterwards the caller's are as they were.
function streams.with(value, fn, ...)
  local outer_seed, outer = seed, live
  local restore <close> = defer(function() seed, live = outer_seed, outer end)
  streams.seed(value)
  return fn(...)
end

-- The seed that the streams were started from.
function streams.seed_of() return seed end

-- The stream of a purpose, e.g. "init", "dropout", "data"; made at the first call.
function streams.get(purpose)
  live[purpose] = live[purpose] or core.stream(seed, purpose)
  return live[purpose]
end

-- All streams in use, for checkpoints: an array of {name=, stream=} in order of name.
function streams.list()
  local list = {}
  for name, stream in pairs(live) do list[#list + 1] = { name = name, stream = stream } end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

return streams
