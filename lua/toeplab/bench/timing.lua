-- bench/timing.lua: times of several things, taken in turns so that what disturbs the machine
-- disturbs all of them alike.
local core = require "toeplab.core"

local timing = {}

-- The value below which the share p of a sorted list lies, interpolated.
function timing.quantile(sorted, p)
  local at = 1 + p * (#sorted - 1)
  local low = math.floor(at)
  local high = math.min(low + 1, #sorted)
  return sorted[low] + (at - low) * (sorted[high] - sorted[low])
end

-- The lower quartile, the median and the upper quartile of a list, which stays as it is.
function timing.quartiles(list)
  local sorted = table.move(list, 1, #list, 1, {})
  table.sort(sorted)
  return timing.quantile(sorted, 0.25), timing.quantile(sorted, 0.5), timing.quantile(sorted, 0.75)
end

-- rows: a list of {run = function, count = how many units one call does (1)}. Calls each once, then
-- all of them in turns, repeats times; run may return a number, seconds per unit that it has
-- measured itself.
-- Sets in each row seconds per unit: samples, in turn, and their median, low and high (quartiles).
function timing.interleaved(rows, repeats)
  for _, row in ipairs(rows) do
    row.run()
    row.samples = {}
  end
  for r = 1, repeats do
    for _, row in ipairs(rows) do
      local start = core.sys.clock()
      local own = row.run()
      local spent = (core.sys.clock() - start) / (row.count or 1)
      row.samples[r] = type(own) == "number" and own or spent
    end
  end
  for _, row in ipairs(rows) do
    row.low, row.median, row.high = timing.quartiles(row.samples)
  end
  return rows
end

-- The median and the quartiles of the ratio of two rows' samples, turn by turn.
function timing.ratio(over, under)
  local list = {}
  for r, seconds in ipairs(over.samples) do list[r] = seconds / under.samples[r] end
  local low, median, high = timing.quartiles(list)
  return median, low, high
end

-- Cells for the times of a row: milliseconds, and its quartiles.
function timing.cells(row)
  return ("%.3f"):format(1e3 * row.median),
    ("%.3f-%.3f"):format(1e3 * row.low, 1e3 * row.high)
end

return timing
