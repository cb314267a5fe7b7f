-- report/verdicts/learning_curves.lua: compares a metric along the training: cuts the curves of
-- trials into parts, the means of which compare.lua pairs as it pairs last values, and finds where
-- the mean curves of two settings cross.
local overlay = require "toeplab.base.overlay"

local learning_curves = {}

local PARTS = 10 -- of the steps

local SPAN = [[SELECT min(step) AS low, max(step) AS high FROM v_metrics
  WHERE trial = ? AND name = ?]]
local MEANS = [[SELECT (step - ?3) * ?5 / ?4 AS part,
  CASE WHEN count(value) = count(*) THEN avg(value) END AS mean
  FROM v_metrics WHERE trial = ?1 AND name = ?2 GROUP BY 1 ORDER BY 1]]
local NAN = 0 / 0

-- Returns the trials that are done, each once for every part of the steps in which it has logged
-- the metric, with the mean of the part as its only value (NaN if one is), and part = {place= (from
-- 1), first=, last= (steps)}; those that a guard ended, with all parts; and once without a part
-- those that have logged none or are not done.
function learning_curves.cut(store, trials, metric)
  local low, high, list = math.huge, -math.huge, {}
  for _, t in ipairs(trials) do
    local span = store:rows(SPAN, { t.id, metric })[1]
    low, high = math.min(low, span.low or low), math.max(high, span.high or high)
  end
  local steps = high >= low and high - low + 1
  local function begin(part) return low + (part * steps + PARTS - 1) // PARTS end
  for _, t in ipairs(trials) do
    local counts = steps and (t.status == "done" or t.status == "guard")
    local rows = counts and store:rows(MEANS, { t.id, metric, low, steps, PARTS }) or {}
    local means = {}
    for _, row in ipairs(rows) do means[row.part] = row.mean or NAN end
    for part = 0, #rows > 0 and PARTS - 1 or -1 do
      local there = begin(part + 1) > begin(part)
      if means[part] or t.status == "guard" and there then
        list[#list + 1] = overlay(t, { values = { means[part] }, part = { place = part + 1,
          first = begin(part), last = begin(part + 1) - 1 } })
      end
    end
    if #rows == 0 then list[#list + 1] = overlay(t, { values = {} }) end
  end
  return list
end

-- Returns the label of a part.
function learning_curves.label(part)
  return part.first == part.last and ("step %d"):format(part.first)
    or ("step %d to %d"):format(part.first, part.last)
end

local function middle(row) return (row.part.first + row.part.last) / 2 end

-- Says where the mean difference of rows, judged and in the order of their parts, changes its sign,
-- by linear interpolation between the middles of parts. name: of the setting; base: of the
-- baseline.
function learning_curves.crossing(rows, name, base)
  local places, before, good, bad, lower = {}, nil, false, false, nil
  for _, row in ipairs(rows) do
    if row.mean and row.mean ~= 0 then
      if before and (before.mean < 0) ~= (row.mean < 0) then
        local share = before.mean / (before.mean - row.mean)
        places[#places + 1] = ("%.0f"):format(middle(before)
          + share * (middle(row) - middle(before)))
      end
      before = row
    end
    if row.good then lower = (row.mean < 0) == (row.good == "b") end
    good, bad = good or row.claimed and row.good == "b", bad or row.claimed and row.good == "a"
  end
  if not before then return ("%s and %s: no part has both"):format(name, base) end
  if lower == nil then
    return ("%s and %s: one seed, so nothing is judged"):format(name, base)
  end
  local which = (before.mean < 0) == lower and name or base
  local claimed = (good and bad and "each of them" or good and name or bad and base or "neither")
    .. " is claimed to be better in some rows"
  if #places == 0 then
    return ("%s and %s do not cross: %s is better throughout; %s"):format(name, base, which,
      claimed)
  end
  return ("%s and %s cross near step %s, after which %s is better; %s"):format(name, base,
    table.concat(places, " and "), which, claimed)
end

return learning_curves
