-- trials/rows.lua: named rows: each value of an axis is a name that stands for keys of its own.
--
--   rows = { model = { { "tnn", decay = 0.99 },
--                      { "ski", backend = "ski", backend_options = { taps = 16 } } } }
--
-- makes model an axis of the values "tnn" and "ski", in this order. A trial of model=ski has the
-- configuration of fixed, with the keys of its row over it; the name itself is the key model, by
-- which reports, filters and labels know the row. If fixed, grid, zip or random declares model,
-- that decides which rows run. rows = { ski = {...}, fd = {...} } and rows = { { "ski", ... } } are
-- rows of the axis row; the former are in the order of their names. A scale has rows of its own for
-- keys whose values differ from those of the experiment's rows.
local config = require "toeplab.base.config"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local rows = {}

local function complain(exp, key, format, ...)
  errors.usage("%s: rows: %s", exp:where(key), format:format(...))
end

local function is_list(v) return config.is_list(v) and #v > 0 end

-- Returns the rows of an axis in order, each {name, keys}.
local function list_of(exp, axis, declared)
  local list = {}
  for _, name in ipairs(is_list(declared) and {} or suggest.keys(declared)) do
    list[#list + 1] = { name, declared[name] }
  end
  for _, row in ipairs(is_list(declared) and declared or {}) do
    local keys = type(row) == "table" and config.copy(row) or {}
    list[#list + 1] = { keys[1], keys }
    keys[1] = nil
  end
  for _, row in ipairs(list) do
    if type(row[1]) ~= "string" or type(row[2]) ~= "table" then
      complain(exp, axis, "a row of %s is { \"name\", key = value }", axis)
    end
    for key, value in pairs(row[2]) do
      if type(key) ~= "string" then
        complain(exp, axis, "the row '%s' has a value without a key: %s", row[1],
          type(value) == "table" and "a table" or tostring(value))
      end
    end
  end
  return list
end

-- Returns the field that makes the key an axis, or nil.
local function axis_field(exp, key)
  for field, axes in pairs { grid = exp.grid, random = exp.random, zip = exp.zip or {} } do
    if axes[key] ~= nil then return field end
  end
  return exp:varies(key) and "zip" or exp.rows[key] and "rows"
end

-- Raises if a row sets a key that another axis decides. owners: key -> the axis whose rows set it.
local function check_key(exp, axis, name, key, owners)
  local field = axis_field(exp, key)
  if field then
    complain(exp, key, "'%s' is set by the row '%s' of %s, and is an axis of %s", key, name, axis,
      field)
  elseif (owners[key] or axis) ~= axis then
    complain(exp, key, "'%s' is set by rows of %s and of %s", key, owners[key], axis)
  end
  owners[key] = axis
end

-- Returns declared rows as axis -> {order= (the names), of= (name -> its keys)}.
local function read(exp, given)
  local found, declared = {}, given
  for _, list in pairs(given) do
    if not is_list(list) or is_list(given) then declared = { row = given } break end
  end
  for _, axis in ipairs(suggest.keys(declared)) do
    local set = { order = {}, of = {} }
    for i, row in ipairs(list_of(exp, axis, declared[axis])) do
      if set.of[row[1]] then complain(exp, axis, "%s has two rows '%s'", axis, row[1]) end
      set.order[i], set.of[row[1]] = row[1], config.flat(row[2])
    end
    exp:check_value(axis, set.order)
    found[axis] = set
  end
  return found
end

local function check_keys(exp, axis, set, owners)
  for _, name in ipairs(set.order) do
    for _, key in ipairs(suggest.keys(set.of[name])) do
      check_key(exp, axis, name, key, owners)
      exp:check_value(key, set.of[name][key])
    end
  end
end

-- Checks the field rows of an experiment, whose other axes are checked, and makes it what read
-- returns. An axis that is declared nowhere else gets all names in grid.
function rows.check(exp)
  local owners = {}
  exp.rows = read(exp, exp.rows or {})
  for _, axis in ipairs(suggest.keys(exp.rows)) do
    check_keys(exp, axis, exp.rows[axis], owners)
  end
  for axis, set in pairs(exp.rows) do
    if exp.fixed[axis] == nil and not exp:varies(axis) then exp.grid[axis] = set.order end
  end
end

-- Returns the rows of a scale (nil: none) as read does, checked against those of the experiment.
function rows.of_scale(exp, given)
  local found = read(exp, given or {})
  for axis, set in pairs(found) do
    local ok, why = suggest.choose("axis", axis, suggest.keys(exp.rows))
    if not ok then complain(exp, "scale", "%s", why) end
    for _, name in ipairs(set.order) do
      ok, why = suggest.choose("row", name, exp.rows[axis].order)
      if not ok then complain(exp, axis, "%s: %s", axis, why) end
    end
    check_keys(exp, axis, set, {})
  end
  return found
end

-- Lays the rows of a scale over rows.
function rows.overlay(list, more)
  for axis, set in pairs(more) do
    for name, keys in pairs(set.of) do
      for key, value in pairs(keys) do list[axis].of[name][key] = config.copy(value) end
    end
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

-- Returns the values that the rows of an experiment have for a key, in their order.
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

-- Returns rows without the keys of a set.
function rows.without(list, keys)
  list = config.copy(list)
  for key in pairs(keys) do rows.replace(list, key, nil) end
  return list
end

-- Lays the keys of the rows that a configuration names over it, but for those in the set `given`.
function rows.lay(list, all, given)
  for axis, set in pairs(list) do
    for key, value in pairs(set.of[all[axis]] or {}) do
      if given[key] == nil then all[key] = config.copy(value) end
    end
  end
end

-- Raises if a configuration names a row that there is not.
function rows.check_names(exp, all)
  for axis, set in pairs(exp.rows) do
    local ok, why = suggest.choose("row", all[axis], set.order)
    if not ok then errors.usage("%s: %s: %s", exp:where(axis), axis, why) end
  end
end

-- Adds to the set reads the axes whose rows set a key that is in it: their values made a
-- difference.
function rows.add_reads(list, reads)
  for axis in pairs(list) do
    for key in pairs(rows.keys { list[axis] }) do reads[axis] = reads[axis] or reads[key] end
  end
end

return rows
