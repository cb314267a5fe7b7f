-- nn/complex.lua: calculates with complex numbers as pairs of tensors re, im. Parameters and
-- spectra hold both parts along a last axis of 2.

local core = require "toeplab.core"

local complex = {}

-- Returns the real and the imaginary part of z [..,2].
function complex.parts(z)
  local axis, shape = z:ndim(), z:shape()
  shape[axis] = nil
  return z:narrow(axis, 1, 1):reshape(shape), z:narrow(axis, 2, 1):reshape(shape)
end

-- Returns z [..,2] of its parts re and im [..].
function complex.join(re, im)
  local shape = re:shape()
  shape[#shape + 1] = 1
  return core.concat({ re:reshape(shape), im:reshape(shape) }, #shape)
end

-- Returns a b.
function complex.times(a_re, a_im, b_re, b_im)
  return a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re
end

-- Returns a / b.
function complex.over(a_re, a_im, b_re, b_im)
  local size = b_re * b_re + b_im * b_im
  return complex.times(a_re, a_im, b_re / size, -b_im / size)
end

return complex
