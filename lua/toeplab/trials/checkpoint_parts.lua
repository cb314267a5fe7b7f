-- trials/checkpoint_parts.lua: checks and wraps the arguments of t:steps, the parts of a trial
-- whose states its checkpoints hold.
local checkpoint_parts = {}

-- Names in a checkpoint that `extra` cannot use.
local reserved = { step = true, streams = true, threads = true, device = true, best = true,
  left = true, model = true, optim = true, data = true, guard = true, rungs = true }

local function has_state(part)
  return type(part) == "table" and type(part.state) == "function" and type(part.load) == "function"
end

-- Returns whether part is a random stream (tl.stream).
local function is_stream(part)
  return type(part) == "userdata" and (getmetatable(part) or {}).__name == "toeplab.stream"
end

local simple = { number = true, string = true, boolean = true }

-- Loads nn/class.lua late, because it makes a tensor, after which the device cannot change.
local function is_tensor(value) return require("toeplab.nn.class").istensor(value) end

-- Raises unless a checkpoint can save and restore the contents of a table: numbers, strings,
-- booleans, tensors, and tables that are referenced once. path: its name, for messages; seen: table
-- -> path.
local function check_values(values, path, seen)
  if seen[values] then
    error(("steps: %s and %s are one table, but would be restored as two"):format(seen[values],
      path), 0)
  end
  seen[values] = path
  for key, value in pairs(values) do
    local name = path .. "." .. tostring(key)
    local text = type(key) == "string" and key ~= "" and key ~= "." and not key:find "[/#?%z]"
    if math.type(key) ~= "integer" and not text then
      error(("steps: %s: keys are integers, or strings other than '.' without /, # and ?"):format(
        name), 0)
    elseif has_state(value) or is_stream(value) then
      error(("steps: %s has methods of its own: pass it to steps under a separate name"):format(
        name), 0)
    elseif type(value) == "table" then
      check_values(value, name, seen)
    elseif not simple[type(value)] and not is_tensor(value) then
      error(("steps: %s is a %s, which a checkpoint cannot hold"):format(name, type(value)), 0)
    end
  end
end

-- Copies the contents of a table into another one. Nested tables keep their identity.
local function refill(values, from)
  for key in pairs(values) do
    if from[key] == nil then values[key] = nil end
  end
  for key, value in pairs(from) do
    if type(value) == "table" and type(values[key]) == "table" then
      refill(values[key], value)
    else
      values[key] = value
    end
  end
end

-- Returns a part whose state is the contents of the table of that name.
local function table_part(values, name)
  local function state()
    check_values(values, name, {})
    return values
  end
  return { state = state, load = function(_, from) refill(values, from) end }
end

-- Returns a part whose state is the state of a random stream.
local function stream_part(stream)
  local function state()
    local key, offset = stream:state()
    return { key = key, offset = offset }
  end
  return { state = state, load = function(_, from) stream:set_state(from.key, from.offset) end }
end

local function check_extra(extra)
  if type(extra) ~= "table" or has_state(extra) then
    error("steps: the last argument is a table { name = object }", 4)
  end
  local seen = {}
  for name, part in pairs(extra) do
    if type(name) ~= "string" then
      error(("steps: the last argument needs names: { name = object }, not [%s]"):format(
        tostring(name)), 4)
    elseif reserved[name] then
      error(("steps: '%s' is a reserved name; choose another"):format(name), 4)
    elseif type(part) == "table" and not has_state(part) then
      local ok, why = pcall(check_values, part, name, seen)
      if not ok then error(why, 4) end
    end
  end
end

-- Returns the parts by their names. model and opt (or nil) have methods state() and load(state);
-- data may have them. extra (or nil) maps names to more objects: with these methods, random
-- streams, or tables of numbers, strings, booleans, tensors and tables. Errors are at the line of
-- the caller's caller.
function checkpoint_parts.of(model, opt, data, extra)
  local list = { model = model, optim = opt, data = has_state(data) and data or nil }
  if extra ~= nil then check_extra(extra) end
  for name, part in pairs(extra or {}) do
    list[name] = is_stream(part) and stream_part(part)
      or type(part) == "table" and not has_state(part) and table_part(part, name) or part
  end
  for name, part in pairs(list) do
    if not has_state(part) then
      local fits = simple[type(part)] or is_tensor(part)
      error(("steps: '%s' needs methods state() and load(state)%s"):format(name, fits
        and extra and extra[name] ~= nil and ", or a table around it: { value }" or ""), 3)
    end
  end
  return list
end

return checkpoint_parts
