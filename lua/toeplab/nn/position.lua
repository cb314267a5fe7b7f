-- nn/position.lua: defines the encodings of positions: sinusoidal and learned ones that are added
-- to x, rotary ones that turn queries and keys, and the bias of ALiBi.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local carry = require "toeplab.nn.mixers.carry"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"

-- y = x + P, where row i of P belongs to position p = i + first, i from 0.   x, y [b,n,dim]
-- form selects the sinusoids of P:
--   "interleaved"  P[i,2j] = sin(p 10000^(-2j/dim)), P[i,2j+1] = cos of the same (Vaswani et al.
--                  2017)
--   "halves"       all sines, then all cosines, of p 10000^(-k/(dim//2-1)), k < dim//2; an odd dim
--                  leaves a last column of 0. This is fairseq's, whose first position is 2, because
--                  rows 0 and 1 of its table belong to padding.
local Sinusoidal = class("Sinusoidal", {
  dim = options.field { type = "int", min = 2 },
  form = options.field { default = "interleaved", choices = { "interleaved", "halves" },
    help = "sines and cosines alternating, or all sines first" },
  first = options.field { default = 0, min = 0, help = "position of the first token" },
}, { "dim" }, "x [b,n,dim] -> [b,n,dim]: adds sines and cosines of the position")

-- Returns the sines and the cosines of (first + i) f_k: [n,#f] each.
local function sincos(first, n, f)
  local angle = core.range(first, first + n - 1):reshape(n, 1) * core.tensor(f):reshape(1, -1)
  return core.sin(angle), core.cos(angle)
end

local function interleaved(first, n, dim)
  local f = {}
  for j = 1, (dim + 1) // 2 do f[j] = 10000 ^ (-2 * (j - 1) / dim) end
  local sin, cos = sincos(first, n, f)
  return core.concat({ sin:reshape(n, -1, 1), cos:reshape(n, -1, 1) }, 3):reshape(n, -1)
    :narrow(2, 1, dim)
end

local function halves(first, n, dim)
  local f = {}
  for k = 0, dim // 2 - 1 do f[k + 1] = 10000 ^ (-k / (dim // 2 - 1)) end
  local sin, cos = sincos(first, n, f)
  return core.concat(dim % 2 == 0 and { sin, cos } or { sin, cos, core.zeros(n, 1) }, 2)
end

local encodings = { interleaved = interleaved, halves = halves }

function Sinusoidal:build(o)
  if o.form == "halves" and o.dim < 4 then
    error(("Sinusoidal: form = 'halves' divides by dim//2 - 1, so dim = %d must be at least 4")
      :format(o.dim), 0)
  end
  self.tables = cache.recent(function(n) return encodings[o.form](o.first, n, o.dim) end)
end

function Sinusoidal:forward(x)
  local o, n = self.opt, x:dim(2)
  local before = carry.advance(self.carry, n)
  return x + (before == 0 and self.tables(n) or encodings[o.form](o.first + before, n, o.dim))
end

Sinusoidal.carries, Sinusoidal.grows = true, true

-- y = x + P, where row i of P is row i + first of weight [max_length+first,dim] ~ N(0, 0.02^2).
--   x, y [b,n,dim], n <= max_length
-- fairseq has first = 2: its rows 0 and 1 belong to padding.
local Learned = class("Learned", {
  dim = options.field { type = "int", min = 1 },
  max_length = options.field { default = 512, min = 1 },
  first = options.field { default = 0, min = 0, help = "position of the first token" },
}, { "dim", "max_length" }, "x [b,n,dim] -> [b,n,dim]: adds a trained vector for each position")

function Learned:build(o)
  local weight = core.zeros(o.max_length + o.first, o.dim)
  self.weight = initial.parameter(initial.init.normal(weight, 0, 0.02))
end

local function check_length(self, n)
  if n > self.opt.max_length then
    error(("Learned: x has %d positions, but max_length = %d: set max_length to the longest "
      .. "length"):format(n, self.opt.max_length), 0)
  end
end

function Learned:forward(x)
  local n = x:dim(2)
  local before = carry.advance(self.carry, n)
  check_length(self, before + n)
  return x + self.weight:narrow(1, 1 + self.opt.first + before, n)
end

Learned.carries, Learned.grows = true, true

function Learned:own_cost(n)
  check_length(self, n)
  return 0.0, 0.0
end

-- Returns the sines and cosines of the angles of n positions from `first`: [n,half] each. The
-- angles are reduced in float64, as their rounding would otherwise grow with the position.
local function turns(first, n, half)
  local angles = {}
  for i = 0, n - 1 do
    local row = {}
    for k = 0, half - 1 do row[k + 1] = (first + i) * 10000 ^ (-k / half) % (2 * math.pi) end
    angles[i + 1] = row
  end
  local angle = core.tensor(angles)
  return { sin = core.sin(angle), cos = core.cos(angle) }
end

-- Returns a function (x, first) that turns each pair (x_k, x_(k+dim/2)) of row i, counted from 0,
-- by the angle (first + i) 10000^(-2k/dim) (Su et al. 2021); first: by default 0.
--   x, y [..,n,dim], dim even
local function rotary(dim)
  local half = dim // 2
  local tables = cache.recent(function(n) return turns(0, n, half) end)
  return function(x, first)
    local n = x:dim(-2)
    local t = (first or 0) == 0 and tables(n) or turns(first, n, half)
    local a, b = x:narrow(-1, 1, half), x:narrow(-1, half + 1, half)
    return core.concat({ a * t.cos - b * t.sin, b * t.cos + a * t.sin }, -1)
  end
end

-- Returns the slopes of ALiBi (Press et al. 2022). For h heads, a power of 2, they are 2^(-8/h),
-- 2^(-16/h), ...; else the next lower power of 2's, then every other one of the next higher's.
local function alibi_slopes(heads)
  local below = 1
  while below * 2 <= heads do below = below * 2 end
  local slopes = {}
  for i = 1, below do slopes[i] = 2 ^ (-8 * i / below) end
  for i = 1, heads - below do slopes[below + i] = 2 ^ (-4 * (2 * i - 1) / below) end
  return slopes
end

-- Returns the bias of ALiBi, -slope_h |i-j|, of queries i and keys j from 0 to n - 1: [h,n,n].
local function alibi_bias(heads, n)
  local at = core.range(0, n - 1)
  local distance = core.abs(at:reshape(n, 1) - at:reshape(1, n)):reshape(1, n, n)
  return -(core.tensor(alibi_slopes(heads)):reshape(heads, 1, 1) * distance)
end

-- Returns the same by lags i - j, from before + n - 1 down to 1 - n, as core.attention takes it for
-- n queries after `before` others: [h,before+2n-1].
local function alibi_lags(heads, before, n)
  local distance = core.abs(core.range(1 - before - n, n - 1)):reshape(1, -1)
  return -(core.tensor(alibi_slopes(heads)):reshape(heads, 1) * distance)
end

return {
  Sinusoidal = Sinusoidal, Learned = Learned, rotary = rotary, sincos = sincos,
  alibi_slopes = alibi_slopes, alibi_bias = alibi_bias, alibi_lags = alibi_lags,
}
