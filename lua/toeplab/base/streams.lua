-- base/streams.lua -- the named random streams of a program: one per purpose, all from one seed.
--
-- Number i of a stream depends on (seed, purpose, i) alone (core.stream), so a run is resumed by
-- storing for each stream the two numbers that stream:state() returns. Modules ask for "init" and
-- "dropout" when they need them.

local core = require "toeplab.core"

local streams = {}

local seed, live = 1, {}

-- Starts all streams afresh from a seed (an integer; 1 if never called).
function streams.seed(value)
  if math.type(value) ~= "integer" then
    error("seed must be an integer, got " .. tostring(value), 2)
  end
  seed, live = value, {}
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
