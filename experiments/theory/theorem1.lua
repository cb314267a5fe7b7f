-- theorem1.lua: how far is structured kernel interpolation from the best approximation of its rank,
-- and how much further does Theorem 1 of "SKI to go Faster" allow it to be?
--
-- The theorem bounds |W A W' - T_r| for linear interpolation, T_r the best approximation of rank r:
--   sqrt(n r) h^2/8 L (2 sqrt(n) + min(s_1(F), s_1(B)) / s_r(A)) + |F A^-1 B - T_r|
-- where h is the distance of the inducing points, L the largest second derivative of the kernel k,
-- F, B and A its values between tokens and points, points and tokens, points and points, and s_i
-- are singular values. h^2/8 is the value of the paper's psi for two points; its formula for psi
-- contains only one of them.
--
-- The kernel is an encoder, RPE(t/scale) with SiLU, times a decay. The theorem needs a smooth
-- kernel: "smooth" rounds the decay at 0, lambda^(sqrt(t^2 + scale^2) - scale); "decay" is the
-- TNN's lambda^|t|, with a kink at 0; "warp" is SKI's RPE(sign(t) lambda^|t|), with a jump. For the
-- last two the theorem does not hold, and L belongs to the smooth pieces. The matrices are float32:
-- where the condition of A exceeds 1e6, its smallest singular values are rounding errors, and with
-- them Nystrom's error and the bound. F A^+ B, by the singular values of A above 1e-6 of the
-- largest, is free of them; where A is well conditioned the two agree.
local tl = require "toeplab"

-- The kernels k(t) for t [..], by name.
local kernels = {}

function kernels.smooth(rpe, c, t)
  local reach = (t:square() + c.smooth ^ 2):sqrt() - c.smooth
  return rpe(t / c.smooth, 2):reshape(-1) * tl.exp(reach * math.log(c.lambda))
end

function kernels.decay(rpe, c, t)
  return rpe(t / c.smooth, 2):reshape(-1) * tl.exp(t:abs() * math.log(c.lambda))
end

function kernels.warp(rpe, c, t)
  local signs = {}
  for i, v in ipairs(t:totable()) do signs[i] = v >= 0 and 1 or -1 end -- k(0) is that of +1
  return rpe(tl.exp(t:abs() * math.log(c.lambda)) * tl.tensor(signs), 2):reshape(-1)
end

-- Returns the matrix k(x_i - y_j) of positions x [m] and y [n].
local function gram(k, x, y)
  local m, n = x:dim(1), y:dim(1)
  return k((x:reshape(m, 1) - y:reshape(1, n)):reshape(-1)):reshape(m, n)
end

local function norm(a) return tl.singular_values(a):get(1) end

-- Returns the matrix [n,r] of linear interpolation from r points over 0..n-1.
local function interpolation(n, r)
  local rows, h = {}, (n - 1) / (r - 1)
  for i = 0, n - 1 do
    local row, a = {}, math.min(math.floor(i / h), r - 2)
    for j = 1, r do row[j] = 0 end
    row[a + 1], row[a + 2] = 1 - (i / h - a), i / h - a
    rows[i + 1] = row
  end
  return tl.tensor(rows)
end

-- Returns the largest second derivative of k for |t| < n, without the one across 0 if the kernel
-- has two pieces.
local function curvature(k, n, pieces)
  local most, steps = 0.0, 4 -- a token
  for _, sign in ipairs { 1, -1 } do
    local first = pieces and 1 or -1
    local y = k(tl.range(first, (n - 1) * steps) * (sign / steps)):totable()
    for i = 2, #y - 1 do
      most = math.max(most, math.abs(y[i - 1] - 2 * y[i] + y[i + 1]) * steps ^ 2)
    end
  end
  return most
end

-- Returns the matrix W A W' [n,n] as the plugin ski computes it.
local function plugin(k, n, r)
  local o = tl.tno("ski", n, 1, false, { inducing = r, parts = "low-rank" })
  local h, params = (n - 1) / (r - 1), {}
  for i, p in ipairs(o:params()) do params[i] = tl.zeros(p.shape) end
  return o:dense(k(tl.range(1 - r, r - 1) * h):reshape(-1, 1), params):reshape(n, n)
end

local CUTOFF = 1e-6 -- of the singular values of A, relative to the largest

