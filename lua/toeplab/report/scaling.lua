-- report/scaling.lua: fits how a positive metric falls with the size of what was trained, with
-- intervals over the seeds. The size is any positive number: FLOP, tokens, parameters, a width.
--
--   power    y = A x^-alpha        a straight line on logarithmic axes
--   offset   y = E + A x^-alpha    with 0 <= E, the limit at infinite size
--
--   local fit = scaling.fit({ { x = 1e9, y = { 4.1, 4.2 } }, { x = 1e10, y = { 3.6, 3.5 } },
--     { x = 1e11, y = { 3.1, 3.2 } } })
--   print(fit.alpha, fit.low, fit.high, fit.at(1e12))
--
-- A fit minimises the squared relative distances from the means over the seeds. The intervals show
-- how far the exponent would move with other seeds, not that the metric follows the law. fit.least
-- and fit.most bound the exponents of fits that leave out one size, and fit.off is the largest
-- relative distance.
local core = require "toeplab.core"
local line = require "toeplab.base.line"
local stats = require "toeplab.report.stats"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local scaling = { DRAWS = 1000, forms = { "power", "offset", "auto" } }

local CLOSE = 1e-6 -- sizes whose logarithms differ by less cannot be told apart
local LEAST = { power = 3, offset = 4 } -- sizes: one more than the fitted numbers

-- ---- Curves -----------------------------------------------------------------------------------

-- Returns alpha, A and E = 0 of y = A x^-alpha, for u = log x, by least squares of log y.
local function power(u, y)
  local v = {}
  for i = 1, #u do v[i] = math.log(y[i]) end
  local slope, height = line(u, v)
  return -slope, math.exp(height), 0.0
end

-- Returns the A > 0 and E >= 0 that fit best for one alpha, and the sum of squares.
local function linear(u, y, alpha)
  local x, w, sw, sx, sy = {}, {}, 0.0, 0.0, 0.0 -- y = E + A x, where x is the power
  for i = 1, #u do
    x[i], w[i] = math.exp(-alpha * u[i]), (y[1] / y[i]) ^ 2
    sw, sx, sy = sw + w[i], sx + w[i] * x[i], sy + w[i] * (y[i] - y[1])
  end
  local mx, my, sxx, sxy = sx / sw, y[1] + sy / sw, 0.0, 0.0
  for i = 1, #u do -- from the means: E may be large beside what falls
    sxx, sxy = sxx + w[i] * (x[i] - mx) ^ 2, sxy + w[i] * (x[i] - mx) * (y[i] - my)
  end
  local A, squares = sxy / sxx, 0.0
  local E = my - A * mx
  if not (E > 0 and A > 0) then
    E, my, mx, sxy, sxx = 0.0, 0.0, 0.0, 0.0, 0.0
    for i = 1, #u do sxy, sxx = sxy + w[i] * x[i] * y[i], sxx + w[i] * x[i] ^ 2 end
    A = sxy / sxx
  end
  for i = 1, #u do squares = squares + ((y[i] - my - A * (x[i] - mx)) / y[i]) ^ 2 end
  return A, E, squares
end

local GRID, STEPS = 40, 40
local FLAT = 1e-14 -- a range of log y over all sizes that is rounding
local GOLDEN = (math.sqrt(5) - 1) / 2

-- Returns alpha, A and E of y = E + A x^-alpha: the best alpha by a grid and then by golden
-- sections, with A and E of each alpha by least squares. If y does not fall, it does not determine
-- a limit, and E is 0.
local function offset(u, y)
  local span = math.max(table.unpack(u)) - math.min(table.unpack(u))
  local slope, factor = power(u, y)
  if slope * span <= FLAT then return slope, factor, 0.0 end
  local function square(k)
    return select(3, linear(u, y, math.exp(k) / span))
  end
  local low, high = math.log(1e-3), math.log(30)
  local step, best, least = (high - low) / GRID, low, math.huge
  for i = 0, GRID do
    local at = square(low + i * step)
    if at < least then best, least = low + i * step, at end
  end
  local a, b = best - step, best + step
  local c, d = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
  local fc, fd = square(c), square(d)
  for _ = 1, STEPS do
    if fc < fd then
      b, d, fd = d, c, fc
      c = b - GOLDEN * (b - a)
      fc = square(c)
    else
      a, c, fc = c, d, fd
      d = a + GOLDEN * (b - a)
      fd = square(d)
    end
  end
  local alpha = math.exp((a + b) / 2) / span
  local A, E = linear(u, y, alpha)
  return alpha, A, E
end

local curves = { power = power, offset = offset }

-- ---- Points -----------------------------------------------------------------------------------

