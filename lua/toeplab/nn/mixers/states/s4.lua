-- nn/mixers/states/s4.lua: defines S4, a state space layer whose matrix is normal plus low rank.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local complex = require "toeplab.nn.complex"
local cost = require "toeplab.nn.cost"
local growth = require "toeplab.nn.mixers.states.s4_growth"
local hippo = require "toeplab.nn.mixers.states.hippo"
local initial = require "toeplab.nn.initial"
local layer = require "toeplab.nn.mixers.states.layer"
local modes = require "toeplab.nn.mixers.states.modes"

local init, parameter = initial.init, initial.parameter

-- The encoder of S4 (Gu et al. 2022, Efficiently modeling long sequences with structured state
-- spaces, Sec. 3 and Alg. 1). The state matrix is A = diag(lambda) - P P^H with lambda = -exp(a) +
-- i w and m = state/2 pairs of conjugate modes. For w_f = exp(-2 pi i f/L), g = 2 (1-w_f)/(1+w_f)
-- and R(v) = dt sum_k v_k/(g - dt lambda_k), the spectrum of the kernel is
--   2/(1+w_f) [R(B C) - R(B conj P) R(P C) / (1 + R(P conj P))].
-- Its inverse transform is K_0 .. K_(L-1), of which the first n are used.
--   log_dt [dim]   a, w [dim,m]   b, p [1,dim,m,2]   c [1 or 2,dim,m,2]   skip [1,dim]
-- The parameter c stands for C (I - Ad^L), Ad being the matrix of one step. The first call takes
-- its n as L and computes c from the initial C; a longer input doubles L until it fits and
-- multiplies c by I + Ad^L, which leaves K unchanged (s4_growth.lua). The buffer length holds L.
-- With as_published, R lacks the conjugate modes, as in the published code without its compiled
-- extensions; the kernel then differs from (A, B, C)'s.
local Kernel = class("S4Kernel", modes.fields {
  state = modes.even_state(),
  as_published = false,
}, { "dim" })

Kernel.domains, Kernel.by_point = { lag = true }, true

local length_of = cache.reading(function(length) return length:get(1) end)

-- The finite frequencies f < L/2 as y = 2 tan(pi f/L), for which g = i y and 2/(1+w_f) = 1 + i y/2.
local function frequencies(length)
  local y = {}
  for f = 0, (length - 1) // 2 do y[f + 1] = 2 * math.tan(math.pi * f / length) end
  return core.tensor(y):reshape(1, -1, 1)
end

