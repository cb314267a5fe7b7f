-- nn/mixers/approximate/algebra.lua: the Gaussian kernel, and the approximate inverse of small
-- matrices for the Nystrom methods.

local core = require "toeplab.core"

local algebra = {}

-- Returns half the squared length of each row: [..,n,p] -> [..,n,1].
local function half_square(x)
  return core.affine(core.square(x):sum(-1, true), 0.5, 0)
end

-- Returns exp(-|x_i - y_j|^2 / 2).   x [b,h,m,p]   y [b,h,n,p]   result [b,h,m,n]
function algebra.gaussian(x, y)
  local inner = core.matmul(x, y, false, true)
  return core.exp(inner - half_square(x) - half_square(y):transpose(3, 4))
end

-- Returns an approximate pseudo-inverse of square matrices with elements >= 0, by 6 steps of the
-- third-order iteration of Razavi et al. (2014), as in Nystromformer (Xiong et al. 2021, Eq. 11):
-- c is the largest column sum of each matrix; with shared, the largest of all matrices, as in the
-- published code, so that a result depends on the other rows of its batch. Gradients flow through
-- c.
--   a, z [b,h,l,l]   one: the identity [l,l]
function algebra.inverse(a, one, shared)
  local sums = a:sum(3)
  local c = shared and sums:amax() or sums:amax(3):reshape(a:dim(1), a:dim(2), 1, 1)
  local z = a:transpose(3, 4) / c
  for _ = 1, 6 do
    local product = core.matmul(a, z)
    local inner = one * 15 - core.matmul(product, one * 7 - product)
    z = core.affine(core.matmul(z, one * 13 - core.matmul(product, inner)), 0.25, 0)
  end
  return z
end

-- Returns the FLOP of an inverse of size l, 4 products in each of the 6 steps, and the numbers
-- stored, about 8 matrices in each.
function algebra.inverse_cost(l)
  return 6 * 4 * 2.0 * l ^ 3, 6 * 8.0 * l * l
end

return algebra
