-- nn/kept.lua -- what modules compute for a length and need again: for the last few.

local KEPT = 4

-- The value of key in all, {} at first: make(...) if there is none, and then the oldest goes.
local function kept(all, key, make, ...)
  if not all.values then all.values, all.keys = {}, {} end
  local value = all.values[key]
  if value == nil then
    value = make(...)
    all.values[key] = value
    table.insert(all.keys, key)
    if #all.keys > KEPT then all.values[table.remove(all.keys, 1)] = nil end
  end
  return value
end

return kept
