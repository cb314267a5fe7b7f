-- verify/definition.lua: the matrices of operators whose coefficients are not by lag.
local core = require "toeplab.core"

local definition = {}

-- Returns the map from a response at the frequencies pi m / half, m = 0..half, to the kernel by
-- lag: [lags,half+1] for its real parts and, unless causal, another for its imaginary parts. It is
-- the inverse real transform of length 2 half, of which a causal kernel takes t_0 = r_0, t_k = 2
-- r_k (SKI, Section 3.3).
function definition.frequency(half, n, causal)
  local size, cosines, sines = 2 * half, {}, {}
  for k = causal and 0 or 1 - n, n - 1 do
    local c, s = {}, {}
    for m = 0, half do
      local weight = (m == 0 or m == half) and 1 or 2
      if causal and k > 0 then weight = 2 * weight end
      local angle = 2 * math.pi * (m * k % size) / size
      c[m + 1] = weight * math.cos(angle) / size
      s[m + 1] = (m == 0 or m == half) and 0 or -weight * math.sin(angle) / size
    end
    table.insert(cosines, c)
    table.insert(sines, s)
  end
  return core.tensor(cosines), core.tensor(sines)
end

-- Returns the rows of the coefficients that hold lag a - b of inducing points (SPEC 2.3's k(0)): a
-- list of rows that share the weight; empty if there is no coefficient.
local function rows_of(lag, r, mean, causal)
  local zero = causal and 0 or r - 1
  if lag < -zero then return {} end
  if not mean then return { zero + lag + 1 } end
  if lag == 0 then return { zero + 1, zero + 2 } end
  return { zero + lag + (lag > 0 and 2 or 1) }
end

-- Returns the two non-zeros of each row of W, for linear interpolation: {{inducing point, weight},
-- ...}. Token i is at i, inducing point a at a span / (r - 1).
local function interpolation(n, r, span)
  local w = {}
  for i = 0, n - 1 do
    local place = span > 0 and i * (r - 1) / span or 0.0
    local a = math.min(place // 1 | 0, r - 2)
    w[i] = { { a, a + 1 - place }, { a + 1, place - a } }
  end
  return w
end

-- Returns the definition of backend ski (SKI, Algorithm 1) with its options inducing, taps, span,
-- zero (values may be strings): the matrices [n n,points] and [n n,taps] that give T; nil for
-- options that it does not define.
function definition.ski(o, n, causal)
  for _, other in ipairs { "interpolation", "parts", "as_published" } do
    if o[other] then return nil end
  end
  local r, taps, mean = math.tointeger(o.inducing), math.tointeger(o.taps), o.zero == "mean"
  local count = (causal and r or 2 * r - 1) + (mean and 1 or 0)
  local w = interpolation(n, r, o.span == "n" and n or n - 1)
  local low, sparse, origin = {}, {}, causal and 0 or taps // 2
  for i = 0, n - 1 do
    for j = 0, n - 1 do
      local row, band = {}, {}
      for k = 1, count do row[k] = 0.0 end
      for k = 1, taps do band[k] = i - j == k - 1 - origin and 1 or 0 end
      for _, p in ipairs((not causal or j <= i) and w[i] or {}) do
        for _, q in ipairs(w[j]) do
          local rows = rows_of(p[1] - q[1], r, mean, causal)
          for _, k in ipairs(rows) do row[k] = row[k] + p[2] * q[2] / #rows end
        end
      end
      table.insert(low, row)
      table.insert(sparse, band)
    end
  end
  return { core.tensor(low):transpose(1, 2), core.tensor(sparse):transpose(1, 2) }
end

return definition
