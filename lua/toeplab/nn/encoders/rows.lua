-- nn/encoders/rows.lua: helpers for encoders with a table: place its rows at lags, or interpolate
-- between them.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local shapes = require "toeplab.nn.shapes"

local rows = {}

local ends = cache.reading(function(points)
  return { math.tointeger(points:get(1)), math.tointeger(points:get(points:dim(1))) }
end)

-- Returns the first and the last lag of points, which must be consecutive lags.
function rows.span(points) return table.unpack(ends(points)) end

-- Returns [p,dim]: row k - first of t [m,dim] at each lag k of points [p], and 0 at lags for which
-- t has no row.
function rows.place(t, first, points)
  local from, to = rows.span(points)
  local low, high = math.max(first, from), math.min(first + t:dim(1) - 1, to)
  if low > high then return core.zeros(to - from + 1, t:dim(2)) end
  return shapes.pad(t:narrow(1, low - first + 1, high - low + 1), 1, low - from, to - high)
end

-- Returns, for interpolate, where points [p] fall between the rows of a table: at(point) returns
-- the indices of two rows, from 0, and the weight of the second.
function rows.between(points, at)
  local a, b, share = {}, {}, {}
  for i, point in ipairs(points:totable()) do a[i], b[i], share[i] = at(point) end
  local second = core.tensor(share):reshape(-1, 1)
  return { a = core.ids(a), b = core.ids(b), first = core.affine(second, -1, 1), second = second }
end

-- Interpolates linearly between rows of t [m,dim] at the places from rows.between: [p,dim].
function rows.interpolate(t, places)
  return t:gather(places.a) * places.first + t:gather(places.b) * places.second
end

-- Returns the two rows around position x (from 0) in an even grid of count rows, and the weight of
-- the second. Positions outside of the grid are moved to its ends.
function rows.cell(x, count)
  x = math.min(math.max(x, 0.0), count - 1.0)
  local low = math.min(x // 1 | 0, math.max(count - 2, 0))
  return low, math.min(low + 1, count - 1), x - low
end

return rows