-- Returns A^+ B by a singular value decomposition, without the singular values below the cutoff.
local function pseudo_solve(A, B)
  local u, s, v = tl.svd(A) -- A = u diag(s) v
  local values, inverse = s:totable(), {}
  for i, value in ipairs(values) do
    inverse[i] = value > CUTOFF * values[1] and 1 / value or 0
  end
  local scaled = tl.matmul(u, B, true) * tl.tensor(inverse):reshape(#inverse, 1)
  return tl.matmul(v, scaled, true)
end

-- Measures all metrics at one rank; t holds the matrix and its singular value decomposition.
local function measure(k, t, n, r, L)
  local h = (n - 1) / (r - 1)
  local tokens, points = tl.range(0, n - 1), tl.range(0, r - 1) * h
  local A, B, F = gram(k, points, points), gram(k, points, tokens), gram(k, tokens, points)
  local W, best = interpolation(n, r), nil
  best = tl.matmul(t.u:narrow(2, 1, r) * t.s:narrow(1, 1, r), t.v:narrow(1, 1, r))
  local ski = plugin(k, n, r)
  local product = tl.matmul(tl.matmul(W, A), W, false, true)
  local nystrom = norm(tl.matmul(F, tl.solve(A, B)) - best)
  local by_svd = norm(tl.matmul(F, pseudo_solve(A, B)) - best)
  local of_A = tl.singular_values(A)
  local quotient = math.min(norm(F), norm(B)) / of_A:get(r)
  return {
    measured = norm(ski - best), of_T = norm(ski - t.T), best = t.s:get(r + 1), nystrom = nystrom,
    nystrom_svd = by_svd,
    bound = math.sqrt(n * r) * h ^ 2 / 8 * L * (2 * math.sqrt(n) + quotient) + nystrom,
    left = norm(tl.matmul(W, A) - F), -- the theorem bounds this by sqrt(n r) h^2/8 L
    condition = of_A:get(1) / of_A:get(r),
    plugin = norm(ski - product) / norm(product),
  }
end

local columns = { { "measured", "|WAW' - T_r|" }, { "bound", "bound" }, { "nystrom", "Nystrom" },
  { "best", "|T - T_r|" }, { "of_T", "|WAW' - T|" }, { "condition", "condition of A" },
  { "nystrom_svd", "by A^+" } }

local function of_kernel(trials, name)
  local list = {}
  for _, t in ipairs(trials) do
    if t.config.kernel == name then list[#list + 1] = t end
  end
  return list
end

-- Returns the geometric mean of a metric over seeds, by rank.
local function curve(trials, metric)
  local x, y = {}, {}
  for _, t in ipairs(trials) do
    local ranks, values = t:series(metric)
    for i, r in ipairs(ranks) do
      x[i], y[i] = r, (y[i] or 0) + math.log(values[i]) / #trials
    end
  end
  for i, v in ipairs(y) do y[i] = math.exp(v) end
  return x, y
end

local function panel(trials, name)
  local series = {}
  for i, column in ipairs(columns) do
    if i <= 4 then -- the fifth curve would coincide with the first
      local x, y = curve(trials, column[1])
      series[i] = { name = column[2], x = x, y = y, style = "both", dashed = column[1] == "bound" }
    end
  end
  return { title = "kernel: " .. name, xlabel = "inducing points r", logx = 2, logy = true,
    ylabel = "spectral norm", key = "below", series = series }
end

return tl.experiment "theorem1" {
  label = { step = "rank r" },
  fixed = {
    length = 512, ranks = { 4, 8, 16, 32, 64, 128 }, lambda = 0.99, smooth = 32.0, hidden = 32,
    layers = 3, act = "silu", norm = "simplermsnorm",
  },
  grid = { kernel = { "smooth", "decay", "warp" } },
  seeds = 3,
  scale = { smoke = { length = 64, ranks = { 4, 8, 16 }, smooth = 8.0, hidden = 16 } },

  check = function(c)
    if not kernels[c.kernel] then error("kernel: known are decay, smooth and warp", 0) end
    for _, r in ipairs(c.ranks) do
      if r < 2 or r >= c.length then
        error(("ranks: %d is not in 2..%d, below the length"):format(r, c.length - 1), 0)
      end
    end
    if not (c.lambda > 0 and c.lambda <= 1) then error("lambda must be in (0,1]", 0) end
    if not (c.smooth > 0) then error("smooth must be above 0", 0) end
  end,

  trial = function(t, c)
    local rpe = tl.nn.RPE(1, { hidden = c.hidden, layers = c.layers, act = c.act, norm = c.norm })
    local n = c.length
    tl.no_grad(function()
      local function k(at) return kernels[c.kernel](rpe, c, at) end
      local lags = tl.range(0, n - 1)
      local T = gram(k, lags, lags)
      local u, s, v = tl.svd(T)
      local L = curvature(k, n, c.kernel ~= "smooth")
      t:log { curvature = L, size = s:get(1) }
      for _, r in ipairs(c.ranks) do
        t:log(measure(k, { T = T, u = u, s = s, v = v }, n, r, L), r)
        t:say("%d inducing points", r)
      end
    end)
  end,

  report = function(trials, report)
    local rows, panels, header, noise = {}, {}, { "kernel", "r" }, false
    for i, column in ipairs(columns) do header[2 + i] = column[2] end
    header[#header + 1] = "bound / measured"
    for _, name in ipairs { "smooth", "decay", "warp" } do
      local chosen = of_kernel(trials, name)
      if #chosen > 0 then
        local first = #rows
        for i, column in ipairs(columns) do
          local ranks, values = curve(chosen, column[1])
          for j, r in ipairs(ranks) do
            rows[first + j] = rows[first + j] or { name, r }
            rows[first + j][2 + i] = values[j]
          end
        end
        for j = first + 1, #rows do
          local row = rows[j]
          row[#header] = row[4] / row[3]
          if row[8] > 1e6 then row[4], row[5], row[#header], noise = "-", "-", "-", true end
        end
        panels[#panels + 1] = panel(chosen, name)
      end
    end
    report.table(header, rows, nil, noise and "-: the condition of A exceeds 1e6, so that in "
      .. "float32 its smallest singular values are rounding errors" or nil)
    report.plot { panels = panels, columns = #panels, width = 520, height = 460 }
  end,
}
