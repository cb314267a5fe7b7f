-- nn/mixers/states/modes.lua: computes kernels that are sums of complex exponentials, and the
-- Toeplitz coefficients of state space layers from them.

local core = require "toeplab.core"
local cache = require "toeplab.nn.cache"
local complex = require "toeplab.nn.complex"
local initial = require "toeplab.nn.initial"
local options = require "toeplab.base.options"
local rows = require "toeplab.nn.encoders.rows"

local modes = {}

-- ---- Exponentials -------------------------------------------------------------------------------

local SPLIT = 4097 -- 2^12 + 1 splits 24 bits into two halves (Veltkamp)
local ROUND = 1.5 * 2 ^ 23 -- adding it leaves an integer in float32
-- 2 pi as a sum whose first parts have so few bits that their products with up to 2^18 turns are
-- exact.
local TURN = { 6.25, 17 / 512, -149 / 2 ^ 23, 2 * math.pi - 6.25 - 17 / 512 + 149 / 2 ^ 23 }

-- Returns the remainder of an angle after whole turns.
local function remainder(angle)
  local turns = core.affine(core.affine(angle, 1 / (2 * math.pi), ROUND), 1, -ROUND)
  for _, part in ipairs(TURN) do angle = angle - core.affine(turns, part, 0) end
  return angle
end

-- Returns y lags modulo 2 pi. A float32 product would be wrong by 1e-7 times its size, which is
-- large at a high frequency and a long lag. Where a lag has at most 12 significant bits, its
-- products with the two halves of y are exact.
local function reduced(y, lags)
  local spread = core.affine(y, SPLIT, 0)
  local high = spread - (spread - y)
  return remainder(high * lags) + remainder((y - high) * lags)
end

local function detached(z) return core.no_grad(core.affine, z, 1, 0) end

-- Gives the value e the gradient of exp(z along), whose value is `whole`.
local function with_gradient(e_re, e_im, whole_re, whole_im, z_re, z_im, along)
  local d_re, d_im = (z_re - detached(z_re)) * along, (z_im - detached(z_im)) * along -- both 0
  local g_re, g_im = complex.times(whole_re, whole_im, d_re, d_im)
  return e_re + g_re, e_im + g_im
end

-- Returns exp(z lags); z and lags broadcast. Its gradient is exp(z along)'s, by default the same.
-- The exponential is computed without the tape, because the gradient by reduced angles would differ
-- from the gradient by the angles.
function modes.exp(z_re, z_im, lags, along)
  local e_re, e_im = core.no_grad(function()
    local size, angle = core.exp(z_re * lags), reduced(z_im, lags)
    return size * core.cos(angle), size * core.sin(angle)
  end)
  return with_gradient(e_re, e_im, e_re, e_im, z_re, z_im, along or lags)
end

-- Returns exp(z lags) - 1 where the real part of z lags is at most 0. Near 0 nothing cancels.
function modes.expm1(z_re, z_im, lags)
  local e_re, e_im = core.no_grad(function()
    local x, angle = z_re * lags, reduced(z_im, lags)
    local sine = core.sin(core.affine(angle, 0.5, 0))
    return core.elu(x) * core.cos(angle) - core.affine(sine * sine, 2, 0), -- elu: e^x - 1
      core.exp(x) * core.sin(angle)
  end)
  return with_gradient(e_re, e_im, core.affine(e_re, 1, 1), e_im, z_re, z_im, lags)
end

-- ---- Kernels ------------------------------------------------------------------------------------

-- Every lag below count is step q + r with r < step, a power of 2 (so that step q has few bits) of
-- about sqrt(count). Returns step, the values of step q and the values of r, both [1,..,1].
local function grid(count)
  local step = 1
  while step * step < count do step = step * 2 end
  local blocks = (count + step - 1) // step
  return { step = step, coarse = core.affine(core.range(0, blocks - 1), step, 0):reshape(1, -1, 1),
    fine = core.range(0, step - 1):reshape(1, -1, 1) }
end

