-- nn/encoders/ssm.lua: defines SSM, the encoder of diagonal state space models.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local class = require("toeplab.nn.class").class
local complex = require "toeplab.nn.complex"
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local rows = require "toeplab.nn.encoders.rows"

local init, parameter = initial.init, initial.parameter

local function even(state)
  return state % 2 == 0, ("= %d must be even: eigenvalues come in conjugate pairs"):format(state)
end

local function step(default) return options.field { default = default, min = 1e-9, max = 1e6 } end

local fields = {
  { "dim", options.field { type = "int", min = 1 }, "numbers per point" },
  { "state", options.field { default = 64, min = 2, max = 1 << 20, check = even },
    "size of the state of a channel" },
  { "dt_min", step(1e-3), "smallest initial step" },
  { "dt_max", step(1e-1), "largest initial step" },
}

-- k_l = 2 Re sum over m of C_m (exp(dt A_m) - 1)/A_m exp(dt A_m l),  A_m = -exp(a_m) + i w_m:
-- the kernel of S4D with zero-order hold (Gu et al. 2022, On the parameterization and
-- initialization of diagonal state space models). forward(count): [count,dim], l = 0..count-1.
--   log_dt [dim] ~ U(log dt_min, log dt_max)   a, w, c_re, c_im [dim,state/2]
-- The initial values are S4D-Lin's: exp(a) = 1/2, w_m = pi m, E|C|^2 = 1.
local Kernel = class("Kernel", fields, { "dim" })

-- The first count multiples of step, from 0.   [1,count,1]
local function lags(count, step)
  return core.affine(core.range(0, count - 1), step, 0):reshape(1, count, 1)
end

-- Every lag below count is step q + r with r < step, where step is about sqrt(count). Returns the
-- values of step q, the values of r, and step.
local function coarse_and_fine(count)
  local step = math.ceil(math.sqrt(count))
  return { lags((count + step - 1) // step, step), lags(step, 1), step }
end

function Kernel:build(o)
  self.lags = cache.recent(coarse_and_fine)
  local half = o.state // 2
  local low, high = math.log(o.dt_min), math.log(o.dt_max)
  if low > high then
    error(("SSM: dt_min = %g is above dt_max = %g"):format(o.dt_min, o.dt_max), 0)
  end
  self.log_dt = parameter(init.uniform(core.zeros(o.dim), low, high))
  self.a = parameter(core.full({ o.dim, half }, math.log(0.5)))
  local w = core.affine(core.range(0, half - 1), math.pi, 0):reshape(1, half)
  self.w = parameter(core.zeros(o.dim, half):copy(core.zeros(o.dim, half) + w))
  self.c_re = parameter(init.normal(core.zeros(o.dim, half), 0, math.sqrt(0.5)))
  self.c_im = parameter(init.normal(core.zeros(o.dim, half), 0, math.sqrt(0.5)))
end

-- C (exp(z) - 1) / A as its two parts [dim,s], with z = dt A; exp(z) - 1 avoids cancellation.
local function weights(self, re, z_re, z_im)
  local sine = core.sin(core.affine(z_im, 0.5, 0))
  local e_re = core.elu(z_re) * core.cos(z_im) - core.affine(sine * sine, 2, 0) -- elu: e^x - 1
  local e_im = core.exp(z_re) * core.sin(z_im)
  local size = re * re + self.w * self.w
  local g_re, g_im = complex.times(e_re, e_im, re / size, -self.w / size)
  return complex.times(self.c_re, self.c_im, g_re, g_im)
end

-- exp(z l) for the lags l [1,count,1], as its two parts.   [dim,count,s]
local function powers(z_re, z_im, l)
  local d, s = z_re:dim(1), z_re:dim(2)
  local size = core.exp(z_re:reshape(d, 1, s) * l)
  local angle = z_im:reshape(d, 1, s) * l
  return size * core.cos(angle), size * core.sin(angle)
end

-- With coarse and fine lags the kernel is a product of two small matrices per channel, so exp(z l)
-- is never stored for all l.
function Kernel:forward(count)
  local coarse, fine, step = table.unpack(self.lags(count))
  local dt, re = core.exp(self.log_dt):reshape(-1, 1), -core.exp(self.a)
  local z_re, z_im = re * dt, self.w * dt
  local w_re, w_im = weights(self, re, z_re, z_im)
  local d, s, blocks = self.opt.dim, self.opt.state // 2, (count + step - 1) // step
  local q_re, q_im = powers(z_re, z_im, coarse)
  q_re, q_im = complex.times(q_re, q_im, w_re:reshape(d, 1, s), w_im:reshape(d, 1, s))
  local r_re, r_im = powers(z_re, z_im, fine)
  local k = core.matmul(core.concat({ q_re, -q_im }, 3), core.concat({ r_re, r_im }, 3),
    false, true)
  k = k:reshape(d, blocks * step):narrow(2, 1, count):transpose(1, 2)
  return core.affine(k, 2, 0)
end

-- The coefficient of lag l >= 0 is k_l of the kernel past; lag 0 also has skip, the D of state
-- space models. If not causal, lag -l has k_(l-1) of a second kernel, future, as in S4's two-sided
-- form.
--   points [p]   coef [p,dim]   skip [1,dim] ~ N(0,1)
local SSM = class("SSM", table.move({
  { "causal", true, "lags of 0 and more only" },
  { "skip", true, "add a parameter to the coefficient of lag 0" },
}, 1, 2, #fields + 1, table.move(fields, 1, #fields, 1, {})), { "dim" },
  "points [p] -> [p,dim]: the kernel of a diagonal state space model")

SSM.domains, SSM.by_point = { lag = true }, true

local function reversed(count)
  local ids = {}
  for i = 1, count do ids[i] = count - i end
  return core.ids(ids)
end

function SSM:build(o)
  local more = { state = o.state, dt_min = o.dt_min, dt_max = o.dt_max }
  self.past = Kernel(o.dim, more)
  if not o.causal then self.future = Kernel(o.dim, more) end
  self.orders = cache.recent(reversed)
  if o.skip then self.skip = parameter(init.normal(core.zeros(1, o.dim), 0, 1)) end
end

function SSM:forward(points)
  local first, last = rows.span(points)
  local past, parts = self.past(last + 1), {}
  if first < 0 and not self.future then error("SSM: a causal kernel has no negative lags", 0) end
  if first < 0 then
    parts[1] = self.future(-first):gather(self.orders(-first))
  end
  if self.skip then
    parts[#parts + 1] = past:narrow(1, 1, 1) + self.skip
    if last > 0 then parts[#parts + 1] = past:narrow(1, 2, last) end
  else
    parts[#parts + 1] = past
  end
  return #parts > 1 and core.concat(parts, 1) or parts[1]
end

return { SSM = SSM }
