-- bench/timing.lua: times several things in turns, so that a disturbance of the machine affects all
-- of them alike.
local core = require "toeplab.core"
local stats = require "toeplab.report.stats"

local timing = {}

-- Returns the lower quartile, the median and the upper quartile of a list.
function timing.quartiles(list)
  return stats.quantile(list, 0.25), stats.quantile(list, 0.5), stats.quantile(list, 0.75)
end

-- rows: a list of {run = function, rest = seconds to wait after its turn}. Runs all of them in
-- turns, `repeats` times; run returns seconds per call. Sets in each row its samples, in order.
function timing.interleaved(rows, repeats)
  for _, row in ipairs(rows) do row.samples = {} end
  for r = 1, repeats do
    for i, row in ipairs(rows) do
      local rest = rows[i > 1 and i - 1 or #rows].rest
      if rest > 0 then core.sys.sleep(rest) end
      row.samples[r] = row.run()
    end
  end
end

-- Returns the geometric mean of positive numbers.
function timing.mean(list)
  local sum = 0.0
  for _, x in ipairs(list) do sum = sum + math.log(x) end
  return math.exp(sum / #list)
end

return timing
