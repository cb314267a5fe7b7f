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
-- choices: f = features numbers in [0,1), drawn at every forward pass, one for each landmark of all
-- rows: a row of length l has its landmark at floor(l u). Costs n f.
-- as_published: the scale is 32^(-1/4) for every p, and the iteration for the inverse starts from
-- one number for the whole batch.
local Skyformer = frame.class("Skyformer", {
  features = options.field { default = 128, min = 2 },
  as_published = false,
})

function Skyformer:prepare() self.identity = cache.recent(shapes.identity) end

function Skyformer:draw()
  local stream, uniform = frame.stream(self), {}
  for i = 1, self.opt.features do uniform[i] = stream:unit() end
  return uniform
end

-- Returns the rows of the stack of q and k, [2 n,p], that are landmarks: a list for each of b
-- sequences, of numbers from 0.
function Skyformer:landmarks(b, n, mask, uniform)
  local lengths, list = mask and mask:reshape(b, n):sum(2):totable(), {}
  for row = 1, b do
    list[row] = {}
    for i, u in ipairs(uniform) do
      local at = math.floor((lengths and lengths[row] or n) * u)
      list[row][i] = i > #uniform // 2 and at + n or at
    end
  end
  return list
end

local function index(landmarks, heads, n)
  local places = {}
  for row, list in ipairs(landmarks) do
    for head = 1, heads do
      local base = ((row - 1) * heads + head - 1) * 2 * n
      for _, at in ipairs(list) do places[#places + 1] = base + at end
    end
  end
  return core.ids(places)
end

function Skyformer:mix(q, k, v, mask, uniform)
  local b, h, n, p = q:dim(1), q:dim(2), q:dim(3), q:dim(4)
  local scale = (self.opt.as_published and 32 or p) ^ -0.25
  q = frame.tokens(core.affine(q, scale, 0), mask)
  k = frame.tokens(core.affine(k, scale, 0), mask)
  local places = index(self:landmarks(b, n, mask, uniform or self:draw()), h, n)
  local f = places:dim(1) // (b * h)
  local s = core.concat({ q, k }, 3):reshape(-1, p):gather(places):reshape(b, h, f, p)
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
