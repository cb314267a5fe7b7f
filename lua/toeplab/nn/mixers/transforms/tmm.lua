-- nn/mixers/transforms/tmm.lua: defines TMM, the token mixer of the Toeplitz MLP Mixer: a map of
-- positions by free Toeplitz matrices.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local heads = require "toeplab.nn.mixers.heads"
local initial = require "toeplab.nn.initial"
local Linear = require("toeplab.nn.linear").Linear
local modes = require "toeplab.nn.mixers.states.modes"
local options = require "toeplab.base.options"
local steps = require "toeplab.nn.mixers.states.steps"
local TNO = require("toeplab.nn.mixers.tno").TNO

-- Returns rows [n,heads] as [n,dim]: the channels of a head share its numbers.
local function spread(rows, dim)
  local n, count = rows:dim(1), rows:dim(2)
  return (rows:reshape(n, count, 1) + core.zeros(1, 1, dim // count)):reshape(n, dim)
end

-- The encoder of TMM: the coefficient of lag l is row l of a table, one number per head.
--   table [length,heads] ~ N(0, 2/length)
local Kernel = class("TMMKernel", {
  dim = options.field { type = "int", min = 1 },
  heads = 1,
  length = options.field { type = "int", min = 1 },
}, { "dim" })

Kernel.domains, Kernel.by_point = { lag = true }, true

function Kernel:build(o)
  local deviation = math.sqrt(2 / o.length)
  self.table = initial.parameter(initial.init.normal(core.zeros(o.length, o.heads), 0, deviation))
end

function Kernel:forward(points)
  return spread(self.table:narrow(1, 1, modes.length(points)), self.opt.dim)
end

-- y = (T (x Wi + bi) + c) Wo + bo,  T_ij = t_(i-j) for j <= i, else 0: per head a triangular
-- Toeplitz matrix of free coefficients and a bias of each position (Badger and Roland 2026,
-- Toeplitz MLP Mixers are low complexity, information-rich sequence models, arXiv 2605.06683).
--   x, y [b,n,dim]   t, c [length,heads]
-- The abstract mentions triangular Toeplitz matrices instead of attention, at n log n steps in
-- training. Heads, maps, the bias c and the initial values come from code that the first author
-- published earlier; the paper's own may differ. The model around it is a Block with a feed-forward
-- layer. A longer sequence than length is an error.
local TMM = class("TMM", {
  dim = options.field { type = "int", min = 1 },
  causal = steps.causal "TMM",
  heads = options.field { default = 1, min = 1 },
  length = options.field { type = "int", min = 1 },
  backend = "rac", -- the plugin that applies the matrices
}, { "dim" })

function TMM:build(o)
  heads.width(self, o.dim)
  self.i = Linear(o.dim, o.dim)
  self.kernel = Kernel(o.dim, { heads = o.heads, length = o.length })
  self.tno = TNO(o.dim, { encoder = self.kernel, decay = "none", backend = o.backend })
  self.bias = initial.parameter(core.zeros(o.length, o.heads))
  self.o = Linear(o.dim, o.dim)
end

function TMM:forward(x)
  local o, n = self.opt, x:dim(2)
  if n > o.length then
    error(("TMM: a sequence of %d tokens is longer than the matrices: length = %d must be at least "
      .. "%d"):format(n, o.length, n), 0)
  end
  return self.o(self.tno(self.i(x)) + spread(self.bias:narrow(1, 1, n), o.dim))
end

TMM.apart = { kernel = true } -- the TNO counts its encoder

TMM.ignores_later = true

return { TMM = TMM }
