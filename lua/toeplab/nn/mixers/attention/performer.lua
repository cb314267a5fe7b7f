-- nn/mixers/attention/performer.lua: defines Performer, which estimates softmax attention by random
-- features.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local chunks = require "toeplab.nn.mixers.attention.chunks"
local heads = require "toeplab.nn.mixers.heads"
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local streams = require "toeplab.base.streams"

local ADDED = 1e-4 -- to every feature, so that no row of weights is 0
local LEAST = 1e-2 -- of the sum of a row's weights, as published

-- y = Wo A v,  A_ij = phi(q_i) . phi(k_j), and each row is divided by its sum, per head
-- (Choromanski et al. 2021, Eq. 4-7), with x' = x w^(-1/4) and w = dim/heads:
--   phi(x) = m^(-1/2) (exp(P x' - |x'|^2/2 - M) + 1e-4),   P [heads,m,w]
--   x, y [b,n,dim]   q, k, v = maps of x with bias
-- The m rows of P (option features) are orthogonal in groups of w, with the lengths of Gaussian
-- vectors. They are drawn once and saved with the model. M prevents overflow and cancels except for
-- the 1e-4: for a query it is the largest entry of P x'; for the keys the largest of all positions,
-- but 0 if causal, as it would depend on later tokens (without M the mean of phi(k) over P is 1).
-- If causal, j <= i. Its time grows as n m dim, whether causal or not.
-- as_published: in training P is Gaussian and drawn by every call, from the stream
-- "performer"; causal models take the M of all keys too; the 1e-4 is outside m^(-1/2); the sum of a
-- row's weights is at least 1e-2, far above what keeps the division finite.
local Performer = class("Performer", heads.spec {
  features = options.field { default = 64, min = 1 },
  as_published = false,
  init = options.field { type = "function|string", default = "torch" },
}, { "dim" })

-- Returns m rows of w numbers for one head: [m,w].
local function rows_of_head(m, w)
  local groups = {}
  for first = 1, m, w do
    local u, _, v = core.svd(initial.init.normal(core.zeros(w, w), 0, 1))
    local lengths = core.sqrt(core.square(initial.init.normal(core.zeros(w, w), 0, 1)):sum(2, true))
    groups[#groups + 1] = (core.matmul(u, v) * lengths):narrow(1, 1, math.min(w, m - first + 1))
  end
  return core.concat(groups, 1)
end

-- Draws m rows of w numbers for each head, orthogonal in groups of w, with the lengths of Gaussian
-- vectors: [heads,m,w].
local function draw_rows(count, m, w)
  local list = {}
  for h = 1, count do list[h] = rows_of_head(m, w) end
  return core.concat(list, 1):reshape(count, m, w)
end

function Performer:build(o)
  heads.maps(self, o)
  self.sum = chunks.summer(o.causal)
  self:buffer("projection", draw_rows(o.heads, o.features, o.dim // o.heads))
end

function Performer:drawn()
  if not (self.opt.as_published and self.training) then return self.projection end
  return streams.get("performer"):normal(core.zeros(self.projection:shape()), 0, 1)
end

-- Returns phi of the queries or keys z, [b,h,n,m].   z [b,n,dim]   projection [h,m,w]
-- top(f) returns M for f = P x', [b,h,n,m].
local function features(self, z, projection, top)
  local b, n, count = z:dim(1), z:dim(2), self.opt.heads
  local m, w = projection:dim(2), projection:dim(3)
  z = core.affine(z:reshape(b * n, count, w):permute { 2, 1, 3 }, w ^ -0.25, 0)
  local f = core.matmul(z, projection, false, true) -- [h,b n,m]
  local half = core.affine(core.square(z):sum(3, true), 0.5, 0)
  f, half = f:reshape(count, b, n, m), half:reshape(count, b, n, 1)
  local phi = core.exp(f - half - core.no_grad(top, f)):permute { 2, 1, 3, 4 }
  if self.opt.as_published then return core.affine(phi, m ^ -0.5, ADDED) end
  return core.affine(phi, m ^ -0.5, m ^ -0.5 * ADDED)
end

local function largest_feature(f) return f:amax(4, true) end
local function largest_of_all(f) return f:amax(4, true):amax(3, true) end
local function zero() return 0 end

function Performer:forward(x)
  local o, projection = self.opt, self:drawn()
  local key_top = (o.causal and not o.as_published) and zero or largest_of_all
  local q = features(self, self.q(x), projection, largest_feature)
  local k = features(self, self.k(x), projection, key_top)
  local v = heads.split(self.v(x), o.heads)
  return self.o(heads.join(chunks.normalised(self.sum, q, k, v, o.as_published and LEAST)))
end

-- Besides the sums, the queries and keys are multiplied by P.
function Performer:own_cost(n)
  local o, w = self.opt, self.opt.dim // self.opt.heads
  local flop, numbers = chunks.cost(o.causal, n, o.heads, o.features, w + 1)
  return flop + 4.0 * n * o.features * o.dim, numbers
end

Performer.ignores_later = true

return { Performer = Performer, rows = draw_rows }
