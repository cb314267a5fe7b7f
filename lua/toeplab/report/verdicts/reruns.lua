-- report/verdicts/reruns.lua: writes the commands that run compared trials with more seeds: these
-- settings and no others, whatever other commands of the experiment ran.
local frames = require "toeplab.report.frames"
local json = require "toeplab.base.json"
local overlay = require "toeplab.base.overlay"
local sorted_keys = require "toeplab.base.sorted_keys"

local Reruns = {}
Reruns.__index = Reruns

-- Returns a string that identifies the values of keys at a point (key -> value).
local function text_at(at, keys)
  local values = {}
  for i, key in ipairs(keys) do values[i] = { at[key] } end
  return json.encode(values)
end

-- Returns the distinct values of keys among a list of points: their number, their texts as a set,
-- and one point of each, in the order of the list.
local function distinct(points, keys)
  local set, list = {}, {}
  for _, at in ipairs(points) do
    local text = text_at(at, keys)
    list[#list + 1] = not set[text] and at or nil
    set[text] = true
  end
  return #list, set, list
end

-- Returns the lists of keys that a command can set: each free key, and the keys of each zip
-- together. A key with a list as its value cannot be set, since a command takes that as several
-- values; nor can one that some trials lack, or the tuned key, whose value the command chooses.
local function units_of(frame)
  local units, free = {}, frame:free_keys()
  for _, keys in ipairs(frame.plan.zip or {}) do
    units[#units + 1] = keys
    for _, key in ipairs(keys) do free[key] = nil end
  end
  for _, key in ipairs(sorted_keys(free)) do units[#units + 1] = { key } end
  local kept = {}
  for _, keys in ipairs(units) do
    local can = true
    for _, key in ipairs(keys) do
      can = can and key ~= frame.plan.tuned_key
      for _, row in ipairs(frame.read) do
        local value = row.point.at[key]
        can = can and value ~= nil and type(value) ~= "table"
      end
    end
    kept[#kept + 1] = can and keys or nil
  end
  return kept
end

-- Returns the points of the trials of a sweep, each once.
function Reruns:members(sweep)
  if not self.points[sweep] then
    local rows, list = {}, {}
    for _, row in ipairs(self.frame.read) do rows[row.id] = row end
    local sql = "SELECT trial FROM v_members WHERE sweep = ?"
    for _, member in ipairs(self.frame.store:rows(sql, { sweep.id })) do
      local row = rows[member.trial]
      list[#list + 1] = row and row.point.at or nil
    end
    self.points[sweep] = select(3, distinct(list, self.keys))
  end
  return self.points[sweep]
end

-- Returns the points of a list that have the values of the points `wanted` in each unit.
function Reruns:selected(list, wanted)
  local sets, found = {}, {}
  for u, keys in ipairs(self.units) do sets[u] = select(2, distinct(wanted, keys)) end
  for _, at in ipairs(list) do
    local fits = true
    for u, keys in ipairs(self.units) do fits = fits and sets[u][text_at(at, keys)] end
    found[#found + 1] = fits and at or nil
  end
  return found
end

-- Returns whether the command of a sweep sets one of the keys.
local function sets(sweep, keys)
  for _, override in ipairs(sweep.plan.overrides or {}) do
    for _, key in ipairs(keys) do
      if override:match "^[^=]*" == key then return true end
    end
  end
  return false
end

-- Returns whether the command of a sweep runs exactly the values of `points` without words for
-- these keys. The newest sweep shows the values that the script declares now.
function Reruns:is_given(sweep, keys, points)
  local text = json.encode(sorted_keys(select(2, distinct(points, keys))))
  local function runs(s)
    return json.encode(sorted_keys(select(2, distinct(self:members(s), keys)))) == text
  end
  local newest = self.frame.sweeps[1]
  return runs(sweep) and (sets(sweep, keys) or not sets(newest, keys) and runs(newest))
end

local function sort_numbers(list)
  for _, value in ipairs(list) do
    if type(value) ~= "number" then return end
  end
  table.sort(list)
end

-- Returns the command of a sweep, with words for the values of `points`.
function Reruns:command(sweep, points)
  local at = {}
  for _, keys in ipairs(self.units) do
    local _, _, values = distinct(points, keys)
    local compared = keys[1] == self.key and not keys[2]
    if compared or not self:is_given(sweep, keys, points) then
      for _, key in ipairs(keys) do
        at[key] = {}
        for i, value in ipairs(values) do at[key][i] = value[key] end
      end
      if not compared and not keys[2] then sort_numbers(at[keys[1]]) end
    end
  end
  return self.frame:command(at, self.seeds, sweep)
end

-- Returns whether a sweep had all of the points.
function Reruns:had(sweep, points)
  local _, has = distinct(self:members(sweep), self.keys)
  for _, at in ipairs(points) do
    if not has[text_at(at, self.keys)] then return false end
  end
  return true
end

-- Returns the command of the newest sweep that had all of the points, if words for keys single
-- them out; nil if there is none.
function Reruns:by_sweep(points)
  for _, sweep in ipairs(self.frame.sweeps) do
    if self:had(sweep, points) and #self:selected(self:members(sweep), points) == #points then
      return self:command(sweep, points)
    end
  end
end

-- Returns a command for points that several sweeps had: if they are all combinations of the values
-- of the units, and no other key tells trials apart; else nil.
function Reruns:by_values(points)
  local combinations = 1
  for _, keys in ipairs(self.units) do combinations = combinations * distinct(points, keys) end
  return self.alone and combinations == #points
    and self:command(self.frame.sweeps[1], points) or nil
end

-- Returns the commands for the points; or one that runs other settings too, and true.
function Reruns:commands(points)
  local one = self:by_sweep(points) or self:by_values(points)
  if one then return { one }, false end
  local best, fallback
  for _, keys in ipairs(self.units) do
    local n, _, values = distinct(points, keys)
    local parts, list = {}, {}
    for i, value in ipairs(n > 1 and values or {}) do
      local text = text_at(value, keys)
      parts[i] = {}
      for _, at in ipairs(points) do
        parts[i][#parts[i] + 1] = text_at(at, keys) == text and at or nil
      end
      list[#list + 1] = self:by_sweep(parts[i]) or self:by_values(parts[i])
    end
    fallback = fallback or n > 1 and parts or nil
    if n > 1 and #list == n and not (best and #best <= n) then best = list end
  end
  if best then return best, false end
  local list, more = {}, not fallback
  for _, part in ipairs(fallback or {}) do
    local of_part, others = self:commands(part)
    table.move(of_part, 1, #of_part, #list + 1, list)
    more = more or others
  end
  if not more then return list, false end
  local of = self.frame.sweeps[1]
  for i = #self.frame.sweeps, 1, -1 do
    local sweep = self.frame.sweeps[i]
    of = self:had(sweep, points) and sweep or of
  end
  return { self:command(of, points) }, true
end

-- Returns lines: the commands that run trials of a frame (a list from Frame:trials) with the seeds
-- given by a word, and a note if no command runs them alone. key: the compared one.
return function(frame, key, trials, seeds)
  local self = setmetatable({ frame = frame, key = key, seeds = seeds, points = {} }, Reruns)
  local axes, set = overlay(frame.axes), {}
  if frame.plan.tuned_key then axes[frame.plan.tuned_key] = nil end
  self.keys, self.units = sorted_keys(axes), units_of(frame)
  for _, keys in ipairs(self.units) do
    for _, name in ipairs(keys) do set[name] = true end
  end
  self.alone = true
  for _, name in ipairs(self.keys) do
    self.alone = self.alone and (set[name] or frames.follows(name, set, frame.read))
  end
  local points = {}
  for i, t in ipairs(trials) do points[i] = t.point.at end
  local lines, more = self:commands((select(3, distinct(points, self.keys))))
  if more then
    lines[#lines + 1] = "(it runs other settings too, since no key selects these alone)"
  end
  return lines
end
