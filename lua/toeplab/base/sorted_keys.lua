-- base/sorted_keys.lua: sorted_keys(t) returns the string keys of a table in alphabetical order.
-- Unlike the order of pairs, this is the same in each run.

return function(t)
  local keys = {}
  for key in pairs(t) do
    if type(key) == "string" then keys[#keys + 1] = key end
  end
  table.sort(keys)
  return keys
end
