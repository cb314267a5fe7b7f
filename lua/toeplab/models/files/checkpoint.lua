-- models/files/checkpoint.lua: reads and writes the state of a running trial as one HDF5 file.
-- Tensors become datasets; numbers, strings and booleans become attributes; both are named by their
-- path in the nested state, such as "model/embed.weight".
local core = require "toeplab.core"

local checkpoint = {}

-- Returns one component of a path: integer keys are written "#3", because "/" separates components.
local function part(key)
  if math.type(key) == "integer" then return "#" .. key end
  if type(key) ~= "string" or key == "" or key:find("[/#?\0]") then
    error(("checkpoint: '%s' cannot be the name of a state"):format(tostring(key)), 0)
  end
  return key
end

-- within: the set of tables on the way to value, which detects cycles.
local function flatten(value, path, tensors, attrs, within)
  local kind = type(value)
  if kind == "table" then
    local empty = true
    if within[value] then
      error(("checkpoint: the state at '%s' contains itself and cannot be saved"):format(path), 0)
    end
    within[value] = true
    for key, item in pairs(value) do
      flatten(item, (path == "" and "" or path .. "/") .. part(key), tensors, attrs, within)
      empty = false
    end
    within[value] = nil
    if empty and path ~= "" then attrs[path .. "/?"] = 0 end
  elseif kind == "userdata" then
    tensors[#tensors + 1] = { path, value }
  elseif kind == "boolean" then
    attrs[path .. "?"] = value and 1 or 0
  elseif kind == "string" and value:find("\0", 1, true) then
    error(("checkpoint: the string at '%s' has a zero byte and cannot be saved"):format(path), 0)
  elseif kind == "number" or kind == "string" then
    attrs[path] = value
  else
    error(("checkpoint: the state at '%s' is a %s and cannot be saved"):format(path, kind), 0)
  end
end

-- Puts a value of `file` at a path into the tree. Raises if another value is there, or on the way.
local function place(file, tree, path, value)
  local node, parts = tree, {}
  for key in path:gmatch("[^/]+") do
    parts[#parts + 1] = key:find("^#") and math.tointeger(key:sub(2)) or key
  end
  local last = parts[#parts]
  for i = 1, #parts - 1 do
    if node[parts[i]] == nil then node[parts[i]] = {} end
    node = node[parts[i]]
    if type(node) ~= "table" then error(("%s: '%s' is below a value"):format(file, path), 0) end
  end
  if last == "?" then return end
  if node[last] ~= nil then error(("%s: '%s' is there twice"):format(file, path), 0) end
  node[last] = value
end

-- Writes the nested state to path atomically: whatever happens, the path holds the old file or the
-- complete new one.
function checkpoint.write(path, state)
  local tensors, attrs = {}, {}
  flatten(state, "", tensors, attrs, {})
  table.sort(tensors, function(a, b) return a[1] < b[1] end)
  core.h5_write(path, tensors, attrs)
end

local function read_child(name, file, group, child, tree)
  local path = group .. "/" .. child.name
  if child.kind ~= "group" then
    place(name, tree, path, file:read(path))
    return
  end
  for _, inner in ipairs(file:children(path)) do read_child(name, file, path, inner, tree) end
end

-- Returns the nested state that checkpoint.write wrote to path; with `only`, just the part of that
-- name.
function checkpoint.read(path, only)
  local file <close> = core.h5_open(path)
  local tree = {}
  for name, value in pairs(file:attrs("/")) do
    local wanted = not only or name:find(only .. "/", 1, true) == 1
    if wanted and name:find("[^/]%?$") then
      place(path, tree, name:sub(1, -2), value ~= 0)
    elseif wanted then
      place(path, tree, name, value)
    end
  end
  for _, child in ipairs(file:children("/")) do
    if not only or child.name == only then read_child(path, file, "", child, tree) end
  end
  return tree
end

-- Returns a digest of the file at path, small enough to compare checkpoints of any size: path in
-- the state -> {text=, tensor=}. The text of a tensor is its type, its shape and the sha256 of its
-- bits; the text of a number is its bits. The peak memory is one file plus its largest tensor.
function checkpoint.digest(path)
  local file <close> = core.h5_open(path)
  local digest = {}
  local function walk(group)
    for _, child in ipairs(file:children(group)) do
      local name = group .. "/" .. child.name
      if child.kind == "group" then
        walk(name)
      else
        local x <close> = file:read(name)
        digest[name:gsub("/#", "/"):sub(2)] = { text = tostring(x) .. " " .. core.sha256(x),
          tensor = true }
      end
    end
  end
  walk ""
  for name, value in pairs(file:attrs "/") do
    if not name:find "/%?$" then -- marks an empty table
      local text = math.type(value) == "float" and ("%a"):format(value) or tostring(value)
      digest[(("/" .. name):gsub("/#", "/"):gsub("%?$", ""):sub(2))] = { text = text }
    end
  end
  return digest
end

return checkpoint
