-- nn/mixers/transforms/matrix.lua: holds what the mixers with matrices over positions share:
-- products along the positions, the causal mask, and the Fourier matrix.

local core = require "toeplab.core"

local matrix = {}

-- Returns y_i = sum over j of m_ij x_j.   m [n,n] or [b,n,n]   x, y [b,n,d]
-- The engine shares only the right operand among sequences, so that a common m needs x transposed.
function matrix.apply(m, x)
  if m:ndim() == 3 then return core.matmul(m, x) end
  return core.matmul(x:transpose(2, 3), m, false, true):transpose(2, 3)
end

-- Returns the matrix [n,n] that is 1 on and below the diagonal and 0 above it.
function matrix.lower(n)
  local at = core.range(0, n - 1)
  return core.max(core.min(at:reshape(n, 1) - at:reshape(1, n) + 1, 1), 0)
end

-- Returns the real and the imaginary part of W_jk = exp(-2 pi i jk/n) / sqrt n: twice [n,n]. They
-- come from a transform of the identity, because angles of jk up to n^2 are inexact in float32.
function matrix.fourier(n)
  local at = core.range(0, n - 1)
  local identity = 1 - core.min(core.abs(at:reshape(n, 1) - at:reshape(1, n)), 1)
  local complex = core.concat({ identity:reshape(n, n, 1), core.zeros(n, n, 1) }, 3)
  local w = core.affine(core.fft(complex, 1), 1 / math.sqrt(n), 0)
  return w:narrow(3, 1, 1):reshape(n, n), w:narrow(3, 2, 1):reshape(n, n)
end

-- Returns x with m rows of 0 after its own: [b,n,d] -> [b,n+m,d].
function matrix.pad(x, m)
  return core.concat({ x, core.zeros(x:dim(1), m, x:dim(3)) }, 2)
end

-- Returns how many of n positions a matrix for max_length covers. More positions than that are an
-- error, unless as_published says that the mixer leaves them out, as the released code does.
function matrix.covered(who, o, n)
  if n > o.max_length and not o.as_published then
    error(("%s: a sequence has %d positions, and its weights are for max_length = %d: set "
      .. "max_length to the longest length"):format(who, n, o.max_length), 0)
  end
  return math.min(n, o.max_length)
end

return matrix
