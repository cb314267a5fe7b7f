-- nn/mixers/states/gss.lua: defines GSS, a gated unit around a diagonal state space.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local complex = require "toeplab.nn.complex"
local initial = require "toeplab.nn.initial"
local Linear = require("toeplab.nn.linear").Linear
local modes = require "toeplab.nn.mixers.states.modes"
local norms = require "toeplab.nn.norm"
local options = require "toeplab.base.options"
local shapes = require "toeplab.nn.shapes"
local TNO = require("toeplab.nn.mixers.tno").TNO

local init, parameter = initial.init, initial.parameter

-- The encoder of GSS:  K_l = Re sum_k C_k (exp(z_k) - 1)/z_k exp(z_k l), z_k = -exp(a_k) + i
-- exp(w_k), one set of modes for all channels and no step.
--   a, w [state]   c [dim,state,2]   skip [1,dim], all ~ N(0,1)
-- If not causal, the kernel acts in both directions, so that lag 0 and skip count twice.
local Kernel = class("GSSKernel", modes.fields {}, { "dim" })

Kernel.domains, Kernel.by_point = { lag = true }, true

local function lags(n) return core.range(0, n - 1):reshape(n, 1) end

function Kernel:build(o)
  modes.prepare(self)
  self.lags = cache.recent(lags)
  self.a = parameter(init.normal(core.zeros(o.state), 0, 1))
  self.w = parameter(init.normal(core.zeros(o.state), 0, 1))
  self.c = parameter(init.normal(core.zeros(o.dim, o.state, 2), 0, 1))
  self.skip = parameter(init.normal(core.zeros(1, o.dim), 0, 1))
end

function Kernel:forward(points)
  local n, s = modes.length(points), self.opt.state
  local re, im = -core.exp(self.a), core.exp(self.w)
  local hold_re, hold_im = modes.expm1(re, im, core.ones(1))
  hold_re, hold_im = complex.over(hold_re, hold_im, re, im)
  local e_re, e_im = modes.exp(re:reshape(1, s), im:reshape(1, s), self.lags(n))
  local c_re, c_im = complex.parts(self.c)
  c_re, c_im = complex.times(c_re, c_im, hold_re, hold_im)
  local k = core.matmul(core.concat({ e_re, -e_im }, 2), core.concat({ c_re, c_im }, 2), false,
    true)
  if self.opt.causal then return modes.coefficients(self, k, nil, self.skip) end
  local later = n > 1 and shapes.pad(k:narrow(1, 2, n - 1), 1, 0, 1) or k
  return modes.coefficients(self, k, later, self.skip + k:narrow(1, 1, 1) + self.skip)
end

-- Both directions have the same kernel.
function Kernel:own_cost(p)
  local o, lags = self.opt, self.opt.causal and p or (p + 1) / 2
  return 4.0 * lags * o.state * o.dim, lags * (6.0 * o.state + o.dim)
end

-- y = x + Wo ((Wg S(gelu(Wv LN(x)))) * gelu(Wu LN(x))) + bo,  S(v) = K LN(v), which has its own
-- norm and shortcut (Mehta et al. 2022, Long range language modeling via gated state spaces,
-- Sec. 3.2).   x, y [b,n,dim]
-- u is expand * dim wide, the state space works on `inner` channels. The kernel takes n state
-- exponentials and n state inner products, the convolution n log n.
local GSS = class("GSS", modes.layer_fields(modes.fields {
  state = options.field { default = 512, min = 1, max = 1 << 20 },
  inner = options.field { default = 256, min = 1, help = "channels that the state space mixes" },
  expand = options.field { default = 4, min = 1 },
}), { "dim" })

GSS.stepwise, GSS.ignores_later = true, true -- only its TNO mixes positions

function GSS:build(o)
  local plain = { bias = false, init = o.init }
  self.norm = norms.LayerNorm(o.dim)
  self.u = Linear(o.dim, o.expand * o.dim, plain)
  self.v = Linear(o.dim, o.inner, plain)
  self.inner_norm = norms.LayerNorm(o.inner)
  self.kernel = Kernel(o.inner, { causal = o.causal, state = o.state })
  self.tno = TNO(o.inner, { encoder = self.kernel, causal = o.causal, decay = "none",
    backend = o.backend })
  self.g = Linear(o.inner, o.expand * o.dim, plain)
  self.o = Linear(o.expand * o.dim, o.dim, { init = o.init })
end

function GSS:forward(x)
  local normed = self.norm(x)
  local v = self.tno(self.inner_norm(core.gelu(self.v(normed))))
  return x + self.o(core.gate("gelu", self.u(normed), self.g(v)))
end

GSS.apart = { kernel = true } -- the TNO counts its encoder

return { GSS = GSS }
