-- nn/mixers/transforms/afno.lua: defines AFNO, the adaptive Fourier neural operator, which applies
-- one small network to each frequency.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local spectrum = require "toeplab.nn.mixers.transforms.spectrum"

-- y = x + F^-1 S(W2 relu(W1 F x + b1) + b2) along the positions (Guibas et al. 2022, Fig. 2).
--   x, y [b,n,dim]   w1, w2 [2,blocks,s,s]   b1, b2 [2,blocks,s]   s = dim/blocks
-- The first axis holds real and imaginary parts; W1 and W2 are block diagonal, and all parameters
-- start at N(0, 0.02^2). relu and the threshold S(z) = sign(z) max(|z| - shrink, 0) act on real and
-- imaginary parts separately. A channel costs n log n for the transforms and 4 s products per token
-- for each map. The module adds x as the paper's code does, so in a layout with a shortcut x counts
-- twice. causal = true exists only with as_published (spectrum.lua).
local AFNO = class("AFNO", {
  dim = options.field { type = "int", min = 1 },
  causal = false,
  blocks = options.field { default = 8, min = 1, help = "blocks on the diagonals of the maps" },
  shrink = options.field { default = 0.01, min = 0,
    help = "threshold below which frequencies become 0" },
  as_published = false,
}, { "dim" })

function AFNO:build(o)
  spectrum.check_causal("AFNO", o)
  if o.dim % o.blocks ~= 0 then
    error(("AFNO: %d channels do not divide into blocks = %d: use a divisor of %d"):format(
      o.dim, o.blocks, o.dim), 0)
  end
  local function normal(...)
    return initial.parameter(initial.init.normal(core.zeros(2, o.blocks, ...), 0, 0.02))
  end
  local s = o.dim // o.blocks
  self.w1, self.w2 = normal(s, s), normal(s, s)
  self.b1, self.b2 = normal(s), normal(s)
  self.forwards, self.backwards = spectrum.transforms(o.causal)
end

-- Returns z w + bias for complex z, w and bias, as one real product with [[re, im], [-im, re]].
--   z, result [k,p,2s]: real parts, then imaginary ones   w [2,k,s,s]   bias [2,k,s]
local function map(z, w, bias)
  local k, s = w:dim(2), w:dim(3)
  local re, im = w:narrow(1, 1, 1):reshape(k, s, s), w:narrow(1, 2, 1):reshape(k, s, s)
  local both = core.concat({ core.concat({ re, im }, 3), core.concat({ -im, re }, 3) }, 2)
  return core.matmul(z, both) + bias:permute({ 2, 1, 3 }):reshape(k, 1, 2 * s)
end

local function soft_threshold(z, by)
  return core.relu(z - by) - core.relu(-by - z)
end

function AFNO:forward(x)
  local o, z = self.opt, self.forwards(x)
  local b, f, k, s = z:dim(1), z:dim(2), o.blocks, o.dim // o.blocks
  z = z:reshape(b * f, k, s, 2):permute({ 2, 1, 4, 3 }):reshape(k, b * f, 2 * s)
  z = soft_threshold(map(core.relu(map(z, self.w1, self.b1)), self.w2, self.b2), o.shrink)
  z = z:reshape(k, b * f, 2, s):permute({ 2, 1, 4, 3 }):reshape(b, f, o.dim, 2)
  return x + self.backwards(z, x:dim(2))
end

function AFNO:own_cost(n)
  local o = self.opt
  local flop, numbers = spectrum.cost(o.causal, n, o.dim)
  local frequencies, s = o.causal and n or n // 2 + 1, o.dim // o.blocks
  return flop + 2 * 8.0 * frequencies * o.dim * s, 5 * numbers -- and two maps
end

return { AFNO = AFNO }
