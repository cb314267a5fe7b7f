-- nn/mixers/states/hyena.lua: defines Hyena, gates around convolutions whose kernels a network
-- computes from the lag.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local Conv = require("toeplab.nn.mixers.conv").Conv
local initial = require "toeplab.nn.initial"
local Linear = require("toeplab.nn.linear").Linear
local modes = require "toeplab.nn.mixers.states.modes"
local options = require "toeplab.base.options"
local steps = require "toeplab.nn.mixers.states.steps"
local TNO = require("toeplab.nn.mixers.tno").TNO

local init, parameter = initial.init, initial.parameter

-- The encoder of Hyena:  h_l = MLP(z_l) exp(-rate t), t = l/(length-1), where the MLP has the
-- activation sin(freq v), one freq per unit for all layers, and z_l = (t, cos(2 pi f l/length), ..,
-- -sin(2 pi f l/length), ..) for `bands` frequencies f from 1e-4 to bands - 1.
--   freq [width] = 10   skip [1,dim] ~ N(0,1)
-- The rates are fixed and evenly spaced over the channels, so that a kernel falls to 1e-2 after 0.3
-- to 1.5 of length. Lags of `length` and more are further points of the same functions.
local Kernel = class("HyenaKernel", {
  dim = options.field { type = "int", min = 1 },
  length = options.field { type = "int", min = 2, help = "longest sequence" },
  width = options.field { default = 64, min = 1, help = "width of the network of the kernel" },
  bands = options.field { default = 1, min = 1, help = "frequencies among the network's inputs" },
}, { "dim" })

Kernel.domains, Kernel.by_point = { lag = true }, true

local SLOW, FAST, TARGET = 1.5, 0.3, 1e-2

local function features(o, n)
  local rows, decays = {}, {}
  local slow, fast = -math.log(TARGET) / SLOW, -math.log(TARGET) / FAST
  for l = 0, n - 1 do
    local row = { l / (o.length - 1) }
    for band = 0, o.bands - 1 do
      local f = o.bands > 1 and 1e-4 + band * (o.bands - 1 - 1e-4) / (o.bands - 1) or 1e-4
      local angle = 2 * math.pi * f * l / o.length
      row[2 + band], row[2 + o.bands + band] = math.cos(angle), -math.sin(angle)
    end
    rows[l + 1] = row
  end
  for c = 0, o.dim - 1 do
    decays[c + 1] = -(slow + (fast - slow) * c / math.max(o.dim - 1, 1)) / (o.length - 1)
  end
  local lags = core.range(0, n - 1):reshape(n, 1)
  return { core.tensor(rows), core.exp(lags * core.tensor(decays):reshape(1, o.dim)) }
end

function Kernel:build(o)
  modes.prepare(self)
  self.features = cache.recent(function(n) return features(o, n) end)
  self.first = Linear(1 + 2 * o.bands, o.width)
  self.second = Linear(o.width, o.width)
  self.third = Linear(o.width, o.width)
  self.last = Linear(o.width, o.dim, { bias = false })
  self.freq = parameter(core.full({ o.width }, 10))
  self.skip = parameter(init.normal(core.zeros(1, o.dim), 0, 1))
end

function Kernel:forward(points)
  local z, window = table.unpack(self.features(modes.length(points)))
  for _, name in ipairs { "first", "second", "third" } do
    z = core.sin(self[name](z) * self.freq)
  end
  return modes.coefficients(self, self.last(z) * window, nil, self.skip)
end

-- [v, u, w] = conv(x Wi + bi),  y = (w * K(u * v)) Wo + bo: order 2 of the recurrence (Poli et al.
-- 2023, Hyena hierarchy: towards larger convolutional language models, Def. 3.1 and Sec. 3.3).
--   x, y, u, v, w [b,n,dim]   conv: a depthwise convolution of `taps` tokens, with a bias
-- length is the training's, to which the lags are relative. The kernel takes n width^2 + n width
-- dim products, the convolution n log n steps.
local Hyena = class("Hyena", {
  dim = options.field { type = "int", min = 1 },
  causal = steps.causal "Hyena",
  length = Kernel.spec.fields.length,
  width = Kernel.spec.fields.width,
  bands = Kernel.spec.fields.bands,
  taps = options.field { default = 3, min = 1 },
  backend = "rac", -- the plugin that applies the convolution
}, { "dim" })

function Hyena:build(o)
  self.input = Linear(o.dim, 3 * o.dim)
  self.conv = Conv(3 * o.dim, { taps = o.taps })
  self.conv_bias = steps.conv_bias(3 * o.dim, o.taps)
  self.kernel = Kernel(o.dim, { length = o.length, width = o.width, bands = o.bands })
  self.tno = TNO(o.dim, { encoder = self.kernel, decay = "none", backend = o.backend })
  self.o = Linear(o.dim, o.dim)
end

function Hyena:forward(x)
  local d, all = self.opt.dim, self.conv(self.input(x)) + self.conv_bias
  local v, u, w = all:narrow(3, 1, d), all:narrow(3, d + 1, d), all:narrow(3, 2 * d + 1, d)
  return self.o(w * self.tno(u * v))
end

Hyena.stepwise, Hyena.ignores_later = true, true -- only its convolution and its TNO mix positions
Hyena.apart = { kernel = true } -- the TNO counts its encoder

return { Hyena = Hyena }
