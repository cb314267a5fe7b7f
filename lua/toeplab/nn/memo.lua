-- nn/memo.lua -- what is read from a tensor that hardly ever changes: a card would be waited for at
-- every step.

local memo = {}

local watched -- while watch runs: tensor -> its version when it was asked about

-- read(t) as a function that asks read again only once t has been written.
function memo.of(read)
  local known = setmetatable({}, { __mode = "k" })
  return function(t)
    local entry, version = known[t], t:version()
    if not entry or entry.version ~= version then
      entry = { version = version, value = read(t) }
      known[t] = entry
    end
    if watched then watched[t] = version end
    return entry.value
  end
end

-- Runs f(...) and returns the tensors that were asked about meanwhile, with their versions, and
-- what pcall does.
function memo.watch(f, ...)
  local outer, mine = watched, {}
  watched = mine
  local results = table.pack(pcall(f, ...))
  watched = outer
  return mine, table.unpack(results, 1, results.n)
end

-- Whether none of the tensors that watch returned has been written since.
function memo.same(asked)
  for t, version in next, asked do
    if t:version() ~= version then return false end
  end
  return true
end

return memo
