-- nn/mixers/states/spectral.lua: computes the filters of spectral filtering, the first eigenvectors
-- of a Hankel matrix, in float64.

local spectral = {}

-- Z_ij = 2/(s^3 - s), s = i + j, is the integral of w_i(a) w_j(a) da over 0..1 with w_i(a) = (1-a)
-- a^(i-1). By a = 1/(1+exp(-u)) and the trapezoidal rule, which converges exponentially, Z = F F^T
-- with F [length,nodes]. STEP and the range of u make the error about 1e-9 of the largest
-- eigenvalue, so that the filters, which are used times the fourth root of their eigenvalue, are
-- exact in float32 down to eigenvalues of 1e-8 of it.
local STEP, FROM = 0.42, -23

-- Returns a list of {log a, scale}, for F_iq = scale_q exp((i-1) log a_q).
local function nodes(length)
  local list, last = {}, 8 + math.log(2 * length)
  for q = 0, math.ceil((last - FROM) / STEP) do
    local u = FROM + q * STEP
    local log_a = u < 0 and u - math.log(1 + math.exp(u)) or -math.log(1 + math.exp(-u))
    local rest = 1 / (1 + math.exp(u)) -- 1 - a
    list[q + 1] = { log_a, rest * math.sqrt(STEP * rest * math.exp(log_a)) }
  end
  return list
end

-- Returns F^T F, whose entries are geometric sums.
local function gram(list, length)
  local g = {}
  for p, a in ipairs(list) do
    g[p] = {}
    for q, b in ipairs(list) do
      local log = a[1] + b[1]
      local small = -math.exp(log) + 1 -- log is below 0, at most by rounding 0
      local ratio = log > -1e-5 and -log * (1 + log / 2) or small
      local top = length * log
      local whole = top > -1e-5 and -top * (1 + top / 2) or 1 - math.exp(top)
      g[p][q] = a[2] * b[2] * whole / ratio
    end
  end
  return g
end

-- Turns rows and columns p, q of the symmetric g, and the rows p, q of v, so that g_pq becomes 0.
local function rotate(g, v, p, q)
  local theta = (g[q][q] - g[p][p]) / (2 * g[p][q])
  local t = (theta < 0 and -1 or 1) / (math.abs(theta) + math.sqrt(theta * theta + 1))
  local c = 1 / math.sqrt(t * t + 1)
  local s = t * c
  local gp, gq, vp, vq = g[p], g[q], v[p], v[q]
  for k = 1, #g do
    gp[k], gq[k] = c * gp[k] - s * gq[k], s * gp[k] + c * gq[k]
    vp[k], vq[k] = c * vp[k] - s * vq[k], s * vp[k] + c * vq[k]
  end
  for k = 1, #g do
    local row = g[k]
    row[p], row[q] = c * row[p] - s * row[q], s * row[p] + c * row[q]
  end
end

-- Returns the eigenvalues of the symmetric g and its eigenvectors, the rows of the second result
-- (Jacobi's method). Overwrites g.
local function eigen(g)
  local v, largest = {}, 0
  for p = 1, #g do
    v[p] = {}
    for q = 1, #g do v[p][q] = p == q and 1.0 or 0.0 end
    largest = math.max(largest, g[p][p])
  end
  repeat
    local turned = false
    for p = 1, #g - 1 do
      for q = p + 1, #g do
        if math.abs(g[p][q]) > 1e-15 * largest then
          rotate(g, v, p, q)
          turned = true
        end
      end
    end
  until not turned
  return v
end

local LEAST = 1e-14 -- of the largest eigenvalue; below it float64 resolves no eigenvector

local function compute(length, count)
  local list = nodes(length)
  local g = gram(list, length)
  local v, order, filters, values = eigen(g), {}, {}, {}
  for p = 1, #g do order[p] = p end
  table.sort(order, function(p, q) return g[p][p] > g[q][q] end)
  for k = 1, count do
    local value, vector, filter = g[order[k]][order[k]], v[order[k]], {}
    local known = value > LEAST * g[order[1]][order[1]]
    for i = 1, length do
      local sum = 0.0 -- the product F v, which is sqrt(value) times the eigenvector
      for q = 1, known and #list or 0 do
        sum = sum + list[q][2] * math.exp((i - 1) * list[q][1]) * vector[q]
      end
      filter[i] = known and sum * value ^ -0.25 or 0.0
    end
    filters[k], values[k] = filter, value
  end
  return { filters, values }
end

local done = {}

-- Returns filters [count][length], where filter k is the eigenvector of Z of the k-th largest
-- eigenvalue times its fourth root, and the list of these eigenvalues. A filter is 0 where the
-- eigenvalue is below 1e-14 of the largest. The cost is about 10 sweeps over a matrix of 90 to 100
-- rows and length times count times 100, together 0.2 s for 512 and 1.2 s for 4,096 positions, once
-- for each length and count.
function spectral.filters(length, count)
  local key = length .. " " .. count
  done[key] = done[key] or compute(length, count)
  return table.unpack(done[key])
end

return spectral
