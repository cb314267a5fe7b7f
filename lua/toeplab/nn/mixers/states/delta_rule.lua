-- nn/mixers/states/delta_rule.lua: computes states that a delta rule updates, by matrix products
-- within chunks of positions.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local shapes = require "toeplab.nn.shapes"

local delta_rule = {}

local CHUNK = 32 -- a power of two

-- Returns matrices of a chunk of size positions: lower [size,size], 1 on and below the diagonal;
-- levels, whose i-th is 1 where a row is in the second half and a column in the first half of the
-- same 2^i positions.
local function matrices(size)
  local levels, s, rows = {}, 1, {}
  repeat
    for t = 0, size - 1 do
      local row = {}
      for i = 0, size - 1 do
        row[i + 1] = t // (2 * s) == i // (2 * s) and t // s % 2 == 1 and i // s % 2 == 0 and 1.0
          or 0.0
      end
      rows[t + 1] = row
    end
    levels[#levels + 1], s = core.tensor(rows), 2 * s
  until s >= size
  return { lower = shapes.lower(size), identity = shapes.identity(size), levels = levels }
end

-- Returns a cache of the matrices of a chunk by its size, for delta_rule.apply.
function delta_rule.cache()
  return cache.recent(function(size) return core.no_grad(matrices, size) end)
end

-- Returns (I + A)^-1 for matrices A [..,size,size], of which only the part below the diagonal
-- counts. The inverses of the two halves of a block give the block's inverse: [X 0; -Y L X  Y]. A
-- series of powers would work too, but its terms are as large as 10^8 where keys repeat.
local function inverse(a, of)
  local x = of.identity - a * of.levels[1]
  for i = 2, #of.levels do
    x = x - core.matmul(core.matmul(x, a * of.levels[i]), x)
  end
  return x
end

-- Returns x [b,n,h,w] by chunks, [b h,chunks,size,w]; positions that are missing are zeros.
local function cut(x, size)
  local b, h, w = x:dim(1), x:dim(3), x:dim(4)
  return shapes.fill(x:permute { 1, 3, 2, 4 }, 3, size):reshape(b * h, -1, size, w)
end

-- For each head, with the state S [m,w] and S_0 = 0 or `state`:
--   S_t = e^(g_t) S' + beta_t k_t (v_t - S'^T k_t)^T,  S' = e^(g_t) S_(t-1),  y_t = S_t^T q_t,
-- The state decays; then the value stored under key k_t moves by the fraction beta_t towards v_t.
--   q, k [b,n,h,m]   v, y [b,n,h,w]   beta [b,n,h,1]   g [b,n,h,1], or nil, no decay
--   state [b,h,m,w], or nil; of_size: delta_rule.cache()
-- Returns y and the last state. Within a chunk the values v_t - S'^T k_t solve a triangular system,
-- so that a position takes products with matrices of CHUNK rows, and only the state at the end of a
-- chunk is passed on (Yang et al. 2024, Parallelizing linear transformers with the delta rule,
-- Sec. 3; with decay: Yang et al. 2025, Gated delta networks, Sec. 3.3).
function delta_rule.apply(of_size, q, k, v, beta, g, state)
  local b, n, h, w = v:dim(1), v:dim(2), v:dim(3), v:dim(4)
  local size = 1
  while size < math.min(n, CHUNK) do size = 2 * size end
  local of = of_size(size)
  q, k, v, beta = cut(q, size), cut(k, size), cut(v, size), cut(beta, size)
  local within, since, last = of.lower, nil, nil -- decays between positions, and from the start
  if g then
    local sum = cut(g, size):cumsum(3) -- [b h,chunks,size,1]
    within = core.exp((sum - sum:permute { 1, 2, 4, 3 }) * of.lower) * of.lower
    since = core.exp(sum)
    last = core.exp(sum:narrow(3, size, 1) - sum)
  end
  local solve = inverse(core.matmul(k, k, false, true) * within * beta, of)
  local scores = core.matmul(q, k, false, true) * within
  local values = core.matmul(solve, v * beta)
  local seen = core.matmul(solve, since and k * (beta * since) or k * beta)
  if since then q, k = q * since, k * last end
  local function of_chunk(x, c) return x:narrow(2, c, 1):reshape(b * h, size, -1) end
  local list, shape = {}, { b, h, k:dim(4), w }
  state = state and state:reshape(b * h, -1, w)
  for c = 1, q:dim(2) do
    local new, key = of_chunk(values, c), of_chunk(k, c)
    if state then new = new - core.matmul(of_chunk(seen, c), state) end
    local y = core.matmul(of_chunk(scores, c), new)
    if state then
      y = y + core.matmul(of_chunk(q, c), state)
      if since then state = state * of_chunk(since, c):narrow(2, size, 1) end
    end
    local added = core.matmul(key, new, true, false)
    state = state and state + added or added
    list[c] = y:reshape(b, h, size, w)
  end
  return core.concat(list, 3):narrow(3, 1, n):permute { 1, 3, 2, 4 }, state:reshape(shape)
end

-- Returns the FLOP of n positions of h heads with keys of m and values of w channels, and how many
-- numbers are stored.
function delta_rule.cost(n, h, m, w)
  local size, levels = CHUNK, math.log(CHUNK, 2)
  local flop = size * (6.0 * m + 4.0 * w + 4.0 * levels * size) + 6.0 * m * w
  local numbers = size * (4.0 + 2.0 * levels) + 4.0 * (m + w) + 2.0 * m * w / size
  return n * h * flop, n * h * numbers
end

return delta_rule
