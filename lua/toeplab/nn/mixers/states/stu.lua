-- nn/mixers/states/stu.lua: defines STU, the spectral transform unit, a convolution with fixed
-- filters.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local initial = require "toeplab.nn.initial"
local modes = require "toeplab.nn.mixers.states.modes"
local options = require "toeplab.base.options"
local spectral = require "toeplab.nn.mixers.states.spectral"
local TNO = require("toeplab.nn.mixers.tno").TNO
local steps = require "toeplab.nn.mixers.states.steps"

local function fields(backend)
  return {
    dim = options.field { type = "int", min = 1 },
    causal = steps.causal "STU",
    length = options.field { type = "int", min = 1 },
    filters = options.field { default = 24, min = 1, max = 64, help = "fixed filters" },
    backend = backend, -- the plugin that applies the convolution
  }
end

-- The encoder of STU:  K_l = sum_k phi_k(l) (m_k + (-1)^l m'_k), where phi_k is the k-th
-- eigenvector of a Hankel matrix of size length times the fourth root of its eigenvalue
-- (spectral.lua): with these filters a system of any memory length is learnt as a linear map of few
-- numbers (Agarwal et al. 2023, Spectral state space models, Sec. 3).
--   m [2 filters,dim]: m over m'
local Kernel = class("STUKernel", fields(), { "dim" })

Kernel.domains, Kernel.by_point = { lag = true }, true

-- [length,2 filters]: filter k, and the same with alternating signs
local function bank(o)
  local list, rows = spectral.filters(o.length, o.filters), {}
  for l = 1, o.length do
    rows[l] = {}
    for k = 1, o.filters do
      rows[l][k] = list[k][l]
      rows[l][o.filters + k] = l % 2 == 1 and list[k][l] or -list[k][l]
    end
  end
  return core.tensor(rows)
end

function Kernel:build(o)
  if o.filters > o.length then
    error(("STU: %d filters need a length of at least %d, not %d"):format(o.filters, o.filters,
      o.length), 0)
  end
  local deviation = math.sqrt(2 / (o.filters + o.dim))
  self.hankel = { bank(o) } -- in a table, because it is neither trained nor saved
  self.m = initial.parameter(initial.init.normal(core.zeros(2 * o.filters, o.dim), 0, deviation))
end

function Kernel:forward(points)
  local o, n = self.opt, modes.length(points)
  if n > o.length then
    error(("STU: a sequence of %d tokens is longer than the filters: length = %d must be at least "
      .. "%d"):format(n, o.length, n), 0)
  end
  return core.matmul(self.hankel[1]:narrow(1, 1, n), self.m)
end

function Kernel:own_cost(p)
  return 4.0 * p * self.opt.filters * self.opt.dim, 0.0
end

-- y = K(x W).   x, y [b,n,dim]   W [dim,dim] ~ N(0, 1/dim)
-- The paper has a matrix [dim,dim] for each filter; this module has the product of one matrix and
-- one number per channel and filter (Liu et al. 2024, Flash STU: fast spectral transform units,
-- Sec. 3: "tensordot"), without the paper's terms in the last two outputs. The kernel takes 2 n
-- filters dim products, the convolution n log n. Building a layer takes less than a second.
local STU = class("STU", fields "rac", { "dim" })

function STU:build(o)
  self.input = initial.parameter(initial.init.normal(core.zeros(o.dim, o.dim), 0,
    math.sqrt(1 / o.dim)))
  self.kernel = Kernel(o.dim, { length = o.length, filters = o.filters })
  self.tno = TNO(o.dim, { encoder = self.kernel, decay = "none", backend = o.backend })
end

function STU:forward(x)
  return self.tno(core.linear(x, self.input))
end

STU.apart = { kernel = true } -- the TNO counts its encoder

function STU:own_cost(n)
  local d = self.opt.dim
  return 2.0 * n * d * d, 1.0 * n * d
end

STU.stepwise, STU.ignores_later = true, true -- only its TNO mixes positions

return { STU = STU }
