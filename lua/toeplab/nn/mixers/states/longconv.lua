-- nn/mixers/states/longconv.lua: defines LongConv, a convolution whose kernel is learnt directly.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local Dropout = require("toeplab.nn.dropout").Dropout
local initial = require "toeplab.nn.initial"
local Linear = require("toeplab.nn.linear").Linear
local modes = require "toeplab.nn.mixers.states.modes"
local options = require "toeplab.base.options"
local TNO = require("toeplab.nn.mixers.tno").TNO

local init, parameter = initial.init, initial.parameter

-- Returns the options of the layer or, without a backend, of its kernel.
local function fields(backend)
  return {
    dim = options.field { type = "int", min = 1 },
    causal = true,
    length = options.field { type = "int", min = 1 },
    squash = options.field { default = 0.003, min = 0,
    help = "amount by which the kernel shrinks towards 0" },
    dropout = options.field { default = 0.2, min = 0, max = 0.999,
    help = "probability of setting a number of the kernel to 0 in training" },
    backend = backend, -- the plugin that applies the convolution
  }
end

-- The encoder of LongConv:  K_l = sign(k_l) max(|k_l| - squash, 0), then dropout of the kernel.
--   k [1 or 2,length,dim] ~ N(0, 0.002^2)   skip [1,dim] ~ N(0,1)
-- The kernel has the lags below length; a longer sequence is an error.
local Kernel = class("LongConvKernel", fields(), { "dim" })

Kernel.domains, Kernel.by_point = { lag = true }, true

function Kernel:build(o)
  modes.prepare(self)
  self.k = parameter(init.normal(core.zeros(o.causal and 1 or 2, o.length, o.dim), 0, 0.002))
  self.skip = parameter(init.normal(core.zeros(1, o.dim), 0, 1))
  if o.dropout > 0 then self.drop = Dropout(o.dropout) end
end

function Kernel:forward(points)
  local o, n = self.opt, modes.length(points)
  if n > o.length then
    error(("LongConv: a sequence of %d tokens is longer than the kernel: length = %d must be at "
      .. "least %d"):format(n, o.length, n), 0)
  end
  local function kernel(direction)
    local k = self.k:narrow(1, direction, 1):reshape(o.length, o.dim):narrow(1, 1, n)
    k = core.relu(core.affine(k, 1, -o.squash)) - core.relu(core.affine(k, -1, -o.squash))
    return self.drop and self.drop(k) or k
  end
  return modes.coefficients(self, kernel(1), not o.causal and kernel(2), self.skip)
end

-- y = GLU(Wo gelu(K x) + bo), as S4 (Fu et al. 2023, Simple hardware-efficient long convolutions
-- for sequence modeling, Sec. 3).   x, y [b,n,dim]
-- The convolution takes n log n steps; parameters grow with length.
local LongConv = class("LongConv", fields "rac", { "dim" })
LongConv.ignores_zeros = true

function LongConv:build(o)
  self.kernel = Kernel(o.dim, { causal = o.causal, length = o.length, squash = o.squash,
    dropout = o.dropout })
  self.tno = TNO(o.dim, { encoder = self.kernel, causal = o.causal, decay = "none",
    backend = o.backend })
  self.o = Linear(o.dim, 2 * o.dim)
end

function LongConv:forward(x)
  return modes.glu(self.o(core.gelu(self.tno(x))))
end

LongConv.apart = { kernel = true } -- the TNO counts its encoder
LongConv.stepwise = true -- only its TNO mixes positions

return { LongConv = LongConv }