-- Returns K [count,d], K_l = Re sum_s W_s a_s b_s over the modes s, where a = coarse is given at
-- the lags step q and b = fine at the rest of the lag: a product of two small matrices per channel,
-- so that no tensor holds all lags of all modes.
--   w [d,s]   coarse [d,blocks,s]   fine [d,step,s]: {re, im} each
function modes.kernel(w, coarse, fine, count)
  local d, s = w[1]:dim(1), w[1]:dim(2)
  local re, im = complex.times(coarse[1], coarse[2], w[1]:reshape(d, 1, s), w[2]:reshape(d, 1, s))
  local k = core.matmul(core.concat({ re, -im }, 3), core.concat({ fine[1], fine[2] }, 3), false,
    true)
  return k:reshape(d, -1):narrow(2, 1, count):transpose(1, 2)
end

-- Returns the FLOP of modes.kernel for p lags of d channels and s modes, and about how many numbers
-- are stored: 6 for each mode at each of 2 sqrt p lags, and the kernel. Exponentials are not
-- counted as arithmetic.
function modes.kernel_cost(p, d, s)
  return 4.0 * p * d * s, d * (12.0 * s * math.sqrt(p) + p)
end

-- ---- Coefficients -------------------------------------------------------------------------------

-- Returns the length of the sequence whose lags are points.
function modes.length(points)
  local _, last = rows.span(points)
  return last + 1
end

local function backwards(count)
  local ids = {}
  for i = 1, count do ids[i] = count - i end
  return core.ids(ids)
end

-- Gives an encoder the caches of values that depend on the length alone: grid and backwards.
function modes.prepare(self)
  self.grid, self.backwards = cache.recent(grid), cache.recent(backwards)
end

-- Returns the coefficients of the lags 0..n-1, or with future of 1-n..n-1: past_l, plus any skip at
-- lag 0, for lag l >= 0, and future_l for lag -1-l.
--   past, future [n,d]   skip [1,d]   coef [n,d] or [2n-1,d]
function modes.coefficients(self, past, future, skip)
  local n = past:dim(1)
  local parts = { skip and past:narrow(1, 1, 1) + skip or past:narrow(1, 1, 1) }
  if n > 1 then parts[2] = past:narrow(1, 2, n - 1) end
  if n > 1 and future then table.insert(parts, 1, future:gather(self.backwards(n - 1))) end
  return #parts > 1 and core.concat(parts, 1) or parts[1]
end

-- Returns GLU(a, b) = a sigmoid(b) of x [b,n,2d] = [a, b].
function modes.glu(x)
  local d = x:dim(3) // 2
  return core.gate("sigmoid", x:narrow(3, d + 1, d), x:narrow(3, 1, d))
end

-- ---- Options and initial values -----------------------------------------------------------------

-- Returns the common options of these kernels, with more.
function modes.fields(more)
  local fields = {
    dim = options.field { type = "int", min = 1 },
    causal = true,
    state = options.field { default = 64, min = 1, max = 1 << 20 },
  }
  for name, field in pairs(more) do fields[name] = field end
  return fields
end

-- Returns the options of a layer: its kernel's, and how it is applied.
function modes.layer_fields(kernel)
  local fields = {
    backend = "rac", -- the plugin that applies the convolution
    init = options.field { type = "function|string", default = "torch" },
  }
  for name, field in pairs(kernel) do fields[name] = field end
  return fields
end

-- Declares the number of a state whose modes come in conjugate pairs.
function modes.even_state()
  return options.field { default = 64, min = 2, max = 1 << 20, check = function(state)
    return state % 2 == 0, ("= %d must be even: modes come in conjugate pairs"):format(state)
  end }
end

-- The steps of discretisation are first drawn log-uniformly from 0.001 to 0.1.
function modes.log_dt(...)
  return initial.parameter(initial.init.uniform(core.zeros(...), math.log(1e-3), math.log(1e-1)))
end

-- Draws complex numbers [..,2] with E|z|^2 = 1.
function modes.complex_normal(...)
  return initial.init.normal(core.zeros(...), 0, math.sqrt(0.5))
end

-- Returns a parameter of shape [count,..], where the values, a tensor [..], are repeated.
function modes.repeated(values, count)
  local shape = values:shape()
  table.insert(shape, 1, 1)
  local one = values:reshape(shape)
  shape[1] = count
  return initial.parameter(core.zeros(shape):copy(core.zeros(shape) + one))
end

return modes
