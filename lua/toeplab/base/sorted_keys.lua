-- base/sorted_keys.lua: sorted_keys(t) returns the string keys of a table in alphabetical order,
-- for loops and texts that must be the same in each run, which the order of pairs is not.

return function(t)
  local keys = {}
  for key in pairs(t) do
    if type(key) == "string" then keys[#keys + 1] = key end
  end
  table.sort(keys)
  return keys
end
