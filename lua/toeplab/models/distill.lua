-- models/distill.lua: approximates the kernel of a causal Toeplitz operator by a state space of few
-- modes per channel; a step costs modes^2 products, independent of the number of lags.
--
-- The kernel k_0 .. k_(L-1) of a channel is the response of
--   y_i = k_0 x_i + c s_i,   s_(i+1) = a s_i + b x_i,   so that k_n = c a^(n-1) b for n >= 1.
-- Balanced truncation: the Hankel matrix H[i,j] = k_(i+j+1) has the singular values
-- s_1 >= s_2 >= .. and vectors u, v. In balanced coordinates
--   b_i = sqrt(s_i) v_i[0]   c_i = sqrt(s_i) u_i[0]
--   a_ij = (u_i' H' v_j) / sqrt(s_i s_j),
-- where H' is H shifted by one row or, equivalently, by one column. As H v_j = s_j u_j, this is
-- sqrt(s_j / s_i) times the sum over m of u_i[m] u_j[m+1], or sqrt(s_i / s_j) times the sum of
-- v_i[m+1] v_j[m]; the one whose factor is at most 1 is exact to rounding. The first r coordinates
-- are the approximation. Its response is off by at most twice the sum of the other singular values
-- at any frequency (Glover 1984), and so is the norm of the output relative to the input's.
-- Least squares ("fitted"): a and b as before, and the c with the least error of k_1 .. k_(L-1).
-- The published distillation to modes (Laughing Hyena, NeurIPS 2023) fits by gradient descent,
-- which this file does not do.

local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local suggest = require "toeplab.base.suggest"

local distill = {}

distill.forms = { "balanced", "fitted" }

-- Returns whether a form is one of these.
function distill.has(form)
  for _, name in ipairs(distill.forms) do
    if form == name then return true end
  end
  return false
end

local NEGLIGIBLE = 1e-6 -- singular values below this share of the first are rounding errors

-- ---- From a kernel ------------------------------------------------------------------------------

-- Returns ids [m,m] with which gather makes the Hankel matrix of k_0 .. k_m, 0.
local function hankel_ids(m)
  local rows = {}
  for i = 0, m - 1 do
    local row = {}
    for j = 0, m - 1 do row[j + 1] = math.min(i + j + 1, m + 1) end
    rows[i + 1] = row
  end
  return core.ids(rows)
end

-- Returns r balanced coordinates of one channel k [m+1,1], some of which may be 0: lists a (of
-- rows), b, c, and twice the sum of the other singular values.
local function balance(k, r, ids)
  local m = k:dim(1) - 1
  local matrix = core.concat({ k, core.zeros(1, 1) }, 1):gather(ids):reshape(m, m)
  local u, s, v = core.svd(matrix)
  local values, rest, count = s:totable(), 0.0, r
  while count > 0 and values[count] <= NEGLIGIBLE * values[1] do count = count - 1 end
  for i = count + 1, m do rest = rest + values[i] end
  u, v = u:narrow(2, 1, r), v:narrow(1, 1, r)
  local up = core.matmul(u:narrow(1, 1, m - 1), u:narrow(1, 2, m - 1), true):totable()
  local down = core.matmul(v:narrow(2, 2, m - 1), v:narrow(2, 1, m - 1), false, true):totable()
  local first_u, first_v = u:narrow(1, 1, 1):reshape(-1):totable(), v:narrow(2, 1, 1):reshape(-1)
    :totable()
  local a, b, c = {}, {}, {}
  for i = 1, r do
    a[i], b[i], c[i] = {}, { 0.0 }, 0.0
    for j = 1, r do
      local inside = i <= count and j <= count
      a[i][j] = not inside and 0.0 or i <= j and math.sqrt(values[j] / values[i]) * up[i][j]
        or math.sqrt(values[i] / values[j]) * down[i][j]
    end
    if i <= count then
      b[i], c[i] = { math.sqrt(values[i]) * first_v[i] }, math.sqrt(values[i]) * first_u[i]
    end
  end
  return a, b, c, 2 * rest
end

-- Returns the states [d,r,lags-1] of a system after an impulse.
local function responses(system, lags)
  local s, list = system.b, {}
  for n = 1, lags - 1 do
    list[n] = s
    s = core.matmul(system.a, s)
  end
  return core.concat(list, 3)
end

