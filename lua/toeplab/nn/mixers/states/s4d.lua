-- nn/mixers/states/s4d.lua: defines S4D, a diagonal state space layer.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local complex = require "toeplab.nn.complex"
local initial = require "toeplab.nn.initial"
local layer = require "toeplab.nn.mixers.states.layer"
local modes = require "toeplab.nn.mixers.states.modes"
local options = require "toeplab.base.options"

local init, parameter = initial.init, initial.parameter

-- The encoder of S4D:  K_l = 2 Re sum_k C_k (exp(dt A_k) - 1)/A_k exp(dt A_k l),
-- A_k = -exp(a_k) + i w_k, zero-order hold (Gu et al. 2022, On the parameterization and
-- initialization of diagonal state space models, Eq. 3 and Sec. 3).
--   log_dt [dim]   a, w [copies,m], m = state/2   c [1 or 2,dim,m,2]   skip [1,dim]
-- Initially A is S4D-Lin's, -1/2 + i pi k; C is complex normal times a complex normal B with 2 sum
-- |B_k/A_k|^2 = 1.
local Kernel = class("S4DKernel", modes.fields {
  state = modes.even_state(),
  copies = options.field { type = "int", min = 1, optional = true,
    help = "1: all channels share their modes (default: dim, each has its own)" },
}, { "dim" })

Kernel.domains, Kernel.by_point = { lag = true }, true

-- Complex normal C times the normalised B, whose phases C absorbs.   [directions,dim,m,2]
local function initial_c(o, m)
  local sizes = {}
  for k = 1, m do sizes[k] = 1 / (0.25 + (math.pi * (k - 1)) ^ 2) end
  local b = modes.complex_normal(o.dim, m, 2)
  local power = (b * b):sum(-1)
  local norm = core.sqrt(core.affine((power * core.tensor(sizes)):sum(-1, true), 2, 1e-30))
  local scale = (core.sqrt(power) / norm):reshape(1, o.dim, m, 1)
  return parameter(modes.complex_normal(o.causal and 1 or 2, o.dim, m, 2) * scale)
end

function Kernel:build(o)
  local m, copies = o.state // 2, o.copies or o.dim
  if o.dim % copies ~= 0 or (copies ~= 1 and copies ~= o.dim) then
    error(("S4D: copies = %d must be 1 or dim = %d"):format(copies, o.dim), 0)
  end
  modes.prepare(self)
  self.log_dt = modes.log_dt(o.dim)
  self.a = parameter(core.full({ copies, m }, math.log(0.5)))
  self.w = modes.repeated(core.affine(core.range(0, m - 1), math.pi, 0), copies)
  self.c = core.no_grad(initial_c, o, m)
  self.skip = parameter(init.normal(core.zeros(1, o.dim), 0, 1))
end

function Kernel:forward(points)
  local d, n = self.opt.dim, modes.length(points)
  local m, dt, re = self.opt.state // 2, core.exp(self.log_dt):reshape(d, 1), -core.exp(self.a)
  local z_re, z_im = re * dt, self.w * dt
  local hold_re, hold_im = modes.expm1(z_re, z_im, core.ones(1, 1))
  hold_re, hold_im = complex.over(hold_re, hold_im, re, self.w)
  local g = self.grid(n)
  z_re, z_im = z_re:reshape(d, 1, m), z_im:reshape(d, 1, m)
  local coarse, fine = { modes.exp(z_re, z_im, g.coarse) }, { modes.exp(z_re, z_im, g.fine) }
  local function kernel(direction)
    local c_re, c_im = complex.parts(self.c:narrow(1, direction, 1):reshape(d, m, 2))
    local w = { complex.times(c_re, c_im, hold_re, hold_im) }
    return core.affine(modes.kernel(w, coarse, fine, n), 2, 0)
  end
  return modes.coefficients(self, kernel(1), not self.opt.causal and kernel(2), self.skip)
end

function Kernel:own_cost(p)
  return modes.kernel_cost(p, self.opt.dim, self.opt.state // 2)
end

-- y = GLU(Wo gelu(K x) + bo) (layer.lua).   x, y [b,n,dim]   o [2 dim,dim]
-- With copies = 1 all channels share one A; by default each has its own. The kernel takes
-- n^0.5 state dim exponentials and n state dim products, the convolution n log n.
local S4D = layer.glu("S4D", Kernel)
S4D.ignores_zeros = true

return { S4D = S4D }
