-- nn/mixers/attention/fft_rpe.lua: defines FFTRPE, attention by random features whose weights are
-- also learnt by distance.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local heads = require "toeplab.nn.mixers.heads"
local options = require "toeplab.base.options"
local performer = require "toeplab.nn.mixers.attention.performer"
local TNO = require("toeplab.nn.mixers.tno").TNO

local TINY = 1e-12 -- added to |q|^2, so that q = 0 can be divided by its length

-- y = Wo A v,  A_ij = exp(b_(i-j)) phi(q_i/|q_i|) . phi(k_j/|k_j|), and each row is divided by its
-- sum, per head (Luo et al. 2021, Stable, fast and accurate: kernelized attention with relative
-- positional encoding), with phi(x) = exp(P x) for P [heads,m,w], w = dim/heads:
--   x, y [b,n,dim]   q, k, v = maps of x with bias   b [heads] for each lag, 0 from `length` on
-- For q and k of length 1, phi is the feature map of Performer but for a factor that cancels, and
-- needs no maximum against overflow. P is drawn as Performer's, once, and saved with the model; its
-- m rows are the option features. For each of the m (w + 1) products of a feature with a channel of
-- v, or with 1 for the sum of the row, exp(b) is a Toeplitz matrix: a TNO with a table of b. b
-- starts at 0, where A is Performer's with such q and k. Time grows as m dim n log n. If causal,
-- j <= i. The transforms of rac round by the largest product at any lag, so that rows whose own
-- sums are small lose digits: at n = 257 early rows are off by 1e-5, 4e-4, 8e-3 and 1 with b of
-- deviation 1, 2, 3 and 6. The backend matrix keeps the digits at any b, at n^2.
local FFTRPE = class("FFTRPE", heads.spec {
  features = options.field { default = 64, min = 1 },
  length = options.field { default = 512, min = 2, help = "distances with a bias" },
  init = options.field { type = "function|string", default = "torch" },
  backend = "rac", -- the plugin that applies the Toeplitz matrices
}, { "dim" })

function FFTRPE:build(o)
  heads.maps(self, o)
  self:buffer("projection", performer.rows(o.heads, o.features, heads.width(self, o.dim)))
  self.tno = TNO(o.heads, { causal = o.causal, encoder = "table", table_length = o.length,
    encoder_options = { deviation = 0 }, decay = "none", act = "exp", backend = o.backend })
end

-- Returns phi of the queries or keys z, [b,h,n,m,1].   z [b,n,dim]
local function features(self, z)
  local p = self.projection
  local b, n, h, m, w = z:dim(1), z:dim(2), p:dim(1), p:dim(2), p:dim(3)
  z = z:reshape(b * n, h, w):permute { 2, 1, 3 }
  z = z / core.sqrt(core.affine(core.square(z):sum(3, true), 1, TINY))
  local phi = core.exp(core.matmul(z, p, false, true)) -- [h,b n,m]
  return phi:reshape(h, b, n, m):permute({ 2, 1, 3, 4 }):reshape(b, h, n, m, 1)
end

-- Returns sum over j of exp(b_(i-j)) x_j.   x, result [b,h,n,c]
local function by_distance(self, x)
  local b, h, n, c = x:dim(1), x:dim(2), x:dim(3), x:dim(4)
  local y = self.tno(x:permute({ 1, 4, 3, 2 }):reshape(b * c, n, h))
  return y:reshape(b, c, n, h):permute { 1, 4, 3, 2 }
end

function FFTRPE:forward(x)
  heads.check_input(self, x)
  local b, n, count = x:dim(1), x:dim(2), self.opt.heads
  local q, k = features(self, self.q(x)), features(self, self.k(x))
  local v = heads.split(self.v(x), count)
  local m, w = k:dim(4), v:dim(4)
  local all = core.concat({ v, core.ones(b, count, n, 1) }, 4):reshape(b, count, n, 1, w + 1)
  local sums = by_distance(self, (k * all):reshape(b, count, n, m * (w + 1)))
  local y = (q * sums:reshape(b, count, n, m, w + 1)):sum(4)
  return self.o(heads.join(y:narrow(4, 1, w) / y:narrow(4, w + 1, 1)))
end

FFTRPE.apart = { tno = true } -- applied to m (w + 1) sequences at once

-- Besides the Toeplitz products, the queries and keys are multiplied by P, the keys by v, and the
-- queries by the sums.
function FFTRPE:own_cost(n)
  local o, w = self.opt, self.opt.dim // self.opt.heads
  local products = o.features * (w + 1)
  local flop, numbers = self.tno:coefficients_cost(n)
  local each, more = self.tno:lines_cost(n)
  return flop + products * (each + 3.0 * n * o.heads) + 4.0 * n * o.features * o.dim,
    numbers + products * more + 2.0 * n * o.heads * o.features
end

FFTRPE.ignores_later = true

return { FFTRPE = FFTRPE }
