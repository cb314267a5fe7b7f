-- base/overlay.lua: overlay(base, more, ...) returns a new table with the keys of all these tables;
-- later ones override earlier ones. nil is an empty table.

return function(...)
  local all = {}
  for i = 1, select("#", ...) do
    for key, value in pairs(select(i, ...) or {}) do all[key] = value end
  end
  return all
end
