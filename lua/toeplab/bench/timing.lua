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

-- rows: a list of {run = function, count = how many units one call does (1)}. Calls each once, then
-- all of them in turns, repeats times; sets in each row seconds per unit: median, low and high (the
-- quartiles).
function timing.interleaved(rows, repeats)
  local samples = {}
  for i, row in ipairs(rows) do
    row.run()
    samples[i] = {}
  end
  for r = 1, repeats do
    for i, row in ipairs(rows) do
      local start = core.sys.clock()
      row.run()
      samples[i][r] = (core.sys.clock() - start) / (row.count or 1)
    end
  end
  for i, row in ipairs(rows) do
    table.sort(samples[i])
    row.median = timing.quantile(samples[i], 0.5)
    row.low, row.high = timing.quantile(samples[i], 0.25), timing.quantile(samples[i], 0.75)
  end
  return rows
end

-- The exponent x of y ~ n^x through two points.
function timing.exponent(n1, y1, n2, y2)
  return math.log(y2 / y1) / math.log(n2 / n1)
end

-- Cells for the times of a row: milliseconds, and its quartiles.
function timing.cells(row)
  return ("%.3f"):format(1e3 * row.median),
    ("%.3f-%.3f"):format(1e3 * row.low, 1e3 * row.high)
end

return timing
