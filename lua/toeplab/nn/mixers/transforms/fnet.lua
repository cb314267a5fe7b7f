-- nn/mixers/transforms/fnet.lua: defines the Fourier mixing of FNet, and FNet's whole layer.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local cache = require "toeplab.nn.cache"
local cost = require "toeplab.nn.cost"
local Linear = require("toeplab.nn.linear").Linear
local LayerNorm = require("toeplab.nn.norm").LayerNorm
local matrix = require "toeplab.nn.mixers.transforms.matrix"
local options = require "toeplab.base.options"
local shapes = require "toeplab.nn.shapes"
local spectrum = require "toeplab.nn.mixers.transforms.spectrum"

-- y = Re F_positions F_channels x, neither scaled, without parameters (Lee-Thorp et al. 2022,
-- Eq. 3).   x, y [b,n,dim]
-- It costs n log n per channel. With causal = true and as_published it is a form in the code that
-- TNN compares with, which no table uses: Re tril(conj W_n) (x tril(W_dim)^T) with the unitary
-- Fourier matrices W, which also cuts the channels' matrix to its triangle, and costs n^2.
local FNetMixing = class("FNetMixing", {
  dim = options.field { type = "int", min = 1 },
  causal = false,
  as_published = false,
}, { "dim" })

function FNetMixing:build(o)
  spectrum.check_causal("FNetMixing", o)
  self.positions = cache.recent(spectrum.triangle)
  if o.causal then self.channels = spectrum.triangle(o.dim) end
end

function FNetMixing:forward(x)
  local b, n, d = x:dim(1), x:dim(2), x:dim(3)
  if self.opt.causal then
    local at, over = self.positions(n), self.channels
    local re = matrix.apply(at.re, core.linear(x, over.re))
    return re + matrix.apply(at.im, core.linear(x, over.im))
  end
  local z = shapes.pad(x:reshape(b, n, d, 1), 4, 0, 1)
  return core.fft(core.fft(z, 3), 2):narrow(4, 1, 1):reshape(b, n, d)
end

-- A complex transform costs twice as much as a real one.
function FNetMixing:own_cost(n)
  local d = self.opt.dim
  if self.opt.causal then return 4.0 * n * d * (n + d), 4.0 * n * d end
  return 2 * (n * cost.transform(d) + d * cost.transform(n)), 4.0 * n * d
end

-- z = LN(x + mixing(x)),  y = LN(z + Wo gelu(Wi z)): the layer of FNet.   x, y [b,n,dim]
-- ffn_dim is the width inside, by default 4 dim. The module has its own norms and shortcuts: use it
-- in a Block with the layout none. For causal and as_published see FNetMixing.
local FNet = class("FNet", {
  dim = options.field { type = "int", min = 1 },
  causal = false,
  ffn_dim = options.field { type = "int", min = 1, optional = true },
  init = options.field { type = "function|string", default = "torch" },
  as_published = false,
}, { "dim" })

function FNet:build(o)
  self.mixing = FNetMixing(o.dim, { causal = o.causal, as_published = o.as_published })
  self.mixing_norm = LayerNorm(o.dim)
  self.i = Linear(o.dim, o.ffn_dim or 4 * o.dim, { init = o.init })
  self.o = Linear(o.ffn_dim or 4 * o.dim, o.dim, { init = o.init })
  self.output_norm = LayerNorm(o.dim)
end

function FNet:forward(x)
  local z = self.mixing_norm(x + self.mixing(x))
  return self.output_norm(z + self.o(core.gelu(self.i(z))))
end

return { FNetMixing = FNetMixing, FNet = FNet }
