-- synthetic/groups.lua: finite groups as multiplication tables, for the task of state tracking
-- (recall.lua). Element 0 is the identity.
local suggest = require "toeplab.base.suggest"

local groups = {}

-- Appends to list all orders of the integers of items, in lexicographic order.
local function permutations(items, prefix, list)
  if #items == 0 then list[#list + 1] = prefix end
  for i, item in ipairs(items) do
    local rest, longer = table.move(items, 1, #items, 1, {}), table.move(prefix, 1, #prefix, 1, {})
    table.remove(rest, i)
    longer[#longer + 1] = item
    permutations(rest, longer, list)
  end
  return list
end

local function is_even(p)
  local inversions = 0
  for i = 1, #p do
    for j = i + 1, #p do inversions = inversions + (p[i] > p[j] and 1 or 0) end
  end
  return inversions % 2 == 0
end

-- Returns the table of the permutations of n items, of the even ones alone if even is set:
-- table[a][b] is the element that first does a and then b.
local function of_permutations(n, even)
  local items, list, number = {}, {}, {}
  for i = 1, n do items[i] = i end
  for _, p in ipairs(permutations(items, {}, {})) do
    if not even or is_even(p) then
      number[table.concat(p, " ")], list[#list + 1] = #list, p
    end
  end
  local product = {}
  for a, p in ipairs(list) do
    product[a - 1] = {}
    for b, q in ipairs(list) do
      local both = {}
      for i = 1, n do both[i] = q[p[i]] end
      product[a - 1][b - 1] = number[table.concat(both, " ")]
    end
  end
  return product
end

local function cyclic(n)
  local product = {}
  for a = 0, n - 1 do
    product[a] = {}
    for b = 0, n - 1 do product[a][b] = (a + b) % n end
  end
  return product
end

-- Returns the multiplication table of a group and its order: "z2" (parity) to "z120", sums modulo
-- n; "s3" to "s5", permutations; "a4", "a5", even permutations. nil and the valid names for another
-- name.
function groups.table_of(name)
  local kind, n = name:match "^([zsa])(%d+)$"
  n = math.tointeger(tonumber(n))
  local product
  if kind == "z" and n >= 2 and n <= 120 then product = cyclic(n) end
  if kind == "s" and n >= 3 and n <= 5 then product = of_permutations(n) end
  if kind == "a" and n >= 4 and n <= 5 then product = of_permutations(n, true) end
  if not product then
    return nil, "must be z2 (parity) to z120, s3, s4, s5, a4 or a5"
  end
  return product, #product + 1
end

return suggest.strict("groups", groups)
