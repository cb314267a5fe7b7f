-- nn/mixers/transforms/gfnet.lua: defines GFNet's global filter, which multiplies frequencies.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local cache = require "toeplab.nn.cache"
local complex = require "toeplab.nn.complex"
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local shapes = require "toeplab.nn.shapes"
local spectrum = require "toeplab.nn.mixers.transforms.spectrum"

-- y = F^-1 (filter * F x) along the positions (Rao et al. 2021, Eq. 6).
--   x, y [b,n,dim]   filter [length/2+1,dim,2], complex, ~ N(0, 0.02^2)
-- It costs n log n per channel. The filter holds for sequences of the given length; for another n
-- it is interpolated linearly between its frequencies, as the paper does for other resolutions.
-- With as_published, row m of the filter multiplies frequency m of any n, so that the operator
-- changes with the length, and frequencies beyond its rows become 0. causal = true exists with
-- as_published only (spectrum.lua).
local GFNet = class("GFNet", {
  dim = options.field { type = "int", min = 1 },
  causal = false,
  length = options.field { default = 512, min = 1,
    help = "length of the filter, which is interpolated for other lengths" },
  as_published = false,
}, { "dim" })

-- Returns how the rows m/length of a filter are interpolated at the frequencies m/n: the rows low
-- and high around each, and the share [n/2+1,1] of high. Beyond the last row, which an odd length
-- has below 1/2, the filter is constant.
local function interpolation(n, length)
  local low, high, share, last = {}, {}, {}, length // 2
  for m = 0, n // 2 do
    local at = math.min(m * length / n, last)
    low[m + 1] = at // 1 | 0
    high[m + 1] = math.min(low[m + 1] + 1, last)
    share[m + 1] = at - low[m + 1]
  end
  return { low = core.ids(low), high = core.ids(high), share = core.tensor(share):reshape(-1, 1) }
end

function GFNet:build(o)
  spectrum.check_causal("GFNet", o)
  local filter = initial.init.normal(core.zeros(o.length // 2 + 1, o.dim, 2), 0, 0.02)
  self.filter = initial.parameter(filter)
  self.forwards, self.backwards = spectrum.transforms(o.causal)
  self.between = cache.recent(function(n) return interpolation(n, o.length) end)
end

-- Returns the filter for f frequencies of length n, [f,dim,2], or fewer rows: the rest are 0.
local function filter(self, n, f)
  local rows, dim = self.filter:dim(1), self.opt.dim
  if not self.opt.as_published and n ~= self.opt.length then
    local flat, at = self.filter:reshape(rows, 2 * dim), self.between(n)
    local y = flat:gather(at.low) * (1 - at.share) + flat:gather(at.high) * at.share
    return y:reshape(f, dim, 2)
  end
  return rows > f and self.filter:narrow(1, 1, f) or self.filter
end

function GFNet:forward(x)
  local n, z = x:dim(2), self.forwards(x)
  local f = z:dim(2)
  local w = filter(self, n, f)
  local m = w:dim(1)
  local re, im = complex.parts(m < f and z:narrow(2, 1, m) or z)
  local y = complex.join(complex.times(re, im, complex.parts(w)))
  return self.backwards(shapes.pad(y, 2, 0, f - m), n)
end

function GFNet:own_cost(n)
  local o = self.opt
  local flop, numbers = spectrum.cost(o.causal, n, o.dim)
  return flop + 6.0 * (o.causal and n or n // 2 + 1) * o.dim, 3 * numbers
end

return { GFNet = GFNet }
