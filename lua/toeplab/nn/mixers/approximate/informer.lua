-- nn/mixers/approximate/informer.lua: defines Informer, in which only the queries that are far from
-- uniform attend (ProbSparse attention).

local core = require "toeplab.core"
local cost = require "toeplab.nn.cost"
local frame = require "toeplab.nn.mixers.approximate.frame"
local heads = require "toeplab.nn.mixers.heads"
local options = require "toeplab.base.options"

-- o_t = softmax(q_t k^T / sqrt p) v for the `sampled` queries t of largest M_t, else the mean of v,
--   M_t = max_s q_t k_s - mean_s q_t k_s   over sampled random keys s (Zhou et al. 2021, Eq. 4),
--   sampled = min(n, f ceil(ln n)),   f = ceil(features / ln max_length)
-- choices [n,sampled] int32: the keys of each query, from 0, drawn with replacement at every
-- forward pass, one table for all rows and heads. No gradient passes through M. M costs n sampled
-- in each head, a block of queries at a time, and the attention the same.
-- as_published: M subtracts the sum over n instead of the mean, and the mask is ignored; else
-- padding is neither key nor query, and not in the mean of v.
local Informer = frame.class("Informer", {
  features = options.field { default = 128, min = 1,
    help = "queries that attend, at max_length positions" },
  max_length = options.field { default = 4096, min = 2,
    help = "length at which `features` queries attend" },
  as_published = false,
})

local BLOCK = 1 << 22 -- elements of the largest tensor while M is computed

Informer.by_length = true -- its choices depend on the length of the padded row

-- Returns the number of queries that attend among n.
function Informer:sampled(n)
  local factor = math.ceil(self.opt.features / math.log(self.opt.max_length))
  return math.min(n, math.max(1, factor * math.ceil(math.log(n))))
end

-- Draws the keys that M of each query looks at.
function Informer:draw(n)
  return frame.stream(self):integers(n, n, self:sampled(n))
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

-- Returns the positions of the queries of largest M in each row and head, from 0 and ascending, [b
-- h,sampled] int32; and for each query its index among them, from 1, or 0: [b h,n] int32.
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
  return measure:transpose(1, 2):topk(count)
end

function Informer:mix(q, k, v, mask, samples)
  local b, h, n, p = q:dim(1), q:dim(2), q:dim(3), q:dim(4)
  if self.opt.as_published then mask = nil end
  samples = samples or self:draw(n)
  local places, slots = core.no_grad(self.top, self, q, k, mask, samples)
  local some = q:reshape(b * h, n, p):batch_gather(places):reshape(b, h, -1, p)
  local attended = frame.attend(some, k, v, self.width ^ -0.5, mask)
  local mean = mask and (v * mask):sum(3, true) / core.max(mask:sum(3, true), 1) or v:mean(3, true)
  local results = core.concat({ mean, attended }, 3):reshape(b * h, -1, p)
  return results:batch_gather(slots):reshape(b, h, n, p)
end

-- Besides the attention of some queries, M takes `sampled` products of all queries.
function Informer:own_cost(n)
  local some, all = self:sampled(n), self.opt.heads * self.width
  local flop, numbers = cost.blockwise(some, n, all, all, self.opt.heads)
  return flop + 2.0 * n * some * all, numbers + 1.0 * n * all
end

return { Informer = Informer }
