-- report/mean_table.lua: builds the table that an experiment declares as its report: means of
-- metrics over the trials that share the values of some keys.
local config = require "toeplab.base.config"
local json = require "toeplab.base.json"
local stats = require "toeplab.report.stats"

local mean_table = {}

-- Returns the mean (nan if a value is nan) and the sample standard deviation (n - 1) of the values;
-- nil for no values. A single value has no deviation: nil, as tables then print the mean alone.
function mean_table.mean(values)
  if #values == 0 then return nil end
  return stats.mean(values), #values > 1 and stats.deviation(values) or nil
end

-- Counts the trials with a metric for which says(value) holds; value is nil if it was not logged.
local function count(trials, names, says)
  local sum = 0
  for _, trial in ipairs(trials) do
    local found = false
    for _, name in ipairs(names) do found = found or says(trial.metrics[name]) end
    sum = sum + (found and 1 or 0)
  end
  return sum
end

local counted = {
  { "diverged", function(v) return v ~= nil and v - v ~= 0 end },
  { "lacking", function(v) return v == nil end },
}

-- Returns header and rows of the table { rows = "key" or a list of keys, columns = {"metric", ...}
-- } over trials with .config and .metrics: one line per combination of values of the keys; each
-- cell is the mean of the metric over its trials that logged it, nan if one value is. Further
-- columns count the trials; the diverged ones, if a metric is not finite anywhere; and those that
-- lack a metric which others have logged, if any. A row's metatable has the spreads of its means
-- (text_table.spread_of).
function mean_table.by(spec, trials)
  local keys = type(spec.rows) == "table" and spec.rows or { spec.rows }
  local header, groups, order = table.move(keys, 1, #keys, 1, {}), {}, {}
  for _, name in ipairs(spec.columns) do header[#header + 1] = name end
  for _, trial in ipairs(trials) do
    local row, at = {}, {}
    for i, key in ipairs(keys) do
      row[i], at[i] = config.show(trial.config[key]), { trial.config[key] }
    end
    local name = json.encode(at) -- different strings may look alike
    if not groups[name] then
      groups[name], order[#order + 1] = { row = row }, name
    end
    table.insert(groups[name], trial)
  end
  local known, counts = {}, {} -- a metric that no trial has is not missing
  for _, name in ipairs(spec.columns) do
    local some = count(trials, { name }, function(v) return v ~= nil end) > 0
    known[#known + 1] = some and name or nil
  end
  header[#header + 1] = "trials"
  for _, c in ipairs(counted) do
    if count(trials, known, c[2]) > 0 then counts[#counts + 1], header[#header + 1] = c, c[1] end
  end
  local rows = {}
  for r, key in ipairs(order) do
    local group = groups[key]
    local spreads = {}
    rows[r] = setmetatable(group.row, { spreads = spreads })
    for c, name in ipairs(spec.columns) do
      local values = {}
      for _, trial in ipairs(group) do values[#values + 1] = trial.metrics[name] end
      rows[r][#keys + c] = mean_table.mean(values)
      local half = #values > 0 and stats.interval(values).half or nil
      spreads[#keys + c] = { half = half, decimals = stats.decimals(half) }
    end
    local last = #keys + #spec.columns + 1
    rows[r][last] = #group
    for i, c in ipairs(counts) do rows[r][last + i] = count(group, known, c[2]) end
  end
  return header, rows
end

return mean_table
