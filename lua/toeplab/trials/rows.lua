-- trials/rows.lua: checks and applies named rows: each value of an axis is a name for a set of
-- keys.
--
--   rows = { model = { { "tnn", decay = 0.99 },
--                      { "ski", backend = "ski", backend_options = { taps = 16 } } } }
--
-- makes model an axis of the values "tnn" and "ski", in this order. A trial of model=ski has the
-- configuration of fixed, overridden by the keys of its row; the key model holds the name, for
-- reports, filters and labels. If fixed, grid, zip or random declares model, that decides which
-- rows run. rows = { ski = {...}, fd = {...} } and rows = { { "ski", ... } } are rows of the axis
-- row; the former are sorted by name.
local config = require "toeplab.base.config"
local errors = require "toeplab.base.errors"
local overlay = require "toeplab.base.overlay"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local rows = {}

local function complain(exp, key, format, ...)
  errors.usage("%s: rows: %s", exp:where(key), format:format(...))
end

local function is_list(v) return config.is_list(v) and #v > 0 end

-- Returns the rows of an axis: {order= (the names), of= (name -> its keys)}.
local function read(exp, axis, declared)
  local set, list = { order = {}, of = {} }, declared
  if not is_list(declared) then
    list = {}
    for i, name in ipairs(sorted_keys(declared)) do
      list[i] = type(declared[name]) == "table" and overlay({ name }, declared[name]) or {}
    end
  end
  for i, row in ipairs(list) do
    local keys = type(row) == "table" and overlay(row) or {}
    local name = keys[1]
    keys[1] = nil
    for key in pairs(keys) do
      if type(key) ~= "string" then name = nil end
    end
    if type(name) ~= "string" then
      complain(exp, axis, "row %d of %s is not { \"name\", key = value, ... }", i, axis)
    elseif set.of[name] then
      complain(exp, axis, "%s has two rows '%s'", axis, name)
    end
    set.order[i], set.of[name] = name, exp:flat(keys)
  end
  exp:check_value(axis, set.order)
  return set
end

-- Raises if a row sets an invalid value, or a key that an axis or rows of another axis set. owners:
-- key -> the axis whose rows set it.
local function check_keys(exp, axis, set, owners)
  for _, name in ipairs(set.order) do
    for _, key in ipairs(sorted_keys(set.of[name])) do
      exp:check_value(key, set.of[name][key])
      if exp:varies(key) or exp.rows[key] then
        complain(exp, key, "'%s' is an axis, and the row '%s' of %s sets it", key, name, axis)
      elseif (owners[key] or axis) ~= axis then
        complain(exp, key, "'%s' is set by rows of %s and of %s", key, owners[key], axis)
      end
      owners[key] = axis
    end
  end
end

-- Checks the field rows of an experiment after its other axes, and replaces it by axis -> result of
-- read. If no field declares the axis, adds it to grid with all names.
function rows.check(exp)
  local given, owners = exp.rows or {}, {}
  for _, list in pairs(given) do
    if not is_list(list) or is_list(given) then given = { row = given } break end
  end
  exp.rows = {}
  for _, axis in ipairs(sorted_keys(given)) do exp.rows[axis] = read(exp, axis, given[axis]) end
  for _, axis in ipairs(sorted_keys(given)) do
    check_keys(exp, axis, exp.rows[axis], owners)
  end
  for axis, set in pairs(exp.rows) do
    if exp.fixed[axis] == nil and not exp:varies(axis) then exp.grid[axis] = set.order end
  end
end

-- Returns the set of the keys that rows set.
function rows.keys(list)
  local keys = {}
  for _, set in pairs(list) do
    for _, own in pairs(set.of) do
      for key in pairs(own) do keys[key] = true end
    end
  end
  return keys
end

-- Returns the values of a key in the rows of an experiment, in order.
function rows.values(exp, key)
  local list = {}
  for _, set in pairs(exp.rows) do -- only one axis may set the key
    for _, name in ipairs(set.order) do list[#list + 1] = set.of[name][key] end
  end
  return list
end

-- Replaces the value of a key in each row that sets it. Returns whether one does.
function rows.replace(list, key, value)
  local some = false
  for _, set in pairs(list) do
    for _, own in pairs(set.of) do
      if own[key] ~= nil then own[key], some = value, true end
    end
  end
  return some
end

-- Overrides a configuration by the keys of the rows that it names, except those in the set `given`.
function rows.lay(list, all, given)
  for axis, set in pairs(list) do
    for key, value in pairs(set.of[all[axis]] or {}) do
      if given[key] == nil then all[key] = config.copy(value) end
    end
  end
end

-- Raises if a configuration names a missing row.
function rows.check_names(exp, all)
  for axis, set in pairs(exp.rows) do
    local ok, why = suggest.choose("row", all[axis], set.order)
    if not ok then errors.usage("%s: %s: %s", exp:where(axis), axis, why) end
  end
end

-- Adds to the set reads the axes whose rows set a key in it: their values made a difference.
function rows.add_reads(list, reads)
  for axis in pairs(list) do
    for key in pairs(rows.keys { list[axis] }) do reads[axis] = reads[axis] or reads[key] end
  end
end

return rows
