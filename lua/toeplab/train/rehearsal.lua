-- train/rehearsal.lua: finds what the forward pass of a micro batch uses besides its inputs and the
-- parameters: random numbers, shared coefficients, and the running statistics of batch norms.
--
-- A rank computes only some micro batches of a batch (train/ranks.lua). To be in the state of a
-- single process, it must know what the others use. That depends on the shapes of a micro batch, so
-- one forward pass without a tape per shape suffices; rehearsal.check finds models in which it
-- depends on more.

local coefficient_cache = require "toeplab.nn.coefficient_cache"
local BatchNorm = require("toeplab.nn.norm").BatchNorm
local streams = require "toeplab.base.streams"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local rehearsal = {}

-- Returns the position of each random stream.
function rehearsal.positions()
  local at = {}
  for _, s in ipairs(streams.list()) do
    local key, offset = s.stream:state()
    at[s.name] = { key = key, offset = offset }
  end
  return at
end

-- Returns how far each stream has advanced since positions() returned `before`.
local function moved(before)
  local by = {}
  for name, at in pairs(rehearsal.positions()) do
    by[name] = at.offset - (before[name] and before[name].offset or 0)
  end
  return by
end

-- Advances streams by the numbers in `by`, times sign.
local function move(by, sign)
  for name, count in pairs(by) do
    local stream = streams.get(name)
    local key, offset = stream:state()
    if count ~= 0 then stream:set_state(key, offset + sign * count) end
  end
end

-- Returns a string of the shapes of a micro batch, a tensor or a table with tensors.
local function shapes_of(part)
  if type(part) == "userdata" then return tostring(part) end
  local words = {}
  for _, name in ipairs(sorted_keys(part)) do
    local value = part[name]
    words[#words + 1] = type(value) == "userdata" and name .. " " .. tostring(value) or nil
  end
  return table.concat(words, "; ")
end

-- Runs forward(), a forward pass, and undoes its changes. Returns {draws= (by stream), norms=
-- (a list of batch norms in order of first use), uses= (by norm), entries= (of
-- coefficient_cache.noted)}.
local function find(forward)
  local found, before = { norms = {}, uses = {} }, rehearsal.positions()
  local copies = {
    take = function(norm)
      if not found.uses[norm] then found.norms[#found.norms + 1] = norm end
      found.uses[norm] = (found.uses[norm] or 0) + 1
      return norm.running_mean:clone(), norm.running_var:clone()
    end,
    hand_on = function() end,
  }
  found.entries = BatchNorm.carried(copies, coefficient_cache.noted, forward)
  found.draws = moved(before)
  move(found.draws, -1)
  return found
end

-- Returns the uses of the forward pass of the micro batch part (see find). known: the caller's
-- cache for one model, so that forward() runs once for each shape. The uses of documents in a row
-- depend on their lengths too.
function rehearsal.of(known, part, forward)
  if type(part) == "table" and part.documents then return find(forward) end
  local shapes = shapes_of(part)
  known[shapes] = known[shapes] or find(forward)
  return known[shapes]
end

-- Advances the random streams as the micro batch would whose uses were found.
function rehearsal.skip(found) move(found.draws, 1) end

-- Raises if a micro batch has drawn a different amount than found, since positions() was `before`.
function rehearsal.check(found, before)
  for name, count in pairs(moved(before)) do
    if count ~= (found.draws[name] or 0) then
      error(("ranks: a micro batch drew %d numbers from the stream '%s', and one of the same shape "
        .. "%d: several ranks require a model whose draws depend on shapes alone"):format(
        count, name, found.draws[name] or 0), 0)
    end
  end
end

return suggest.strict("rehearsal", rehearsal)
