-- report/verdicts/resolution.lua: the difference that the seeds of a plan detect between two rows,
-- by the paired test and the power with which compare counts the seeds that it proposes.
local json = require "toeplab.base.json"
local stats = require "toeplab.report.stats"

local resolution = {}

-- Returns, of each row of the trials with finished ones, seed -> its value of the metric; in order.
local function rows_of(store, trials, metric)
  local rows, known = {}, {}
  for _, t in ipairs(trials) do
    local row = json.encode(t.point)
    local value = t.status == "done" and store:results(t.id)[metric]
    if value and value - value == 0 then
      if not known[row] then
        known[row] = {}
        rows[#rows + 1] = known[row]
      end
      known[row][t.seed] = value
    end
  end
  return rows
end

-- Returns the deviation of the differences b - a at the same seeds over the mean of both rows; nan
-- if fewer than two seeds have both.
local function pair_spread(a, b)
  local differences, values = {}, {}
  for seed, value in pairs(a) do
    if b[seed] then
      differences[#differences + 1] = b[seed] - value
      values[#values + 1], values[#values + 2] = value, b[seed]
    end
  end
  return stats.deviation(differences) / math.abs(stats.mean(values))
end

-- The same of one row alone, as if another one of the same deviation were independent of it.
local function row_spread(row)
  local values = {}
  for _, value in pairs(row) do values[#values + 1] = value end
  return math.sqrt(2) * stats.deviation(values) / math.abs(stats.mean(values))
end

-- Returns what `seeds` seeds detect 4 times in 5 in one comparison of two rows, if the differences
-- of rows spread as between each finished row of the trials and the next: {metric=, share= (of the
-- rows' mean), spread= (of the differences, as a share), pairs= (of rows), rows= (that spread, if
-- no two share two seeds)}. nil if nothing spreads, or for one seed.
function resolution.of(store, trials, metric, seeds)
  if not metric or seeds < 2 then return nil end
  local rows, squares, pairs_of, alone = rows_of(store, trials, metric), 0.0, 0, 0
  local function add(spread)
    if spread - spread ~= 0 then return 0 end
    squares = squares + spread ^ 2
    return 1
  end
  for i = 2, #rows do pairs_of = pairs_of + add(pair_spread(rows[i - 1], rows[i])) end
  for i = 1, pairs_of == 0 and #rows or 0 do alone = alone + add(row_spread(rows[i])) end
  if squares == 0 then return nil end
  local spread = math.sqrt(squares / (pairs_of + alone))
  return { metric = metric, share = spread * stats.detected(seeds), spread = spread,
    pairs = pairs_of, rows = alone }
end

return resolution
