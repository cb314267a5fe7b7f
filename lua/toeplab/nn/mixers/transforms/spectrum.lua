-- nn/mixers/transforms/spectrum.lua: transforms sequences to frequencies and back, for the mixers
-- that act there: the unitary transforms, and the triangular form that the released code calls

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local complex = require "toeplab.nn.complex"
local cost = require "toeplab.nn.cost"
local matrix = require "toeplab.nn.mixers.transforms.matrix"
local shapes = require "toeplab.nn.shapes"

local spectrum = {}

-- Returns W_n (matrix.fourier) with 0 above its diagonal: {re=, im=}, each [n,n].
function spectrum.triangle(n)
  local lower, re, im = shapes.lower(n), matrix.fourier(n)
  return { re = re * lower, im = im * lower }
end

-- Raises an error if the options o of the mixer `who` request causality without as_published: each
-- frequency depends on the whole sequence, so no mixer of frequencies is truly causal.
function spectrum.check_causal(who, o)
  if o.causal and not o.as_published then
    error(who .. ": a Fourier transform sees all positions: set causal = false, or as_published = "
      .. "true for the triangular form of the released code, which costs n^2", 0)
  end
end

-- Returns two functions: x [b,n,d] -> frequencies [b,f,d,2], and frequencies, n -> y [b,n,d]. With
-- f = n/2 + 1 they are the transforms of real sequences, scaled by 1/sqrt n. With causal they are
-- tril(W_n) x with f = n, and the real part of tril(conj W_n) X, at n^2 products per channel.
function spectrum.transforms(causal)
  if not causal then
    return function(x)
      return core.affine(core.rfft(x, 2), 1 / math.sqrt(x:dim(2)), 0)
    end, function(z, n)
      return core.affine(core.irfft(z, 2, n), math.sqrt(n), 0)
    end
  end
  local triangles = cache.recent(spectrum.triangle)
  return function(x)
    local w = triangles(x:dim(2))
    return complex.join(matrix.apply(w.re, x), matrix.apply(w.im, x))
  end, function(z, n)
    local w, re, im = triangles(n), complex.parts(z)
    return matrix.apply(w.re, re) + matrix.apply(w.im, im)
  end
end

-- Returns the FLOP of both transforms of d channels, and the stored numbers: the frequencies.
function spectrum.cost(causal, n, d)
  if causal then return 8.0 * n * n * d, 2.0 * n * d end
  return 2 * d * cost.transform(n), (n + 2.0) * d
end

return spectrum
