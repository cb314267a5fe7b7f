-- trials/log_types.lua: checks logged values. All values of a name must be numbers, or tensors of
-- one type and shape, so that the tensors form one array over the steps.
local class = require "toeplab.nn.class"
local core = require "toeplab.core"
local logged_tensors = require "toeplab.store.logged_tensors"

local log_types = {}

local Types = {}
Types.__index = Types

-- rows: of the trial (worker.lua); folder: of the results.
function log_types.new(rows, folder)
  return setmetatable({ rows = rows, folder = folder, of = {} }, Types)
end

local MOST_AXES = 5 -- of a tensor, to which a series adds that of the steps

-- Returns whether a value is logged as a tensor; a tensor of one element counts as a number.
local function is_tensor(value) return class.istensor(value) and value:numel() > 1 end

local function describe(tensor)
  return ("a tensor [%s] of type %s"):format(table.concat(tensor:shape(), ","), tensor:type())
end

-- Returns the form of the tensors that an earlier attempt has logged under a name; nil if there are
-- none, or the file is damaged.
local function stored(self, name)
  local row = self.rows:artifact(logged_tensors.kind(name))
  local ok, tensor = pcall(logged_tensors.open, row and self.folder .. "/" .. row.path, name, row)
  return ok and describe(tensor) or nil
end

-- Raises unless a value has the form of earlier values of that name.
local function check_form(self, name, value, index)
  local form = "a number"
  if is_tensor(value) then
    form = describe(value)
    if index then
      error(("log: '%s' is %s: tensors are stored by step and cannot have an index"):format(name,
        form), 4)
    elseif #value:shape() > MOST_AXES then
      error(("log: '%s' is %s: with the steps it would have more than %d axes"):format(name, form,
        MOST_AXES + 1), 4)
    elseif not name:find "^[%w_-]+$" then
      error(("log: the name '%s' of %s becomes part of a file name: use letters, digits, _ and -")
        :format(name, form), 4)
    end
  end
  local before = self.of[name] or stored(self, name) or form
  if form ~= before then
    error(("log: '%s' is %s, and was %s before"):format(name, form, before), 4)
  end
  self.of[name] = form
end

local function number(name, value)
  if type(value) == "userdata" then value = value:item() end
  if type(value) ~= "number" then
    error(("log: '%s' must be a number or a tensor, got a %s"):format(name, type(value)), 4)
  end
  return value + 0.0
end

local function check_name(name)
  if type(name) ~= "string" then error("log: takes a table { name = number }", 4) end
  if not utf8.len(name) or name:find "%c" then
    error(("log: the name '%s' must be one line of UTF-8"):format(core.sys.clean(name)), 4)
  end
end

-- Returns the numbers in values (name -> number or tensor) as rows of metrics at a step, and the
-- names of the tensors, both sorted by name. index: as in t:log, which calls this.
function Types:sort(values, index, step)
  if type(values) ~= "table" then error("log: takes a table: t:log { name = number }", 3) end
  if index ~= nil and math.type(index) ~= "integer" then
    error("log: the index must be an integer", 3)
  end
  local names, rows, tensors = {}, {}, {}
  for name in pairs(values) do
    check_name(name)
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local value = values[name]
    check_form(self, name, value, index)
    if is_tensor(value) then
      tensors[#tensors + 1] = name
    else
      rows[#rows + 1] = { step = index or step, at = index and step, name = name,
        value = number(name, value) }
    end
  end
  return rows, tensors
end

return log_types
