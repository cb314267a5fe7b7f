-- nn/mixers/states/hippo.lua: the HiPPO-LegS matrix in the basis that diagonalises its normal part,
-- for the initialisation of S4 and DSS.

local core = require "toeplab.core"

local hippo = {}

-- Returns the skew-symmetric S [size][size] with A + P P^T = -1/2 I + S, where A_jk is
-- -sqrt((2j+1)(2k+1)) for k < j and -(j+1) for k = j, and P_j = sqrt(j + 1/2) (Gu et al. 2022,
-- Efficiently modeling long sequences with structured state spaces, Appendix C).
local function skew(size)
  local s = {}
  for j = 1, size do
    s[j] = {}
    for k = 1, size do
      local half = math.sqrt((2 * j - 1) * (2 * k - 1)) / 2
      s[j][k] = k < j and -half or k > j and half or 0.0
    end
  end
  return s
end

local function times(s, u)
  local v = {}
  for j, row in ipairs(s) do
    local sum = 0.0
    for k, value in ipairs(row) do sum = sum + value * u[k] end
    v[j] = sum
  end
  return v
end

local function dot(u, v)
  local sum = 0.0
  for j, value in ipairs(u) do sum = sum + value * v[j] end
  return sum
end

local known = {}

-- Returns one {w=, u=, v=} for each pair of eigenvalues +-i w of S, for even size, from small to
-- large w: S u = w v and S v = -w u, with u and v of length 1. The singular values of S are the w,
-- each twice, so any left singular vector is a u, and v and w follow from it in float64. Because
-- LAPACK returns u in float32, u and v are exact to about 1e-6. The cost is one singular value
-- decomposition of size^3 operations for each size.
local function pairs_of(size)
  if known[size] then return known[size] end
  local s, list = skew(size), {}
  local columns = core.no_grad(function() return (core.svd(core.tensor(s))):transpose(1, 2) end)
    :totable()
  for m = 1, size // 2 do
    local u = columns[size + 1 - 2 * m]
    local length = math.sqrt(dot(u, u))
    for j = 1, size do u[j] = u[j] / length end
    local v = times(s, u)
    local w = math.sqrt(dot(v, v))
    for j = 1, size do v[j] = v[j] / w end
    list[m] = { w = w, u = u, v = v }
  end
  known[size] = list
  return list
end

-- Returns the imaginary parts w > 0 of the eigenvalues -1/2 +- i w, from small to large, for an
-- even size.
function hippo.frequencies(size)
  local w = {}
  for m, pair in ipairs(pairs_of(size)) do w[m] = pair.w end
  return w
end

-- Returns lists of the eigenvalues' imaginary parts -w < 0, and of P and of B_j = sqrt(2j+1) in the
-- basis of the eigenvectors (u + i v)/sqrt 2, as pairs {re, im}.
function hippo.normal_form(size)
  local low_rank, input = {}, {}
  for j = 1, size do
    low_rank[j], input[j] = math.sqrt(j - 0.5), math.sqrt(2 * j - 1)
  end
  local w, p, b, scale = {}, {}, {}, math.sqrt(0.5)
  for m, pair in ipairs(pairs_of(size)) do
    w[m] = -pair.w
    p[m] = { dot(pair.u, low_rank) * scale, -dot(pair.v, low_rank) * scale }
    b[m] = { dot(pair.u, input) * scale, -dot(pair.v, input) * scale }
  end
  return w, p, b
end

return hippo
