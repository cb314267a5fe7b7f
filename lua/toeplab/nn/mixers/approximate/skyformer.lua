-- nn/mixers/approximate/skyformer.lua: defines Skyformer, a Nystrom approximation of attention with
-- a Gaussian kernel.

local core = require "toeplab.core"
local algebra = require "toeplab.nn.mixers.approximate.algebra"
local cache = require "toeplab.nn.cache"
local cost = require "toeplab.nn.cost"
local frame = require "toeplab.nn.mixers.approximate.frame"
local options = require "toeplab.base.options"
local shapes = require "toeplab.nn.shapes"

-- o = G(q,S) D M^T D G(k,S)^T v,  G(x,y) = exp(-|x-y|^2/2) (Chen et al. 2021, Sec. 4.2), where the
-- rows of q, k and v are 0 for padding and q, k are scaled by p^(-1/4);
--   S [f,p]: random landmarks, the first half rows of q, the others of k, among the tokens
--   W = G(S,S) + I/10,   D = diag(row sums of W)^(-1/2),   M ~ (D W D)^-1 (algebra.lua)
-- choices [b,f] int32, f = features: the positions of the landmarks, from 0. In a row of length l
-- they are floor(l u), with f numbers u in [0,1) that are drawn at every forward pass, one list for
-- all rows. Costs n f.
-- as_published: the scale is 32^(-1/4) for every p, and the iteration for the inverse starts from
-- one number for the whole batch.
local Skyformer = frame.class("Skyformer", {
  features = options.field { default = 128, min = 2, help = "random landmarks" },
  as_published = false,
})

Skyformer.by_length = true -- the landmarks are the padded row's

function Skyformer:prepare() self.identity = cache.recent(shapes.identity) end

-- Draws the landmarks of rows of these lengths, a tensor [b].
function Skyformer:draw(lengths)
  return frame.stream(self):places(lengths, self.opt.features)
end

-- Returns the rows of x [b,h,n,p] at the landmarks first .. first+count-1: [b,h,count,p].
local function rows(x, landmarks, first, count)
  local b, h, copies = x:dim(1), x:dim(2), {}
  for head = 1, h do copies[head] = landmarks:narrow(2, first, count):reshape(b, 1, count) end
  return x:batch_gather(core.concat(copies, 2))
end

function Skyformer:mix(q, k, v, mask, landmarks)
  local b, n, p, f = q:dim(1), q:dim(3), q:dim(4), self.opt.features
  landmarks = landmarks or self:draw(mask and mask:reshape(b, n):sum(2) or core.full({ b }, n))
  local scale = (self.opt.as_published and 32 or p) ^ -0.25
  q = frame.tokens(core.affine(q, scale, 0), mask)
  k = frame.tokens(core.affine(k, scale, 0), mask)
  local half = f // 2
  local s = core.concat({ rows(q, landmarks, 1, half), rows(k, landmarks, half + 1, f - half) }, 3)
  local one = self.identity(f)
  local w = algebra.gaussian(s, s) + one * 0.1
  local d = core.rsqrt(w:sum(4, true))
  local m = algebra.inverse(w * d * d:transpose(3, 4), one, self.opt.as_published)
  local last = core.matmul(algebra.gaussian(s, k), frame.tokens(v, mask))
  return core.matmul(algebra.gaussian(q, s), d * core.matmul(m, d * last, true))
end

function Skyformer:own_cost(n)
  local f, h, all = self.opt.features, self.opt.heads, self.opt.heads * self.width
  local flop, numbers = cost.attention(n, f, all, all, h) -- twice: G(q,S), and G(k,S)
  local inverse, kept = algebra.inverse_cost(f)
  return 2 * flop + 6.0 * f * f * all + h * inverse, 2 * numbers + h * kept
end

return { Skyformer = Skyformer }
