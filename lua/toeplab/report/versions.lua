-- report/versions.lua: which of the trials at one setting count, where commands made them with
-- different versions of the code or the data, or tried several values of a key for the setting.
local json = require "toeplab.base.json"
local overlay = require "toeplab.base.overlay"

local versions = {}

-- Returns a text that tells settings apart, whatever value a point has of the key (nil: none).
function versions.setting(at, key)
  local others = overlay(at)
  if key then others[key] = nil end
  return json.encode(others)
end

-- Returns a function that tells whether a point of a sweep holds a value that the newest command
-- with its setting chose of a key (trials/tuning.lua; nil: none was chosen). It is asked from the
-- newest sweep on.
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

-- Returns the number of the candidate that counts: that with the fewest seeds which diverged and,
-- of these, with the best mean over the seeds that all of them have; the first if there are none.
-- Each maps its seeds to results, false where the seed diverged. goal: "min" or "max".
function versions.best(candidates, goal)
  local sign, diverged, fewest = goal == "max" and -1 or 1, {}, math.huge
  for i, results in ipairs(candidates) do
    diverged[i] = 0
    for _, v in pairs(results) do diverged[i] = diverged[i] + (v and 0 or 1) end
    fewest = math.min(fewest, diverged[i])
  end
  local sums, best = {}, nil
  for seed in pairs(candidates[1]) do
    local all = true
    for i, results in ipairs(candidates) do
      all = all and (diverged[i] > fewest or results[seed])
    end
    for i, results in ipairs(all and candidates or {}) do
      if diverged[i] == fewest then sums[i] = (sums[i] or 0.0) + sign * results[seed] end
    end
  end
  for i in ipairs(candidates) do
    local better = not best or sums[i] and sums[i] < sums[best]
    if diverged[i] == fewest and better then best = i end
  end
  return best
end

-- Returns a function that tells whether a point (a table key -> value) has the value of a tuned key
-- that counts for its setting (versions.best), of those with which it was run. rows: trials {at=
-- (their point), seed=, status=, result=}.
function versions.chosen(rows, key, goal)
  local settings, best_of = {}, {}
  for _, row in ipairs(rows) do
    local text, value = versions.setting(row.at, key), json.encode { row.at[key] }
    local here = settings[text] or { results = {}, values = {}, places = {} }
    settings[text] = here
    local i = here.places[value] or #here.values + 1
    here.places[value], here.values[i], here.results[i] = i, value, here.results[i] or {}
    local ended = row.status == "guard" or row.status == "done" and row.result
    local finite = ended and row.status == "done" and row.result - row.result == 0
    if ended then here.results[i][row.seed] = finite and row.result end
  end
  for text, here in pairs(settings) do
    best_of[text] = here.values[versions.best(here.results, goal)]
  end
  return function(at)
    return best_of[versions.setting(at, key)] == json.encode { at[key] }
  end
end

-- Returns the set of the ids of those trials, by sweep from the newest on, that newer ones replace:
-- at a setting all count that the newest sweep with it asked for, and of the others those whose
-- seed is not taken and whose version is one of these. Where a newer trial took a seed with another
-- id, the version of the older one is out of date.
function versions.replaced(rows)
  local settings, set = {}, {}
  for _, row in ipairs(rows) do
    local here = settings[row.point] or { sweep = row.sweep, seeds = {}, current = {}, stale = {} }
    settings[row.point] = here
    local newer, version = here.seeds[row.seed], row.made.version
    if row.sweep == here.sweep then
      here.seeds[row.seed] = row
      if row.status ~= "queued" then here.current[version] = true end -- else it has none yet
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