-- Replaces c by the least-squares one.
local function fit(system, k)
  local lags, d = k:dim(1), k:dim(2)
  local states, r = responses(system, lags), system.a:dim(2)
  local want = k:narrow(1, 2, lags - 1):transpose(1, 2):reshape(d, 1, lags - 1)
  local right = core.matmul(want, states, false, true)         -- [d,1,r]
  local square = core.matmul(states, states, false, true)      -- [d,r,r]
  local list = {}
  for i = 1, d do
    local matrix = square:narrow(1, i, 1):reshape(r, r)
    local rows, trace = matrix:totable(), 0.0
    for j = 1, r do trace = trace + rows[j][j] end
    for j = 1, r do rows[j][j] = rows[j][j] + 1e-9 * trace + 1e-30 end -- some modes may be 0
    list[i] = core.solve(core.tensor(rows), right:narrow(1, i, 1):reshape(r, 1)):reshape(1, 1, r)
  end
  system.c = core.concat(list, 1)
end

-- Returns the system {a [d,r,r], b [d,r,1], c [d,1,r], direct [d,1,1]} of the kernel k [lags,d],
-- decay included, and for the form balanced a list of error bounds, one per channel.
function distill.system(k, r, form)
  local lags, d = k:dim(1), k:dim(2)
  if lags < 3 then
    errors.usage("distill: the kernel has %d lags, and at least 3 are needed", lags)
  end
  if r >= lags then
    errors.usage("distill: %d modes are not fewer than the kernel's %d lags", r, lags)
  end
  local a, b, c, bounds, ids = {}, {}, {}, {}, hankel_ids(lags - 1)
  for i = 1, d do
    local row
    a[i], b[i], row, bounds[i] = balance(k:narrow(2, i, 1):reshape(lags, 1), r, ids)
    c[i] = { row }
  end
  local system = { a = core.tensor(a), b = core.tensor(b), c = core.tensor(c),
    direct = k:narrow(1, 1, 1):reshape(d, 1, 1) }
  if form == "fitted" then
    fit(system, k)
    return system, nil
  end
  return system, bounds
end

-- Returns the largest response of each channel of k [lags,d] at any frequency, a list; the bounds
-- of system are relative to these.
function distill.gains(k)
  local padded = core.concat({ k, core.zeros(3 * k:dim(1), k:dim(2)) }, 1)
  local bins = core.rfft(padded, 1)
  return core.sqrt(core.square(bins):sum(3)):amax(1):reshape(-1):totable()
end

-- ---- Steps --------------------------------------------------------------------------------------

-- The step of a system, with the methods of core.recurrence that sessions and converted files use.
local Recurrence = {}
Recurrence.__index = Recurrence

function distill.recurrence(system, lags, batch)
  local r = setmetatable({ system = system, lags = lags, batch = batch or 1 }, Recurrence)
  r:reset()
  return r
end

local function position(self, x) -- x [b,d]
  local o, b, d = self.system, x:dim(1), x:dim(2)
  x = x:transpose(1, 2):reshape(d, 1, b)
  local y = o.direct * x + core.matmul(o.c, self.state)
  self.state = core.matmul(o.a, self.state) + core.matmul(o.b, x)
  return y:reshape(d, b):transpose(1, 2)
end

-- Returns y for the next position, x [b,d], or the next n, x [b,n,d].
function Recurrence:step(x)
  return core.no_grad(function()
    if x:ndim() == 2 then return position(self, x) end
    local parts, b, d = {}, x:dim(1), x:dim(3)
    for i = 1, x:dim(2) do
      parts[i] = position(self, x:narrow(2, i, 1):reshape(b, d)):reshape(b, 1, d)
    end
    return core.concat(parts, 2)
  end)
end

function Recurrence:reset()
  local a = self.system.a
  self.state = core.zeros(a:dim(1), a:dim(2), self.batch)
end

function Recurrence:sizes()
  local a = self.system.a
  local d, r = a:dim(1), a:dim(2)
  return { kind = "distilled", sequences = self.batch, channels = d, lags = self.lags, modes = r,
    period = 0, state_bytes = 4 * d * r * self.batch, kernel_bytes = 4 * d * (r * r + 2 * r + 1) }
end

function Recurrence:fork() return distill.recurrence(self.system, self.lags, self.batch) end

function Recurrence:close() self.state = nil end

return suggest.strict("distill", distill)
