-- nn/mixers/transforms/tmm.lua: defines TMM, the token mixer of the Toeplitz MLP Mixer: a map of
-- positions by free Toeplitz matrices.

local act = require "toeplab.nn.act"
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
--   table [length,heads] ~ N(0, 2/length); N(0, 1) for an activation of the coefficients
local Kernel = class("TMMKernel", {
  dim = options.field { type = "int", min = 1 },
  heads = 1,
  length = options.field { type = "int", min = 1 },
  deviation = 1.0,
}, { "dim" })

Kernel.domains, Kernel.by_point = { lag = true }, true

function Kernel:build(o)
  local rows = core.zeros(o.length, o.heads)
  self.table = initial.parameter(initial.init.normal(rows, 0, o.deviation))
end

function Kernel:forward(points)
  return spread(self.table:narrow(1, 1, modes.length(points)), self.opt.dim)
end

-- y = (T (x Wi + bi) + c) Wo + bo,  T_ij = act(t_(i-j)) for j <= i, else 0: per head a triangular
-- Toeplitz matrix of free coefficients and a bias of each position (Badger and Roland 2026,
-- Toeplitz MLP Mixers are low complexity, information-rich sequence models, arXiv 2605.06683, and
-- their code).
--   x, y [b,n,dim]   t, c [length,heads]
-- The other forms of their code: maps = false leaves out W and b; expanded has T' silu(T x + c) +
-- c' for T x + c; act = "softplus" keeps the coefficients above 0, and normalize divides (T x)_i by
-- (T 1)_i, the mean of their later code, whose Wo has no bias. The model around it is a Block
-- with a feed-forward layer, in their first code before the token mixer (feature_first). A longer
-- sequence than length is an error.
local TMM = class("TMM", {
  dim = options.field { type = "int", min = 1 },
  causal = steps.causal "TMM",
  heads = options.field { default = 1, min = 1 },
  length = options.field { type = "int", min = 1 },
  maps = options.field { default = true,
    help = "linear maps of the channels before and after the matrices" },
  expanded = options.field { default = false,
    help = "two matrices in turn, with silu between them" },
  act = options.field { default = "none", choices = act.act_option "none".choices,
    help = "activation of the coefficients" },
  normalize = options.field { default = false,
    help = "divide by the sums of the coefficients" },
  backend = "rac", -- the plugin that applies the matrices
}, { "dim" })

-- Adds the matrices of one product, with their bias, to a mixer under names with a suffix.
local function add_product(self, o, suffix)
  local kernel = Kernel(o.dim, { heads = o.heads, length = o.length,
    deviation = o.act == "none" and math.sqrt(2 / o.length) or 1.0 })
  self["kernel" .. suffix] = kernel
  self["tno" .. suffix] = TNO(o.dim, { encoder = kernel, decay = "none", backend = o.backend,
    act = o.act, normalize = o.normalize })
  self["bias" .. suffix] = initial.parameter(core.zeros(o.length, o.heads))
end

function TMM:build(o)
  heads.width(self, o.dim)
  if o.maps then self.i = Linear(o.dim, o.dim) end
  add_product(self, o, "")
  if o.expanded then add_product(self, o, "_after") end
  if o.maps then self.o = Linear(o.dim, o.dim) end
end

function TMM:forward(x)
  local o, n = self.opt, x:dim(2)
  if n > o.length then
    error(("TMM: a sequence of %d tokens is longer than the matrices: length = %d must be at least "
      .. "%d"):format(n, o.length, n), 0)
  end
  local function product(y, suffix)
    return self["tno" .. suffix](y) + spread(self["bias" .. suffix]:narrow(1, 1, n), o.dim)
  end
  local y = product(o.maps and self.i(x) or x, "")
  if o.expanded then y = product(core.silu(y), "_after") end
  return o.maps and self.o(y) or y
end

TMM.apart = { kernel = true, kernel_after = true } -- the TNOs count their encoders

TMM.ignores_later = true

return { TMM = TMM }
