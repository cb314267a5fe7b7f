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

-- The finite frequencies f < L/2 as y = 2 tan(pi f/L), for which g = i y and 2/(1+w_f) = 1 + i y/2:
-- g as complex numbers [f,2], and y/2 [1,f].
local function frequencies(length)
  local g, half = {}, {}
  for f = 0, (length - 1) // 2 do
    half[f + 1] = math.tan(math.pi * f / length)
    g[f + 1] = { 0, 2 * half[f + 1] }
  end
  return { g = core.tensor(g), half = core.tensor(half):reshape(1, -1) }
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

-- Returns the kernels of all directions at length L: [directions,d,L].
local function kernels(self, length)
  local o, at, directions = self.opt, self.frequencies(length), self.c:dim(1)
  local dt = core.exp(self.log_dt):reshape(o.dim, 1)
  local b_re, b_im = complex.parts(self.b)
  local p_re, p_im = complex.parts(self.p)
  local c_re, c_im = complex.parts(self.c)
  local bp_re, bp_im = complex.times(b_re, b_im, p_re, -p_im)
  local bc_re, bc_im = complex.times(b_re, b_im, c_re, c_im)
  local pc_re, pc_im = complex.times(p_re, p_im, c_re, c_im)
  local pp = p_re * p_re + p_im * p_im
  local v_re = core.concat({ pp, bp_re, bc_re, pc_re }, 1) * dt
  local v_im = core.concat({ core.zeros(pp:shape()), bp_im, bc_im, pc_im }, 1) * dt
  local poles = complex.join(-core.exp(self.a) * dt, self.w * dt)
  local r = core.cauchy(complex.join(v_re, v_im), poles, at.g, not o.as_published) -- [4 or 6,d,f,2]
  local low_re, low_im = complex.parts(r:narrow(1, 1, 1))
  local q_re, q_im = complex.parts(r:narrow(1, 2, 1))
  local k_re, k_im = complex.parts(r:narrow(1, 3, directions))
  local t_re, t_im = complex.parts(r:narrow(1, 3 + directions, directions))
  q_re, q_im = complex.over(q_re, q_im, core.affine(low_re, 1, 1), low_im)
  t_re, t_im = complex.times(q_re, q_im, t_re, t_im)
  k_re, k_im = k_re - t_re, k_im - t_im
  local spectrum = complex.join(k_re - k_im * at.half, k_im + k_re * at.half)
  if length % 2 == 0 then -- w_f = -1, where g is infinite: half the sum of dt B_k C_k
    local re = v_re:narrow(1, 3, directions):sum(3, true)
    local im = v_im:narrow(1, 3, directions):sum(3, true)
    local own = o.as_published and 0.5 or 0 -- the conjugates double re and cancel im
    local last = complex.join(core.affine(re, 1 - own, 0), core.affine(im, own, 0))
    spectrum = core.concat({ spectrum, last }, 3)
  end
  return core.irfft(spectrum, 3, length)
end

function Kernel:forward(points)
  local n, length = modes.length(points), length_of(self.length)
  if n > length then
    length = core.no_grad(growth.grow, self, length, n)
    self.length:fill(length)
  end
  local all, list = kernels(self, length):narrow(3, 1, n), {}
  for i = 1, all:dim(1) do
    list[i] = all:narrow(1, i, 1):reshape(self.opt.dim, n):transpose(1, 2)
  end
  return modes.coefficients(self, list[1], list[2], self.skip)
end

-- At half as many frequencies as lags, R is computed twice for all directions and twice for each,
-- by 8 operations a mode beside 9 for 1/(g - dt lambda) and 9 for the conjugate mode. About so many
-- numbers are stored.
function Kernel:own_cost(p)
  local o, directions = self.opt, self.opt.causal and 1 or 2
  local lags, inverses = p / directions, o.as_published and 9 or 18
  local sums = (8.0 * (2 + 2 * directions) + inverses) * lags / 2 * o.dim * (o.state // 2)
  return sums + directions * o.dim * cost.transform(lags), (5.0 + 3 * directions) * lags * o.dim
end

-- y = GLU(Wo gelu(K x) + bo) (layer.lua).   x, y [b,n,dim]   o [2 dim,dim]
-- The kernel takes L state dim / 2 divisions, whose results the tape does not keep, the convolution
-- n log n. Building a layer takes one decomposition of a matrix of size state; setting L takes dim
-- log L products of such matrices.
local S4 = layer.glu("S4", Kernel)
S4.ignores_zeros = true

return { S4 = S4 }
