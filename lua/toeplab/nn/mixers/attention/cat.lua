-- nn/mixers/attention/cat.lua: defines CAT, attention whose matrix of weights is a circulant.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local complex = require "toeplab.nn.complex"
local cost = require "toeplab.nn.cost"
local heads = require "toeplab.nn.mixers.heads"
local Linear = require("toeplab.nn.linear").Linear
local shapes = require "toeplab.nn.shapes"

-- y = A (x Wv + bv) Wo + bo,  A_ij = a_((i-j) mod n),  a = softmax over the positions of z = x Wa,
-- per head (Yamada 2025, CAT: Circular-convolutional attention for sub-quadratic transformers).
--   x, y [b,n,dim]   z [b,n,heads]
-- The token at position l thus decides the weight with which every token sees the one l places
-- before it, cyclically. A is applied by transforms, at n log n. Causal: A_ij = softmax over j <= i
-- of z_(i-j), the triangle of that matrix with each row divided by its sum, at n^2. The paper also
-- has a causal form at n^2; its formula was not available, and this one is our reading. Nor do the
-- sources agree on the sign of i - j: with the other sign, the triangle would read scores of later
-- tokens.
local CAT = class("CAT", heads.spec {}, { "dim" })

function CAT:build(o)
  heads.maps(self, o, { "v" })
  self.a = Linear(o.dim, o.heads, { bias = false, init = o.init })
end

-- Returns the circulant times v.   z [b,n,h]   v, result [b,n,h w]
local function circulant(z, v)
  local b, n, h = z:dim(1), z:dim(2), z:dim(3)
  local a = core.rfft(core.softmax(z:transpose(2, 3)):transpose(2, 3), 2)
  local f = a:dim(2)
  local a_re, a_im = complex.parts(a:reshape(b, f, h, 1, 2))
  local v_re, v_im = complex.parts(core.rfft(v, 2):reshape(b, f, h, -1, 2))
  local y = complex.join(complex.times(a_re, a_im, v_re, v_im))
  return core.irfft(y:reshape(b, f, -1, 2), 2, n)
end

-- Returns scores [b,h,n,n] with z_(i-j) in row i and column j <= i, and any numbers elsewhere.
-- z [b,n,h]. The sequence z_0, .., z_(n-1), 0, repeated n times and cut into rows of n numbers, is
-- the transpose of the result: it repeats after n + 1 numbers, so that each row is the row before,
-- shifted by one column.
local function toeplitz(z)
  local b, n, h = z:dim(1), z:dim(2), z:dim(3)
  local rows = z:transpose(2, 3):reshape(b, h, 1, n) + core.zeros(n, 1)
  local all = shapes.pad(rows, 4, 0, 1):reshape(b, h, n * (n + 1))
  return all:narrow(3, 1, n * n):reshape(b, h, n, n):transpose(3, 4)
end

function CAT:forward(x)
  heads.check_input(self, x)
  local z, v = self.a(x), self.v(x)
  if not self.opt.causal then return self.o(circulant(z, v)) end
  local weights = core.softmax(toeplitz(z), true)
  return self.o(heads.join(core.matmul(weights, heads.split(v, self.opt.heads))))
end

function CAT:own_cost(n)
  local o = self.opt
  if o.causal then return cost.attention(n, n, 0, o.dim, o.heads) end
  local f = n // 2 + 1
  return o.dim * cost.convolution(n / 2, n / 2) + o.heads * cost.transform(n),
    2.0 * f * (2 * o.dim + o.heads) + n * (o.dim + o.heads)
end

CAT.ignores_later = true

return { CAT = CAT }
