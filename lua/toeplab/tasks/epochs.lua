-- tasks/epochs.lua: the order in which an epoch takes its blocks, batches or examples. It depends
-- on the seed, the purpose and the number of the epoch alone, so that a run resumes at any step
-- without anything having been saved.
local core = require "toeplab.core"
local streams = require "toeplab.base.streams"

local epochs = {}

-- A function (epoch, count) -> a permutation of 0..count-1 as a list. seed: nil means that of
-- tl.seed. The last permutation is cached, as the steps of an epoch follow each other.
function epochs.order(seed, purpose)
  seed = seed or streams.seed_of()
  local epoch, count, list
  return function(wanted, size)
    if epoch ~= wanted or count ~= size then
      list = core.stream(seed, purpose .. wanted):permutation(size):totable()
      epoch, count = wanted, size
    end
    return list
  end
end

-- The length of a batch's rows, the longest of which has so many tokens: a multiple, but no more
-- than length. Each length costs a plan of its own, so there must not be too many of them.
function epochs.padded(longest, multiple, length)
  return math.min((longest + multiple - 1) // multiple * multiple, length)
end

return epochs
