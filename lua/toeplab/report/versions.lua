-- report/versions.lua: which of the trials at one setting count, where commands made them with
-- different versions of the code or the data, or chose a key for the setting.
local json = require "toeplab.base.json"
local overlay = require "toeplab.base.overlay"

local versions = {}

-- Returns a function that tells whether a point holds the value that the newest command chose for
-- it of a key (trials/tuning.lua; nil: none was chosen). It remembers the first value that it sees,
-- so it is asked from the newest sweep on.
function versions.newest_choice(key)
  local first = {}
  return function(at)
    if not key then return true end
    local others = overlay(at)
    others[key] = nil
    others = json.encode(others)
    local value = json.encode { at[key] }
    first[others] = first[others] or value
    return first[others] == value
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
