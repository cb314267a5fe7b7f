-- tasks/epochs.lua: draws the order in which an epoch takes its blocks, batches or examples. The
-- order depends on the seed, the purpose and the number of the epoch only, so that a run can resume
-- at any step without a saved order.
local core = require "toeplab.core"
local streams = require "toeplab.base.streams"

local epochs = {}

-- Returns a function (epoch, count) -> a permutation of 0..count-1 as a list. A nil seed stands for
-- tl.seed's. Caches the last permutation, as successive steps mostly use the same one.
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

-- Returns the padded length of the rows of a batch, given its longest row: a multiple of
-- `multiple`, but at most length. Every length needs its own plan, so there should be few of them.
function epochs.padded(longest, multiple, length)
  return math.min((longest + multiple - 1) // multiple * multiple, length)
end

return epochs
