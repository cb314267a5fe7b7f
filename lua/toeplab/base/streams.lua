-- base/streams.lua: holds the named random streams of the program, one per purpose, all started
-- from one seed.
--
-- Number i of a stream depends on (seed, purpose, i) only (core.stream), so a checkpoint stores
-- for each stream the two numbers that stream:state() returns. Modules draw from "init" and
-- "dropout". The streams are global, like PyTorch's default generator, because layers are made and
-- called without one; streams.with runs a call with separate streams.

local core = require "toeplab.core"
local defer = require "toeplab.base.defer"

local streams = {}

local seed, live = 1, {}

-- Restarts all streams from a seed, an integer. The initial seed is 1.
function streams.seed(value)
  if math.type(value) ~= "integer" then
    error("seed must be an integer, got " .. tostring(value), 2)
  end
  seed, live = value, {}
end

-- Calls fn(...) with new streams from a seed, then restores the caller's streams. Returns the
-- results of fn.
function streams.with(value, fn, ...)
  local outer_seed, outer = seed, live
  local restore <close> = defer(function() seed, live = outer_seed, outer end)
  streams.seed(value)
  return fn(...)
end

function streams.seed_of() return seed end

-- Returns the stream of a purpose, such as "init" or "dropout"; the first call makes it. Converts
-- numbers to strings, like the engine, because sorting needs names of one type.
function streams.get(purpose)
  if math.type(purpose) then purpose = tostring(purpose) end
  live[purpose] = live[purpose] or core.stream(seed, purpose)
  return live[purpose]
end

-- Returns the positions of all streams, for streams.replay.
function streams.positions()
  local positions = { seed = seed, of = {} }
  for name, stream in pairs(live) do positions.of[name] = { stream:state() } end
  return positions
end

-- Calls fn(...), which draws from these positions what was drawn then; the streams of the program
-- do not advance. Returns the results of fn.
function streams.replay(positions, fn, ...)
  local outer_seed, outer = seed, live
  local restore <close> = defer(function() seed, live = outer_seed, outer end)
  seed, live = positions.seed, {}
  for name, state in pairs(positions.of) do
    streams.get(name):set_state(table.unpack(state))
  end
  return fn(...)
end

-- Returns all streams in use, for checkpoints: an array of {name=, stream=} sorted by name.
function streams.list()
  local list = {}
  for name, stream in pairs(live) do list[#list + 1] = { name = name, stream = stream } end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

return streams
