-- nn/shapes.lua: makes the constant 0/1 matrices that layers share, and adds rows of zeros.

local core = require "toeplab.core"

local shapes = {}

-- Returns 1 where the integers x are at least 0, and 0 elsewhere.
function shapes.step(x)
  return core.min(core.relu(core.affine(x, 1, 1)), 1)
end

-- Returns 1 where the integers x are 0, and 0 elsewhere.
function shapes.impulse(x)
  return core.relu(core.affine(core.abs(x), -1, 1))
end

-- Returns i - j: [n,n].
local function differences(n)
  local at = core.range(0, n - 1)
  return at:reshape(n, 1) - at:reshape(1, n)
end

-- Returns 1 on and below the diagonal, and 0 above it: [n,n].
function shapes.lower(n) return shapes.step(differences(n)) end

-- Returns 1 on the diagonal, and 0 elsewhere: [n,n].
function shapes.identity(n) return shapes.impulse(differences(n)) end

-- Returns x with rows of zeros on an axis: `before` rows first, and `after` rows last.
function shapes.pad(x, axis, before, after)
  local parts = { x }
  local function zeros(count)
    local shape = x:shape()
    shape[axis] = count
    return core.zeros(shape)
  end
  if before > 0 then table.insert(parts, 1, zeros(before)) end
  if after > 0 then parts[#parts + 1] = zeros(after) end
  return #parts > 1 and core.concat(parts, axis) or x
end

-- Appends rows of zeros to x until the size of the axis is a multiple of size.
function shapes.fill(x, axis, size)
  return shapes.pad(x, axis, 0, -x:dim(axis) % size)
end

-- Returns the channels part.first .. part.first+part.count-1 of t, whose axis holds one or more
-- blocks of part.of channels; part nil: t itself.
function shapes.part(t, axis, part)
  if not part then return t end
  local blocks = {}
  for k = 0, t:dim(axis) // part.of - 1 do
    blocks[k + 1] = t:narrow(axis, k * part.of + part.first, part.count)
  end
  return #blocks > 1 and core.concat(blocks, axis) or blocks[1]
end

return shapes
