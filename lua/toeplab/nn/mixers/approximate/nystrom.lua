-- nn/mixers/approximate/nystrom.lua: defines Nystrom, the attention of Nystromformer.

local core = require "toeplab.core"
local algebra = require "toeplab.nn.mixers.approximate.algebra"
local cache = require "toeplab.nn.cache"
local cost = require "toeplab.nn.cost"
local frame = require "toeplab.nn.mixers.approximate.frame"
local options = require "toeplab.base.options"
local shapes = require "toeplab.nn.shapes"

-- o = softmax(q k'^T) softmax(q' k'^T)^+ softmax(q' k^T) v (Xiong et al. 2021, Eq. 13)
--   q', k' [b,h,l,p]: landmarks, each the mean of ceil(n / landmarks) consecutive rows of q or k
-- q and k are scaled by p^(-1/4). Padding is left out of the means and of the last softmax. Costs
-- n l. Up to `landmarks` positions it is exact attention.
-- as_published: padding counts in the means, as zeros; and the iteration for the inverse starts
-- from one number for the whole batch (algebra.lua). With padding = "tokens", zero rows are added
-- up to max_length.
local Nystrom = frame.class("Nystrom", frame.padding {
  landmarks = options.field { default = 128, min = 1, help = "means of rows that represent all" },
  max_length = options.field { type = "int", min = 1, optional = true,
    help = "length to which padding = tokens fills up" },
  as_published = false,
})

Nystrom.by_length = true -- the landmarks are the padded row's

function Nystrom:prepare() self.identity = cache.recent(shapes.identity) end

function Nystrom:aligned(n)
  n = frame.tokens_length(self, n)
  local group = -(-n // self.opt.landmarks)
  return -(-n // group) * group
end

-- Returns the means of groups of consecutive rows: [b,h,n,p] -> [b,h,l,p].
local function means(self, x, group, mask)
  local b, h, l, p = x:dim(1), x:dim(2), x:dim(3) // group, x:dim(4)
  local sums = x:reshape(b, h, l, group, p):sum(4)
  if not mask or self.opt.as_published then return core.affine(sums, 1 / group, 0) end
  return sums / core.max(mask:reshape(b, 1, l, group, 1):sum(4), 1)
end

function Nystrom:mix(q, k, v, mask)
  local n, scale = q:dim(3), self.width ^ -0.25
  q = frame.tokens(core.affine(q, scale, 0), mask)
  k = frame.tokens(core.affine(k, scale, 0), mask)
  local group = -(-n // self.opt.landmarks)
  if group == 1 then return frame.attend(q, k, v, 1, mask) end
  local short_q, short_k = means(self, q, group, mask), means(self, k, group, mask)
  local middle = core.softmax(core.matmul(short_q, short_k, false, true))
  local one = self.identity(middle:dim(4))
  local inverse = algebra.inverse(middle, one, self.opt.as_published)
  local last = frame.attend(short_q, k, v, 1, mask)
  return frame.attend(q, short_k, core.matmul(inverse, last), 1)
end

function Nystrom:own_cost(n)
  local o, all = self.opt, self.opt.heads * self.width
  n = self:aligned(n)
  if n <= o.landmarks then return cost.blockwise(n, n, all, all, o.heads) end
  local l = n // -(-n // o.landmarks)
  local flop, numbers = cost.blockwise(n, l, all, all, o.heads) -- twice, with q' and with k'
  local inverse, kept = algebra.inverse_cost(l)
  return 2 * flop + 4.0 * l * l * all + o.heads * inverse, 2 * numbers + o.heads * kept
end

return { Nystrom = Nystrom }
