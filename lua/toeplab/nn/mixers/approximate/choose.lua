-- nn/mixers/approximate/choose.lua: sorts and selects on the CPU, in Lua, where the engine has no
-- operator: the choices of Reformer and Informer, through which no gradient flows.

local choose = {}

-- Returns the places, from 1 and ascending, of the count largest of values[first+1 .. first+n].
-- Among equal values the earlier are taken.
function choose.top(values, first, n, count)
  local sorted = table.move(values, first + 1, first + n, 1, {})
  table.sort(sorted)
  local least, places = sorted[n - count + 1], {}
  local ties = 0 -- how many values equal to the least are wanted
  for i = n - count + 1, n do
    if sorted[i] ~= least then break end
    ties = ties + 1
  end
  for i = 1, n do
    local value = values[first + i]
    if value > least then
      places[#places + 1] = i
    elseif value == least and ties > 0 then
      places[#places + 1], ties = i, ties - 1
    end
  end
  return places
end

-- Sorts the numbers base .. base+n-1 by keys[first+1 .. first+n], integers in 0..most; equal keys
-- stay in order. Appends them to order, of length first, and to back the place in order, from 0, of
-- each key. A counting sort: it takes n + most steps.
function choose.append_sorted(order, back, base, keys, first, n, most)
  local starts = {}
  for key = 0, most + 1 do starts[key] = first end
  for i = first + 1, first + n do
    local key = keys[i] + 1
    starts[key] = starts[key] + 1
    order[i] = 0 -- the table stays an array if it is filled in order
  end
  for key = 1, most + 1 do starts[key] = starts[key] + starts[key - 1] - first end
  for i = 1, n do
    local key = keys[first + i]
    local at = starts[key]
    order[at + 1], back[first + i], starts[key] = base + i - 1, at, at + 1
  end
end

return choose
