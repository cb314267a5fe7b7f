-- nn/cache.lua: two small caches for modules. One holds what a module computes from a length, the
-- other what it reads from a tensor that is rarely written. nn/coefficients.lua builds the cache of
-- a Toeplitz operator on the first.

local cache = {}

local SIZE = 4 -- training uses one length, or a few; evaluation a few more

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

-- make(key) as a callable that holds its values for the last four new keys. A value may depend on
-- nothing but the key and on what never changes. keys: those held, the oldest first.
function cache.recent(make)
  return setmetatable({ make = make, values = {}, keys = {} }, Recent)
end

-- read(tensor) as a function that reads again only once the tensor has been written: reading a
-- number from a GPU waits for all that was launched before. The value is freed with the tensor.
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
