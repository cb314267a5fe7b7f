-- nn/mixers/transforms/matrix.lua: the common parts of mixers with matrices over positions:
-- products along the positions, the Fourier matrix, and the positions that a limited matrix covers.

local core = require "toeplab.core"
local complex = require "toeplab.nn.complex"
local shapes = require "toeplab.nn.shapes"

local matrix = {}

-- Returns y_i = sum over j of m_ij x_j.   m [n,n] or [b,n,n]   x, y [b,n,d]
-- The engine shares only the right operand among sequences, so a common m takes x transposed.
function matrix.apply(m, x)
  if m:ndim() == 3 then return core.matmul(m, x) end
  return core.matmul(x:transpose(2, 3), m, false, true):transpose(2, 3)
end

-- Returns the real and the imaginary part of W_jk = exp(-2 pi i jk/n) / sqrt n: twice [n,n]. They
-- come from a transform of the identity, because angles of jk up to n^2 are inexact in float32.
function matrix.fourier(n)
  local one = shapes.pad(shapes.identity(n):reshape(n, n, 1), 3, 0, 1)
  return complex.parts(core.affine(core.fft(one, 1), 1 / math.sqrt(n), 0))
end

-- Returns how many of n positions a matrix for max_length covers. More positions than that are an
-- error, unless as_published is set: then the mixer leaves them out, as the released code does.
function matrix.covered(who, o, n)
  if n > o.max_length and not o.as_published then
    error(("%s: a sequence has %d positions, but its weights cover max_length = %d: set "
      .. "max_length to the longest length"):format(who, n, o.max_length), 0)
  end
  return math.min(n, o.max_length)
end

return matrix
