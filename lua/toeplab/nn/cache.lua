-- nn/cache.lua: defines two small caches for modules: one for values that a module computes from a
-- sequence length, one for values that it reads from a tensor that is rarely written.

local cache = {}

local SIZE = 4 -- training and evaluation together use only a few lengths

local Recent = {}
Recent.__index = Recent

function Recent:__call(key)
  local value = self.values[key]
  if value == nil then
    value = self.make(key)
    self.values[key] = value
    table.insert(self.keys, key)
    if #self.keys > SIZE then self.values[table.remove(self.keys, 1)] = nil end
  end
  return value
end

-- Returns a callable that caches make(key) for the last four new keys. The value must depend on the
-- key alone. The field keys of the result lists the cached keys, the oldest first.
function cache.recent(make)
  return setmetatable({ make = make, values = {}, keys = {} }, Recent)
end

-- Returns a function that caches read(tensor) until the tensor is written again, because reading a
-- number from a GPU waits for all kernels launched before. The value is freed with the tensor.
function cache.reading(read)
  local entries = setmetatable({}, { __mode = "k" })
  return function(t)
    local entry, version = entries[t], t:version()
    if not entry or entry.version ~= version then
      entry = { version = version, value = read(t) }
      entries[t] = entry
    end
    return entry.value
  end
end

return cache
