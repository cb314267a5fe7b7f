-- store/stored_json.lua: parses the JSON of the store with SQLite. Each function takes the Records
-- first.
local errors = require "toeplab.base.errors"

local stored_json = {}

local function refuse(self, what, text)
  errors.raise(errors.STORAGE, "%s/runs.db: expected %s, found: %s", self.folder, what,
    text:sub(1, 200))
end

-- Parses a configuration into a Lua table.
function stored_json.config(self, text)
  local value = stored_json.decode(self, text)
  return type(value) == "table" and value or refuse(self, "a configuration", text)
end

-- The Lua types of these members of stored JSON objects, where they occur. None of them may hold
-- nested tables.
local members = { label = "string", environment = "table", build = "table", data = "table",
  overrides = "table", axes = "table", columns = "table", rows = "table|string", trials = "number",
  answers = "table|string", tuned = "string", changes = "string", rule = "string",
  with = "table", metric = "string", better = "table", title = "string", labels = "table",
  tex = "table", success = "table" }

-- Parses a JSON object into a Lua table; raises if it is not an object, or has members of wrong
-- types.
function stored_json.object(self, text)
  local value = stored_json.decode(self, text)
  local good = type(value) == "table"
  for name, kind in pairs(good and members or {}) do
    good = good and (value[name] == nil or kind:find(type(value[name]), 1, true) ~= nil)
    for _, v in pairs(good and type(value[name]) == "table" and value[name] or {}) do
      good = good and type(v) ~= "table"
    end
  end
  return good and value or refuse(self, "an object that this program has written", text)
end

-- Parses JSON into a Lua value; objects and arrays become tables.
function stored_json.decode(self, text)
  local nodes, root = {}, nil
  local sql = "SELECT id, parent, key, type, atom FROM json_tree(?) ORDER BY id"
  for _, row in ipairs(self:rows(sql, { text })) do
    local value = row.atom
    if row.type == "object" or row.type == "array" then value = {} end
    if row.type == "true" or row.type == "false" then value = row.type == "true" end
    nodes[row.id] = value
    local parent = row.parent and nodes[row.parent]
    if parent then
      parent[math.type(row.key) == "integer" and row.key + 1 or row.key] = value
    else
      root = value
    end
  end
  return root
end

return stored_json
