-- trials/space.lua: enumerates the points of an experiment: grid, zip and random axes, the rules of
-- `when`, and the exceptions.
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local rows = require "toeplab.trials.rows"
local sorted_keys = require "toeplab.base.sorted_keys"

local space = {}

-- More points are probably a mistake, and would not fit into memory.
local MOST = 1000000

function space.check_count(count)
  if count > MOST then errors.usage("this plan has %.3g trials; the limit is %d", count, MOST) end
end

-- Returns whether a value equals `wanted` or, if `wanted` is a list, one of its items. A value that
-- is itself a list must equal the whole list.
local function wanted_value(value, wanted)
  if type(wanted) ~= "table" then return value == wanted end
  if type(value) == "table" then
    if #value ~= #wanted then return false end
    for i, v in ipairs(value) do
      if v ~= wanted[i] then return false end
    end
    return true
  end
  for _, w in ipairs(wanted) do
    if value == w then return true end
  end
  return false
end

-- Returns whether the configuration `values` matches `where`: a table key -> value or list of
-- values, all of which must match, or a function of the configuration.
function space.fits(where, values)
  if type(where) == "function" then
    local ok, result = pcall(where, config.new(values))
    if not ok then errors.usage("where: %s", errors.text(result)) end
    return result
  end
  for key, wanted in pairs(where) do
    if not wanted_value(values[key], wanted) then return false end
  end
  return true
end

-- Returns the product of two lists of points: each point of list, overridden by each of more.
local function times(list, more)
  local result = {}
  space.check_count(#list * #more)
  for _, point in ipairs(list) do
    for _, extra in ipairs(more) do
      local both = config.copy(point)
      for key, value in pairs(extra) do both[key] = value end
      result[#result + 1] = both
    end
  end
  return result
end

-- Returns the values of an axis as points of one key.
local function axis(key, list)
  local points = {}
  for i, value in ipairs(list) do points[i] = { [key] = value } end
  return points
end

-- Returns all combinations of the axes; the last key in name order varies fastest.
local function grid(axes)
  local list = { {} }
  for _, key in ipairs(sorted_keys(axes)) do list = times(list, axis(key, axes[key])) end
  return list
end

-- Returns the points of zipped axes: the i-th values of all.
local function zip(axes)
  local keys, list = sorted_keys(axes), {}
  for i = 1, #axes[keys[1]] do
    list[i] = {}
    for _, key in ipairs(keys) do list[i][key] = axes[key][i] end
  end
  return list
end

-- ---- Random draws -----------------------------------------------------------------------------

-- The distributions by name: each maps a number in [0,1) and the distribution's arguments to a
-- value.
local draws = {}

function draws.uniform(u, low, high) return low + u * (high / 1 - low) end

function draws.log(u, low, high) return low * (high / low) ^ u end

function draws.integer(u, low, high)
  return math.min(high, low + math.floor(u * (high - low + 1)))
end

function draws.choice(u, ...) return (select(1 + math.floor(u * select("#", ...)), ...)) end

space.distributions = sorted_keys(draws)

-- Draws `count` points. Each key has its own random stream, whose i-th number gives its value at
-- the i-th point, so that another key or a larger count does not change the other values.
local function random(axes, count, seed)
  local list = {}
  space.check_count(count)
  for i = 1, count do list[i] = {} end
  for _, key in ipairs(sorted_keys(axes)) do
    local stream = core.stream(seed, "random " .. key)
    for i = 1, count do
      list[i][key] = draws[axes[key][1]](stream:unit(), table.unpack(axes[key], 2))
    end
  end
  return list
end

-- ---- All points --------------------------------------------------------------------------------

-- Overrides a point by fixed, except for keys that the command line sets (given: key -> true).
local function lay(point, fixed, given)
  for key, value in pairs(fixed or {}) do
    if not given[key] then point[key] = value end
  end
end

-- Returns the configuration at a point, without the seed: fixed, overridden by the keys of the rows
-- that it names, and by the point's own keys.
function space.resolved(values, point)
  local all = config.copy(values.fixed)
  for key, value in pairs(point) do all[key] = config.copy(value) end
  rows.lay(values.rows, all, point)
  return all
end

-- Expands the points that match a rule of `when`.
local function apply(rule, list, values)
  local result = {}
  for _, point in ipairs(list) do
    if not space.fits(rule.where, space.resolved(values, point)) then
      result[#result + 1] = point
    else
      lay(point, rule.fixed, values.given)
      local axes = {}
      for key, items in pairs(rule.grid or {}) do
        if not values.given[key] then axes[key] = items end
      end
      for _, longer in ipairs(times({ point }, grid(axes))) do result[#result + 1] = longer end
    end
  end
  return result
end

-- Returns the reason of the first exception that a configuration matches, or nil.
local function excepted(rules, all)
  for _, rule in ipairs(rules) do
    if space.fits(rule.where, all) then return rule.reason end
  end
end

-- Returns the points of values: {fixed=, rows=, axes=, zips=, random=, draws=, draw_seed=, when=,
-- except=, given=}. Each point is a table of the keys of its axes and of the keys that rules of
-- `when` set. Raises a usage error if no point is left. Second result: the excluded points,
-- {point=, reason=} each. Third: the number of points before each rule of `when`, and after all.
function space.points(values)
  local list = grid(values.axes)
  for _, axes in ipairs(values.zips) do list = times(list, zip(axes)) end
  if next(values.random) then
    list = times(list, random(values.random, values.draws, values.draw_seed))
  end
  local counts = { #list }
  for i, rule in ipairs(values.when) do
    list = apply(rule, list, values)
    counts[i + 1] = #list
  end
  local kept, left_out = {}, {}
  for _, point in ipairs(list) do
    local reason = excepted(values.except, space.resolved(values, point))
    if reason then
      left_out[#left_out + 1] = { point = point, reason = reason }
    else
      kept[#kept + 1] = point
    end
  end
  if #kept == 0 then
    errors.usage("no trial is left: except excludes all %d, e.g. %s", #left_out,
      left_out[1].reason)
  end
  return kept, left_out, counts
end

return space