function Kernel:build(o)
  local w, p, b = hippo.normal_form(o.state)
  modes.prepare(self)
  self.frequencies = cache.recent(frequencies)
  self.log_dt = modes.log_dt(o.dim)
  self.a = parameter(core.full({ o.dim, o.state // 2 }, math.log(0.5)))
  self.w = modes.repeated(core.tensor(w), o.dim)
  local function vector(list)
    return parameter(modes.repeated(core.tensor(list), o.dim):view(0, { 1, o.dim, #list, 2 }))
  end
  self.b, self.p = vector(b), vector(p)
  self.c = parameter(modes.complex_normal(o.causal and 1 or 2, o.dim, o.state // 2, 2))
  self.skip = parameter(init.normal(core.zeros(1, o.dim), 0, 1))
  self:buffer("length", core.ids { 0 })
end

-- Returns a function of complex v [d,m] that returns R(v) at all finite frequencies, [d,f].
local function resolvent(self, y)
  local d, m = self.opt.dim, self.opt.state // 2
  local dt = core.exp(self.log_dt):reshape(d, 1, 1)
  local re, im = (-core.exp(self.a)):reshape(d, 1, m) * dt, self.w:reshape(d, 1, m) * dt
  if not self.opt.as_published then
    re, im = core.concat({ re, re }, 3), core.concat({ im, -im }, 3)
  end
  local off = y - im -- g - dt lambda = -re + i off, and its inverse is (-re - i off)/|.|^2
  local size = off * off + re * re
  local inverse = core.concat({ -re / size * dt, -off / size * dt }, 3) -- [d,f,2 modes]
  return function(v_re, v_im)
    if not self.opt.as_published then
      v_re, v_im = core.concat({ v_re, v_re }, 2), core.concat({ v_im, -v_im }, 2)
    end
    local columns = core.concat({ v_re, -v_im, v_im, v_re }, 2):reshape(d, 2, -1)
    local r = core.matmul(inverse, columns, false, true) -- [d,f,2]
    return complex.parts(r)
  end
end

-- The value at w_f = -1, where g is infinite: dt/2 sum_k B_k C_k.   [d,1,2]
local function last_value(self, bc_re, bc_im)
  local half = core.affine(core.exp(self.log_dt), 0.5, 0):reshape(-1, 1)
  local re, im = bc_re:sum(2, true) * half, bc_im:sum(2, true) * half
  if not self.opt.as_published then re, im = core.affine(re, 2, 0), core.affine(im, 0, 0) end
  return complex.join(re, im)
end

-- Returns the kernel of a direction at length L: [L,d].
local function kernels(self, length)
  local d, m, y = self.opt.dim, self.opt.state // 2, self.frequencies(length)
  local sum = resolvent(self, y)
  local b_re, b_im = complex.parts(self.b:reshape(d, m, 2))
  local p_re, p_im = complex.parts(self.p:reshape(d, m, 2))
  local low_re, low_im = sum(p_re * p_re + p_im * p_im, core.zeros(d, m))
  local q_re, q_im = sum(complex.times(b_re, b_im, p_re, -p_im))
  q_re, q_im = complex.over(q_re, q_im, core.affine(low_re, 1, 1), low_im)
  local half = core.affine(y:reshape(1, -1), 0.5, 0)
  return function(direction)
    local c_re, c_im = complex.parts(self.c:narrow(1, direction, 1):reshape(d, m, 2))
    local bc_re, bc_im = complex.times(b_re, b_im, c_re, c_im)
    local k_re, k_im = sum(bc_re, bc_im)
    local t_re, t_im = complex.times(q_re, q_im, sum(complex.times(p_re, p_im, c_re, c_im)))
    k_re, k_im = k_re - t_re, k_im - t_im
    local spectrum = complex.join(k_re - k_im * half, k_im + k_re * half)
    if length % 2 == 0 then
      spectrum = core.concat({ spectrum, last_value(self, bc_re, bc_im) }, 2)
    end
    return core.irfft(spectrum, 2, length):transpose(1, 2)
  end
end

function Kernel:forward(points)
  local n, length = modes.length(points), length_of(self.length)
  if n > length then
    length = core.no_grad(growth.grow, self, length, n)
    self.length:fill(length)
  end
  local kernel = kernels(self, length)
  local past, future = kernel(1):narrow(1, 1, n), nil
  if not self.opt.causal then future = kernel(2):narrow(1, 1, n) end
  return modes.coefficients(self, past, future, self.skip)
end

-- R is computed twice for all directions and twice for each, at half as many frequencies as lags.
function Kernel:own_cost(p)
  local o, directions = self.opt, self.opt.causal and 1 or 2
  local lags = p / directions
  local values = lags / 2 * o.dim * (o.as_published and o.state // 2 or o.state)
  return (2 + 2 * directions) * 8.0 * values + directions * o.dim * cost.transform(lags),
    3.0 * values
end

-- y = GLU(Wo gelu(K x) + bo) (layer.lua).   x, y [b,n,dim]   o [2 dim,dim]
-- The kernel takes L state dim divisions, of which the tape keeps about ten floats each, the
-- convolution n log n. Building a layer takes one decomposition of a matrix of size state; setting
-- L takes dim log L products of such matrices.
local S4 = layer.glu("S4", Kernel)
S4.ignores_zeros = true

return { S4 = S4 }
