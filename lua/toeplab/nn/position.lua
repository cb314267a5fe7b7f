-- nn/position.lua: defines the sinusoidal and the learned position encoding and the bias of ALiBi.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"

-- Returns the angles i f_j, [n,#f], of the positions i = first .. first + n - 1.
local function angles(first, n, f)
  return core.range(first, first + n - 1):reshape(n, 1) * core.tensor(f):reshape(1, -1)
end

-- The tables of n positions, [n,dim], by form.
local forms = {}

function forms.interleaved(n, dim)
  local f = {}
  for j = 1, (dim + 1) // 2 do f[j] = 10000 ^ (-2 * (j - 1) / dim) end
  local angle = angles(0, n, f)
  local sin, cos = core.sin(angle):reshape(n, -1, 1), core.cos(angle):reshape(n, -1, 1)
  return core.concat({ sin, cos }, 3):reshape(n, -1):narrow(2, 1, dim)
end

function forms.fairseq(n, dim)
  local half, f = dim // 2, {}
  for k = 1, half do f[k] = 10000 ^ (-(k - 1) / math.max(half - 1, 1)) end
  local angle = angles(2, n, f)
  return core.concat({ core.sin(angle), core.cos(angle), core.zeros(n, dim - 2 * half) }, 2)
end

-- y = x + P (Vaswani et al. 2017).   x, y [b,n,dim]
--   form "interleaved": P[i,2j] = sin(i 10000^(-2j/dim)), P[i,2j+1] = cos of the same
--   form "fairseq": P[i,k] = sin((i+2) 10000^(-k/(h-1))), P[i,h+k] = cos of the same, h = dim/2; of
--     an odd dim the last column is 0. Positions begin at 2, since fairseq keeps 1 for padding.
local Sinusoidal = class("Sinusoidal", {
  dim = options.field { type = "int", min = 2 },
  form = options.field { default = "interleaved", choices = { "interleaved", "fairseq" } },
}, { "dim" })

function Sinusoidal:build(o)
  self.tables = cache.recent(function(n) return forms[o.form](n, o.dim) end)
end

function Sinusoidal:forward(x)
  return x + self.tables(x:dim(2))
end

-- y_i = x_i + weight[i+2].   x, y [b,n,dim], n <= length   weight [length+2,dim] ~ N(0, 0.02^2)
-- Rows 0 and 1 are unused: fairseq gives row 1 to padding, whose state its model then sets to 0.
-- Padding must stand at the end of a row, so that it shifts no token.
local LearnedPositions = class("LearnedPositions", {
  dim = options.field { type = "int", min = 1 },
  length = options.field { default = 512, min = 1 },
}, { "dim", "length" })

function LearnedPositions:build(o)
  local weight = initial.init.normal(core.zeros(o.length + 2, o.dim), 0, 0.02)
  self.weight = initial.parameter(weight)
end

function LearnedPositions:forward(x)
  local n, length = x:dim(2), self.opt.length
  if n > length then
    error(("LearnedPositions: a sequence has %d positions, and %d are learned: set max_length of "
      .. "the model to the longest length"):format(n, length), 0)
  end
  return x + self.weight:narrow(1, 3, n)
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

return {
  Sinusoidal = Sinusoidal, LearnedPositions = LearnedPositions, alibi_slopes = alibi_slopes,
  alibi_bias = alibi_bias,
}
