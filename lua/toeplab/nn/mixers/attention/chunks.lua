-- nn/mixers/attention/chunks.lua: computes attention without a softmax in time linear in n, by
-- chunks of positions: products within a chunk, and a running sum over earlier chunks.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local shapes = require "toeplab.nn.shapes"

local chunks = {}

-- Chosen such that the products within chunks, of n * SIZE numbers, and the sums, of n / SIZE
-- matrices of a head's size, both remain small beside q, k and v.
local SIZE = 64

-- Returns for each chunk the sum over all earlier chunks of k^T v.
--   k [..,N,c,m]   v [..,N,c,w]   result [..,N,m,w]
function chunks.before(k, v)
  local states = core.matmul(k, v, true)
  local axis = states:ndim() - 2
  return shapes.pad(states:narrow(axis, 1, states:dim(axis) - 1), axis, 1, 0):cumsum(axis)
end

-- [b,h,n,m] -> [b,h,N,c,m], filled with zeros
local function cut(x, size)
  local b, h, m = x:dim(1), x:dim(2), x:dim(4)
  return shapes.fill(x, 3, size):reshape(b, h, -1, size, m)
end

-- Returns sum over j <= i of (q_i . k_j) v_j in chunks of at most size positions. mask is
-- shapes.lower(size).   q, k [b,h,n,m]   v, result [b,h,n,w]
local function causal_sum(q, k, v, size, mask)
  local b, h, n, w = q:dim(1), q:dim(2), q:dim(3), v:dim(4)
  q, k, v = cut(q, size), cut(k, size), cut(v, size)
  local y = core.matmul(core.matmul(q, k, false, true) * mask, v)
  if n > size then y = y + core.matmul(q, chunks.before(k, v)) end
  return y:reshape(b, h, -1, w):narrow(3, 1, n)
end

-- Returns a function (q, k, v) that returns sum_j (q_i . k_j) v_j over all j, or over j <= i if
-- causal, in time n.   q, k [b,h,n,m]   v, result [b,h,n,w]
function chunks.summer(causal, size)
  size = size or SIZE
  local lower = cache.recent(shapes.lower)
  return function(q, k, v)
    if not causal then return core.matmul(q, core.matmul(k, v, true)) end
    local c = math.min(size, q:dim(3))
    return causal_sum(q, k, v, c, lower(c))
  end
end

-- Returns sum(q, k, v) with each row divided by its sum of weights q_i . k_j, or by least, unless
-- nil, where that is larger; the gradient of such a denominator is 0. sum is made by chunks.summer.
--   q, k [b,h,n,m]   v, result [b,h,n,w]
function chunks.normalised(sum, q, k, v, least)
  local w = v:dim(4)
  local shape = v:shape()
  shape[4] = 1
  local y = sum(q, k, core.concat({ v, core.ones(shape) }, 4))
  local total = y:narrow(4, w + 1, 1)
  return y:narrow(4, 1, w) / (least and core.max(total, least) or total)
end

-- Returns the FLOP of a summer's function for one sequence, and how many numbers are stored: the
-- features, the products within chunks, the states, and the results.
--   m: the width of q and k per head   w: v's, which normalised() increases by 1
function chunks.cost(causal, n, heads, m, w)
  local c = math.min(SIZE, n)
  local flop, numbers = 0.0, 1.0 * n * (2 * m + w)
  if not causal or n > c then
    local states = causal and -(-n // c) or 1
    flop, numbers = 4.0 * n * m * w, numbers + 1.0 * states * m * w
  end
  if causal then flop, numbers = flop + 2.0 * n * c * (m + w), numbers + 1.0 * n * c end
  return heads * flop, heads * numbers
end

return chunks
