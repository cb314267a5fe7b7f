-- numbers.lua: numbers that carry their gradients, and nested tables of them, for the scripts that
-- compute what is expected of the library: every number a float64.

-- ---- Numbers with gradients ---------------------------------------------------------------------

local tape = {} -- the numbers that were computed, in order
local Number = {}

local function is(x) return getmetatable(x) == Number end

local function leaf(v) return setmetatable({ v = v, g = 0.0 }, Number) end

-- A number computed from a and b (or a alone) with the slopes da and db.
local function made(v, a, da, b, db)
  local t = leaf(v)
  t.a, t.da, t.b, t.db = is(a) and a or nil, da, is(b) and b or nil, db
  tape[#tape + 1] = t
  return t
end

local function val(x) return is(x) and x.v or x end

Number.__add = function(a, b) return made(val(a) + val(b), a, 1, b, 1) end
Number.__sub = function(a, b) return made(val(a) - val(b), a, 1, b, -1) end
Number.__mul = function(a, b) return made(val(a) * val(b), a, val(b), b, val(a)) end
Number.__div = function(a, b)
  return made(val(a) / val(b), a, 1 / val(b), b, -val(a) / val(b) ^ 2)
end

local function exp(x) return made(math.exp(x.v), x, math.exp(x.v)) end
local function log(x) return made(math.log(x.v), x, 1 / x.v) end
local function sqrt(x) return made(math.sqrt(x.v), x, 0.5 / math.sqrt(x.v)) end
local function relu(x) return made(math.max(x.v, 0), x, x.v > 0 and 1 or 0) end

local function silu(x)
  local s = 1 / (1 + math.exp(-x.v))
  return made(x.v * s, x, s * (1 + x.v * (1 - s)))
end

local function backward(root)
  root.g = 1.0
  for i = #tape, 1, -1 do
    local t = tape[i]
    if t.a then t.a.g = t.a.g + t.g * t.da end
    if t.b then t.b.g = t.b.g + t.g * t.db end
  end
  tape = {}
end

-- ---- Arrays -------------------------------------------------------------------------------------

local seed = 4

-- The next number between -1 and 1 of a linear congruential generator, as float32.
local function random()
  seed = seed * 6364136223846793005 + 1442695040888963407
  return (string.unpack("f", string.pack("f", (seed >> 40) / 2 ^ 23 - 1)))
end

-- A nested table of the shape, of fill() in each place.
local function array(shape, fill, axis)
  axis = axis or 1
  if axis > #shape then return fill() end
  local t = {}
  for i = 1, shape[axis] do t[i] = array(shape, fill, axis + 1) end
  return t
end

local function zip(f, a, ...)
  if is(a) or type(a) == "number" then return f(a, ...) end
  local t = {}
  for i = 1, #a do
    local others = {}
    for j, b in ipairs { ... } do others[j] = b[i] end
    t[i] = zip(f, a[i], table.unpack(others))
  end
  return t
end

local function leaves(...) return array({ ... }, function() return leaf(random()) end) end
local function values(a) return zip(val, a) end
local function gradients(a) return zip(function(x) return x.g end, a) end

-- The sum of a * b over all places.
local function dot(a, b)
  local sum = leaf(0.0)
  zip(function(x, y) sum = sum + x * y end, a, b)
  return sum
end

return {
  leaf = leaf, exp = exp, log = log, sqrt = sqrt, relu = relu, silu = silu, backward = backward,
  random = random, array = array, zip = zip, leaves = leaves, values = values,
  gradients = gradients, dot = dot,
}
