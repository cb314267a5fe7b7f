-- nn/position.lua: defines the sinusoidal position encoding and the bias of ALiBi.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local options = require "toeplab.base.options"

-- y = x + P,  P[i,2j] = sin(i 10000^(-2j/dim)),  P[i,2j+1] = cos of the same (Vaswani et al. 2017).
--   x, y [b,n,dim]
local Sinusoidal = class("Sinusoidal", { dim = options.field { type = "int", min = 2 } }, { "dim" })

local function sinusoids(n, dim)
  local f = {}
  for j = 1, (dim + 1) // 2 do f[j] = 10000 ^ (-2 * (j - 1) / dim) end
  local angle = core.range(0, n - 1):reshape(n, 1) * core.tensor(f):reshape(1, -1)
  local sin, cos = core.sin(angle):reshape(n, -1, 1), core.cos(angle):reshape(n, -1, 1)
  return core.concat({ sin, cos }, 3):reshape(n, -1):narrow(2, 1, dim)
end

function Sinusoidal:build(o)
  self.tables = cache.recent(function(n) return sinusoids(n, o.dim) end)
end

function Sinusoidal:forward(x)
  return x + self.tables(x:dim(2))
end

-- Returns the slopes of ALiBi (Press et al. 2022). For a power of 2 of h heads they are 2^(-8/h),
-- 2^(-16/h), ...; else those of the next lower power of 2, then every other one of the next higher.
local function alibi_slopes(heads)
  local below = 1
  while below * 2 <= heads do below = below * 2 end
  local slopes = {}
  for i = 1, below do slopes[i] = 2 ^ (-8 * i / below) end
  for i = 1, heads - below do slopes[below + i] = 2 ^ (-4 * (2 * i - 1) / below) end
  return slopes
end

-- Returns the bias of ALiBi, -slope_h |i-j|: [h,n,n].
local function alibi_bias(heads, n)
  local at = core.range(0, n - 1)
  local distance = core.abs(at:reshape(n, 1) - at:reshape(1, n)):reshape(1, n, n)
  return -(core.tensor(alibi_slopes(heads)):reshape(heads, 1, 1) * distance)
end

return { Sinusoidal = Sinusoidal, alibi_slopes = alibi_slopes, alibi_bias = alibi_bias }
