-- nn/mixers/states/dss.lua: defines DSS, a diagonal state space layer whose kernel is a softmax.

local core = require "toeplab.core"
local class = require("toeplab.nn.class").class
local complex = require "toeplab.nn.complex"
local hippo = require "toeplab.nn.mixers.states.hippo"
local initial = require "toeplab.nn.initial"
local layer = require "toeplab.nn.mixers.states.layer"
local modes = require "toeplab.nn.mixers.states.modes"
local options = require "toeplab.base.options"

local init, parameter = initial.init, initial.parameter

-- The encoder of DSS:  K_l = Re sum_k W_k / L_k softmax over l of (z_k l)  with
-- z = dt_1 Re L + i dt_2 Im L (Gupta et al. 2022, Diagonal state spaces are as effective as
-- structured state spaces, Eq. 9 and Prop. 1): the softmax is exp(z l - p z (n-1)) times
-- (e^(s z) - 1) / (e^(s z n) - 1) with p = 1, s = -1 where Re L > 0, else p = 0, s = 1. A division
-- by q is by q + eps/conj q. K depends on the length n.
--   log_dt [dim,2]   lambda [state,2]   w [1 or 2,dim,state,2]   skip [1,dim]
-- With as_published, the z of p z (n-1) is a constant to the gradient, which then differs from the
-- softmax's where Re L > 0.
local Kernel = class("DSSKernel", modes.fields {
  eps = options.field { default = 1e-7, min = 0 },
  as_published = false,
}, { "dim" })

Kernel.domains = { lag = true }

function Kernel:build(o)
  modes.prepare(self)
  local lambda = {}
  for k, w in ipairs(hippo.frequencies(2 * o.state)) do lambda[k] = { -0.5, w } end
  local log_dt = modes.log_dt(o.dim, 1)
  self.log_dt = parameter(core.concat({ log_dt, log_dt }, 2):view(0, { o.dim, 2 }))
  self.lambda = parameter(core.tensor(lambda))
  self.w = parameter(init.normal(core.zeros(o.causal and 1 or 2, o.dim, o.state, 2), 0, 1))
  self.skip = parameter(init.normal(core.zeros(1, o.dim), 0, 1))
end

-- 1 where x > 0, else 0
local function positive(x)
  return core.no_grad(function()
    return core.relu(x) / core.max(core.abs(x), core.full({ 1 }, 1e-30))
  end)
end

-- (e^(s z) - 1) / ((e^(s z n) - 1) L), as its two parts [dim,state]
local function weights(self, l_re, l_im, z_re, z_im, sign, n)
  local up_re, up_im = modes.expm1(z_re, z_im, sign)
  local q_re, q_im = modes.expm1(z_re, z_im, core.affine(sign, n, 0))
  q_re, q_im = complex.times(q_re, q_im, l_re, l_im)
  local size = core.affine(q_re * q_re + q_im * q_im, 1, self.opt.eps)
  return complex.times(up_re, up_im, q_re / size, -q_im / size)
end

function Kernel:forward(points)
  local o, n = self.opt, modes.length(points)
  local d, s, g = o.dim, o.state, self.grid(n)
  local dt = core.exp(self.log_dt)
  local l_re, l_im = complex.parts(self.lambda)
  local z_re, z_im = l_re * dt:narrow(2, 1, 1), l_im * dt:narrow(2, 2, 1)
  local p = positive(l_re)
  local u_re, u_im = weights(self, l_re, l_im, z_re, z_im, core.affine(p, -2, 1), n)
  z_re, z_im, p = z_re:reshape(d, 1, s), z_im:reshape(d, 1, s), p:reshape(1, 1, s)
  -- The two lags of a growing mode are at most step, so that neither exponential overflows.
  local coarse = { modes.exp(z_re, z_im, g.coarse - core.affine(p, n - g.step, 0),
    o.as_published and g.coarse or nil) }
  local fine = { modes.exp(z_re, z_im, g.fine - core.affine(p, g.step - 1, 0),
    o.as_published and g.fine or nil) }
  local function kernel(direction)
    local w_re, w_im = complex.parts(self.w:narrow(1, direction, 1):reshape(d, s, 2))
    return modes.kernel({ complex.times(w_re, w_im, u_re, u_im) }, coarse, fine, n)
  end
  return modes.coefficients(self, kernel(1), not o.causal and kernel(2), self.skip)
end

function Kernel:own_cost(p)
  return modes.kernel_cost(p, self.opt.dim, self.opt.state)
end

-- y = Wo gelu(K x) + bo (layer.lua).   x, y [b,n,dim]
-- The modes are complex without conjugate pairs. The kernel takes n^0.5 state dim exponentials and
-- n state dim products, the convolution n log n.
local DSS = layer.linear("DSS", Kernel)
DSS.by_kernel_length = true -- its coefficients change with the length

return { DSS = DSS }
