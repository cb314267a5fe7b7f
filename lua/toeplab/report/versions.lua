-- report/versions.lua: decides which of the trials at one setting count, if commands made them with
-- different versions of the code or the data, or tried several values of a key for the setting.
local json = require "toeplab.base.json"
local overlay = require "toeplab.base.overlay"

local versions = {
  -- The statuses of trials that ended without a result.
  lost = { failed = true, timeout = true, budget = true, pruned = true } }

-- Returns a string that identifies the setting of a point, ignoring the key (nil: none).
function versions.setting(at, key)
  local others = overlay(at)
  if key then others[key] = nil end
  return json.encode(others)
end

-- Returns a function that returns whether a point of a sweep holds a value that the newest command
-- with its setting chose for a key (trials/tuning.lua; nil: none was chosen). Callers go from the
-- newest sweep to the oldest.
function versions.newest_choice(key)
  local newest = {}
  return function(at, sweep)
    if not key then return true end
    local setting, value = versions.setting(at, key), json.encode { at[key] }
    local here = newest[setting] or { sweep = sweep, values = {} }
    newest[setting] = here
    if here.sweep == sweep then here.values[value] = true end
    return here.values[value] or false
  end
end

-- Returns the result by which a trial is compared with other values of a tuned key: false if it
-- ended without a finite one, nil if it has not ended.
function versions.result(status, result)
  if status == "done" then return result and result - result == 0 and result or false end
  if status == "guard" or versions.lost[status] then return false end
end

-- Returns the indices of the candidates (versions.best) that have results and, of these, the fewest
-- that are false.
local function most_finite(candidates)
  local list, fewest = {}, math.huge
  for i, results in ipairs(candidates) do
    local without = 0
    for _, v in pairs(results) do without = without + (v and 0 or 1) end
    if next(results) and without < fewest then list, fewest = {}, without end
    if next(results) and without == fewest then list[#list + 1] = i end
  end
  return list
end

-- Returns the index of the candidate that counts: the one with the fewest seeds that ended without
-- a result and, of these, with the best mean over the seeds that all of them have; the first if
-- there are none. Each maps its seeds to results (versions.result). goal: "min" or "max".
function versions.best(candidates, goal)
  local sign, list, sums = goal == "max" and -1 or 1, most_finite(candidates), {}
  local best = list[1] or 1
  for seed in pairs(candidates[best]) do
    local all = true
    for _, i in ipairs(list) do all = all and candidates[i][seed] end
    for _, i in ipairs(all and list or {}) do
      sums[i] = (sums[i] or 0.0) + sign * candidates[i][seed]
    end
  end
  for _, i in ipairs(list) do
    if sums[i] and sums[i] < sums[best] then best = i end
  end
  return best
end

-- Returns a function that returns whether a point (a table key -> value) has the value of a tuned
-- key that counts for its setting (versions.best). rows: trials {at= (their point), seed=, status=,
-- result=}.
function versions.chosen(rows, key, goal)
  local settings, best_of = {}, {}
  for _, row in ipairs(rows) do
    local text, value = versions.setting(row.at, key), json.encode { row.at[key] }
    local here = settings[text] or { results = {}, values = {}, places = {} }
    settings[text] = here
    local i = here.places[value] or #here.values + 1
    here.places[value], here.values[i], here.results[i] = i, value, here.results[i] or {}
    here.results[i][row.seed] = versions.result(row.status, row.result)
  end
  for text, here in pairs(settings) do
    best_of[text] = here.values[versions.best(here.results, goal)]
  end
  return function(at)
    return best_of[versions.setting(at, key)] == json.encode { at[key] }
  end
end

-- Returns the set of the ids of trials, given by sweep from the newest on, that newer ones replace.
-- At a setting, all trials of the newest sweep with it count; of the others, those whose seed is
-- not taken and whose version is one of these. Where a newer trial took a seed with another id, the
-- version of the older one is out of date.
function versions.replaced(rows)
  local settings, set = {}, {}
  for _, row in ipairs(rows) do
    local here = settings[row.point] or { sweep = row.sweep, seeds = {}, current = {}, stale = {} }
    settings[row.point] = here
    local newer, version = here.seeds[row.seed], row.made.version
    if row.sweep == here.sweep then
      here.seeds[row.seed] = row
      if row.status ~= "queued" then here.current[version] = true end -- queued: none yet
    elseif newer then
      here.stale[version] = true
    end
  end
  for _, row in ipairs(rows) do
    local here = settings[row.point]
    if row.sweep ~= here.sweep then
      local version = row.made.version
      local unlike = row.status ~= "queued" and next(here.current) and not here.current[version]
      if here.seeds[row.seed] or unlike or here.stale[version] then
        set[row.id] = true
      else
        here.seeds[row.seed] = row
        if row.status ~= "queued" then here.current[version] = true end
      end
    end
  end
  return set
end

return versions
