-- base/suggest.lua: suggests names for a mistyped word by edit distance, and makes tables in which
-- reading an absent name is an error.
local sorted_keys = require "toeplab.base.sorted_keys"

local suggest = {}

-- Returns the number of insertions, deletions, replacements and swaps of neighbours that turn a
-- into b (optimal string alignment distance).
function suggest.distance(a, b)
  local before, last = nil, {}
  for j = 0, #b do last[j] = j end
  for i = 1, #a do
    local row = { [0] = i }
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      row[j] = math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (same and 0 or 1))
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        row[j] = math.min(row[j], before[j - 2] + 1)
      end
    end
    before, last = last, row
  end
  return last[#b]
end

local MOST = 3 -- equally near names in a hint

-- Names in published code, of which the nearest of ours in letters is another function.
local elsewhere = { ["1+elu"] = "elu1", ["2+elu"] = "elu2" }

-- Returns the names nearest to word, equally near ones in the order of the list. A near name
-- differs in at most a third of the letters, or 2, but not in all.
local function all_nearest(word, names)
  word = tostring(word)
  local least, best, seen = math.max(2, #word // 3), {}, {}
  for _, name in ipairs(names) do
    if name == elsewhere[word] then return { name } end
    local d = suggest.distance(word:lower(), name:lower())
    if d < math.max(#word, #name) and d <= least and not seen[name] then
      if d < least then least, best = d, {} end
      seen[name], best[#best + 1] = true, name
    end
  end
  return best
end

-- Returns the name nearest to word, the first one among equally near ones; nil if none is near.
function suggest.nearest(word, names) return all_nearest(word, names)[1] end

-- Returns the end of a message that lists the names anyway: "; did you mean 'layers'?" or, if no
-- name is near, "".
function suggest.near(word, names)
  local name = suggest.nearest(word, names)
  return name and ("; did you mean '%s'?"):format(name) or ""
end

-- Returns the end of a message: "; did you mean 'layers'?", "; did you mean 'sin' or 'sum'?" of
-- equally near names or, if no name is near, "; known: a, b".
function suggest.hint(word, names)
  local near = all_nearest(word, names)
  if #near > 0 then
    return ("; did you mean '%s'?"):format(table.concat(near, "' or '", 1, math.min(#near, MOST)))
  end
  local sorted, seen = {}, {}
  for _, known in ipairs(names) do
    if not seen[known] then seen[known], sorted[#sorted + 1] = true, known end
  end
  table.sort(sorted)
  return #sorted > 0 and "; known: " .. table.concat(sorted, ", ") or ""
end

-- Returns name if it is among names; else nil and a message with a hint. what: the kind of name,
-- e.g. "backend".
function suggest.choose(what, name, names)
  for _, known in ipairs(names) do
    if known == name then return name end
  end
  return nil, ("there is no %s '%s'%s (present: %s)"):format(what, tostring(name),
    suggest.near(name, names), table.concat(names, ", "))
end

-- Makes it an error to read an absent key of t, and returns t: "what has no 'key'; did you mean
-- 'kay'?" hint, if given: a function of the key that returns the end of the message, or nil.
function suggest.strict(what, t, hint)
  return setmetatable(t, {
    __index = function(_, key)
      error(("%s has no '%s'%s"):format(what, tostring(key), hint and hint(key)
        or suggest.hint(key, sorted_keys(t))), 2)
    end,
  })
end

return suggest