local function positive(v) return type(v) == "number" and v > 0 and v < math.huge end

local function shown(v) return v ~= v and "nan" or tostring(v) end

-- Raises unless the points can be fitted; returns them in the order of their sizes.
local function checked(points, form)
  local list, seen = {}, {}
  local function refuse(format, ...)
    local name = points.name and points.name .. ": " or ""
    error("scaling: " .. name .. format:format(...), 0)
  end
  for i, p in ipairs(points) do
    if type(p) ~= "table" then refuse("point %d is a %s, not a table {x=, y=}", i, type(p)) end
    local y = type(p.y) == "table" and p.y or { p.y }
    if not positive(p.x) then refuse("size %d is %s, not a positive number", i, shown(p.x)) end
    if #y == 0 then refuse("size %g has no values", p.x) end
    for _, v in ipairs(y) do
      if not positive(v) then
        refuse("a value at size %g is %s, not a positive number", p.x, shown(v))
      end
    end
    if seen[p.x] then refuse("size %g is given twice", p.x) end
    seen[p.x] = true
    list[i] = { x = p.x, y = y }
  end
  if #list < LEAST[form] then
    refuse("%d size%s; a fit of form %s takes at least %d", #list, #list == 1 and "" or "s", form,
      LEAST[form])
  end
  table.sort(list, function(p, q) return p.x < q.x end)
  if math.log(list[#list].x) - math.log(list[1].x) < CLOSE then
    refuse("all sizes are about %g, too close to fit a curve", list[1].x)
  end
  return list
end

-- Returns the logarithms of the sizes minus their mean, and that mean.
local function logarithms(list)
  local u, mean = {}, 0.0
  for i, p in ipairs(list) do
    u[i] = math.log(p.x)
    mean = mean + u[i] / #list
  end
  for i in ipairs(u) do u[i] = u[i] - mean end
  return u, mean
end

-- Returns the degrees of freedom of the variance of a slope against u (Welch and Satterthwaite);
-- the sizes at the ends dominate it, so they are fewer than all seeds together give. nil without
-- repeated seeds.
local function freedom(list, u)
  local sum, squares, repeated = 0.0, 0.0, false
  for i, p in ipairs(list) do
    local n = #p.logs
    if n > 1 then
      local part = u[i] * u[i] * stats.deviation(p.logs) ^ 2 / n
      sum, squares, repeated = sum + part, squares + part * part / (n - 1), true
    end
  end
  return repeated and (squares > 0 and sum * sum / squares or math.huge) or nil
end

-- Returns a function that draws the means of the sizes as other seeds might have given them. It
-- draws the seeds of each size with replacement and widens their deviations from the mean, because
-- few seeds show too small a deviation: by sqrt(n / (n - 1)) for the mean taken from them, and by
-- Student's t over the normal quantile for the deviation. Equal numbers of seeds give equal draws,
-- so that fits of several models are drawn in pairs. nil without repeated seeds.
local function drawer(list, u, means)
  local free = freedom(list, u)
  if not free then return nil end
  local upper = 1 - (1 - stats.LEVEL) / 2
  local normal = stats.t_quantile(upper, 1e6)
  local wider = free < 1e6 and stats.t_quantile(upper, free) / normal or 1
  local stream = core.stream(1, "scaling")
  return function(into)
    for i, p in ipairs(list) do
      local n, sum = #p.logs, 0.0
      for _ = 1, n do sum = sum + p.logs[1 + stream:below(n)] end
      local widths = n > 1 and wider * math.sqrt(n / (n - 1)) or 0
      into[i] = means[i] * math.exp((sum / n - p.middle) * widths)
    end
    return into
  end
end

-- ---- Fits -------------------------------------------------------------------------------------

-- Returns the smallest and the largest exponent of fits without one of the sizes; nil if too few
-- sizes would be left.
local function without_one(u, means, form)
  if #u <= LEAST[form] then return nil end
  local least, most = math.huge, -math.huge
  for out = 1, #u do
    local some, y = {}, {}
    for i = 1, #u do
      if i ~= out then some[#some + 1], y[#y + 1] = u[i], means[i] end
    end
    local alpha = curves[form](some, y)
    least, most = math.min(least, alpha), math.max(most, alpha)
  end
  return least, most
end

-- Returns quantity(alpha, A, E) of all draws of a fit; nil without draws.
local function of_draws(fit, quantity)
  local list = {}
  for k, d in ipairs(fit.draws or {}) do list[k] = quantity(d[1], d[2], d[3]) end
  return fit.draws and list
end

-- Adds to a fit the intervals of its numbers, from bootstrap draws.
local function add_intervals(fit, list, u, means)
  local draw = drawer(list, u, means)
  if not draw then return end
  local drawn = {}
  fit.draws = {}
  for k = 1, scaling.DRAWS do fit.draws[k] = { curves[fit.form](u, draw(drawn)) } end
  fit.low, fit.high = stats.enclosing(of_draws(fit, function(alpha) return alpha end))
  if fit.form == "offset" then
    fit.E_low, fit.E_high = stats.enclosing(of_draws(fit, function(_, _, E) return E end))
  end
end

-- Returns a fitted curve's value at a size; its A refers to the mean of the logarithms.
local function value_at(fit, size, alpha, A, E)
  return E + A * math.exp(-alpha * (math.log(size) - fit.centre))
end

-- Fits points, a list of {x = size, y = value or list of values by seed}, by a form, "power" unless
-- given. If the list has a field name, errors begin with it. Returns {form=, alpha=, A=, E=,
-- at= (size -> the curve), off=, least=, most= (see above; the last two are nil if a size fewer is
-- too few), means= (by size), x= (the sizes), and, if some size has several seeds, low= and high=
-- (the 95 % interval of alpha), E_low= and E_high= (of E)}.
function scaling.fit(points, form)
  form = form or "power"
  local known, why = suggest.choose("form", form, sorted_keys(curves))
  if not known then error("scaling: " .. why, 0) end
  local list, means, x = checked(points, form), {}, {}
  for i, p in ipairs(list) do
    p.logs, x[i], means[i] = {}, p.x, stats.mean(p.y)
    for k, v in ipairs(p.y) do p.logs[k] = math.log(v) end
    p.middle = stats.mean(p.logs)
  end
  local u, centre = logarithms(list)
  local alpha, A, E = curves[form](u, means)
  local fit = { form = form, alpha = alpha, A = A * math.exp(alpha * centre), E = E, means = means,
    x = x, off = 0.0, centre = centre }
  function fit.at(size) return value_at(fit, size, alpha, A, E) end
  for i, p in ipairs(list) do
    fit.off = math.max(fit.off, math.abs(fit.at(p.x) / means[i] - 1))
  end
  fit.least, fit.most = without_one(u, means, form)
  add_intervals(fit, list, u, means)
  return fit
end

-- Returns the difference b - a of the exponents of two fits or, if a size is given, of their values
-- there, and its interval, which is nil without repeated seeds.
function scaling.difference(a, b, size)
  local function quantity(fit)
    return function(alpha, A, E)
      return size and value_at(fit, size, alpha, A, E) or alpha
    end
  end
  local own = size and b.at(size) - a.at(size) or b.alpha - a.alpha
  local first, second = of_draws(a, quantity(a)), of_draws(b, quantity(b))
  if not first or not second then return own end
  for k, v in ipairs(second) do second[k] = v - first[k] end
  return own, stats.enclosing(second)
end

-- Returns whether the seeds distinguish the offset of a fit from 0.
local function determined(fit)
  return fit.E_low ~= nil and fit.E_low > 0
end

-- Fits several lists of points by one form, so that their exponents can be compared. "auto" is
-- offset if every list has enough sizes for intervals and its offset has an interval above 0, else
-- power, and the default. Returns the fits and the form.
function scaling.fits(lists, form)
  local fits = {}
  form = form or "auto"
  if #lists == 0 then error("scaling: there is nothing to fit", 0) end
  if form == "auto" then
    form = "offset"
    for i, points in ipairs(lists) do
      local fit = #points > LEAST.offset and scaling.fit(points, form)
      if not fit or not determined(fit) then
        form = "power"
        break
      end
      fits[i] = fit
    end
    if form == "offset" then return fits, form end
  end
  for i, points in ipairs(lists) do fits[i] = scaling.fit(points, form) end
  return fits, form
end

-- ---- Figures ----------------------------------------------------------------------------------

local POINTS = 40

-- Returns x and y of the curve of a fit, over its sizes.
function scaling.curve(fit)
  local x, y, first, last = {}, {}, fit.x[1], fit.x[#fit.x]
  for i = 1, POINTS do
    x[i] = first * (last / first) ^ ((i - 1) / (POINTS - 1))
    y[i] = fit.at(x[i])
  end
  return x, y
end

-- Returns the exponent of a fit with its interval and, of an offset, E, for the name of a line.
function scaling.describe(fit)
  local interval = fit.low and (" [%.3g, %.3g]"):format(fit.low, fit.high) or ""
  local rest = fit.form == "offset" and (", E %.3g"):format(fit.E) or ""
  return ("exponent %.3g%s%s"):format(fit.alpha, interval, rest)
end

return suggest.strict("tl.scaling", scaling)
