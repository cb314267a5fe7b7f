-- nn/mixers/approximate/informer.lua: defines Informer, in which only the queries that are far from
-- uniform attend (ProbSparse attention).

local core = require "toeplab.core"
local choose = require "toeplab.nn.mixers.approximate.choose"
local cost = require "toeplab.nn.cost"
local frame = require "toeplab.nn.mixers.approximate.frame"
local heads = require "toeplab.nn.mixers.heads"
local options = require "toeplab.base.options"

-- o_t = softmax(q_t k^T / sqrt p) v for the `sampled` queries t of largest M_t, else the mean of v,
--   M_t = max_s q_t k_s - mean_s q_t k_s   over sampled random keys s (Zhou et al. 2021, Eq. 4),
--   sampled = min(n, f ceil(ln n)),   f = ceil(features / ln max_len)
-- choices [n,sampled] int32: the keys of each query, from 0, drawn with replacement at every
-- forward pass, one table for all rows and heads. No gradient passes through M. M costs n sampled
-- in each head, a block of queries at a time, and the attention as much. The keys are drawn and the
-- queries selected on the CPU (choose.lua).
-- as_published: M subtracts the sum over n instead of the mean, and the mask is ignored; else
-- padding is no key, no query, and not in the mean of v.
local Informer = frame.class("Informer", {
  features = options.field { default = 128, min = 1 },
  max_len = options.field { default = 4096, min = 2 },
  as_published = false,
})

local BLOCK = 1 << 22 -- elements of the largest tensor while M is computed

-- Returns the number of queries that attend among n.
function Informer:sampled(n)
  local factor = math.ceil(self.opt.features / math.log(self.opt.max_len))
  return math.min(n, math.max(1, factor * math.ceil(math.log(n))))
end

-- Draws the keys that M of each query looks at.
function Informer:draw(n)
  local stream, keys = frame.stream(self), {}
  for i = 1, n * self:sampled(n) do keys[i] = stream:below(n) end
  return core.ids(keys):reshape(n, -1)
end

-- Returns [b,h,n,p] as [n,b h p].
local function by_position(x)
  return x:permute({ 3, 1, 2, 4 }):reshape(x:dim(3), -1)
end

-- Returns M of m queries, [m,b h], from their products with u keys each, [m,u,b h]. weights, of the
-- same shape, is 0 where a key is padding; without padding it is nil.
local function spread(products, weights, divisor)
  if not weights then
    return products:amax(2) - core.affine(products:sum(2), 1 / divisor, 0)
  end
  local largest = (products + heads.hide(weights)):amax(2)
  return largest - (products * weights):sum(2) / core.max(weights:sum(2), 1)
end

-- Returns the queries of largest M in each row and head: a list, in the order [b,h], of lists of
-- positions from 1, ascending.
function Informer:top(q, k, mask, samples)
  local b, h, n, p = q:dim(1), q:dim(2), q:dim(3), q:dim(4)
  local count, parts = samples:dim(2), {}
  local tokens = mask and by_position(mask + core.zeros(b, h, n, 1))
  q, k = by_position(q), by_position(k)
  local block = math.max(1, BLOCK // (count * b * h * p))
  for first = 1, n, block do
    local m = math.min(block, n - first + 1)
    local keys = samples:narrow(1, first, m)
    local products = k:gather(keys) * q:narrow(1, first, m):reshape(m, 1, b * h * p)
    parts[#parts + 1] = spread(products:reshape(m, count, b * h, p):sum(4),
      tokens and tokens:gather(keys), self.opt.as_published and n or count)
  end
  local measure = core.concat(parts, 1)
  if tokens then measure = measure + heads.hide(tokens) end
  local values, list = measure:transpose(1, 2):reshape(-1):totable(), {}
  for row = 1, b * h do list[row] = choose.top(values, (row - 1) * n, n, count) end
  return list
end

-- Returns the rows of q that attend, as places among its b h n rows, and for each of those rows its
-- place in a table that holds, for each row and head, the mean and then the results of the former.
local function places(top, n)
  local from, to = {}, {}
  for row, list in ipairs(top) do
    local mean = (row - 1) * (#list + 1)
    for t = 1, n do to[(row - 1) * n + t] = mean end
    for i, t in ipairs(list) do
      from[#from + 1], to[(row - 1) * n + t] = (row - 1) * n + t - 1, mean + i
    end
  end
  return core.ids(from), core.ids(to)
end

function Informer:mix(q, k, v, mask, samples)
  local b, h, n, p = q:dim(1), q:dim(2), q:dim(3), q:dim(4)
  if self.opt.as_published then mask = nil end
  samples = samples or self:draw(n)
  local from, to = places(core.no_grad(self.top, self, q, k, mask, samples), n)
  local some = q:reshape(b * h * n, p):gather(from):reshape(b, h, -1, p)
  local attended = heads.attend(some, k, v, self.width ^ -0.5, frame.hide(mask))
  local mean = mask and (v * mask):sum(3, true) / core.max(mask:sum(3, true), 1) or v:mean(3, true)
  local results = core.concat({ mean, attended }, 3)
  return results:reshape(-1, p):gather(to):reshape(b, h, n, p)
end

-- Beside the attention of some queries, M takes as many products of all queries.
function Informer:own_cost(n)
  local some, all = self:sampled(n), self.opt.heads * self.width
  local flop, numbers = cost.attention(some, n, all, all, self.opt.heads)
  return flop + 2.0 * n * some * all, numbers + 1.0 * n * all
end

return { Informer = Informer }
