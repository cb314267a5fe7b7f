-- smoothness.lua: does the impulse response of a frequency domain TNO decay as fast as Theorems 2
-- to 4 of "SKI to go Faster" say for GeLU, SiLU and ReLU, and if not, which encoder would?
--
-- The theorems assume that the response H is a smooth periodic function. But an encoder of omega in
-- [0, pi], continued evenly, has a kink at 0 and at pi unless its slopes there are 0, so that
-- k_j -> (H'(pi) (-1)^j - H'(0)) / (pi j^2) for every activation. An encoder of cos(omega) has no
-- such kink; because of the norm its response then decays at best exponentially.
--
-- Two further statements can fail. Parseval (Theorem 4): the sum of k_j^2 is the mean of H^2, here
-- over frequencies between those of the transform. The bound behind Theorems 2 and 3: j^N |k_j| is
-- at most the mean of |H^(N)|, for N = 1 and 2; for N = 2 the kinks at 0 and pi, where H'' is not a
-- function, break it unless they are counted.
local tl = require "toeplab"

-- Returns the impulse responses [size,c] of real responses h [size/2+1,c].
local function impulse(h, size)
  local rows, channels = h:dim(1), h:dim(2)
  local complex = tl.concat({ h:reshape(rows, channels, 1), tl.zeros(rows, channels, 1) }, 3)
  return tl.irfft(complex, 1, size)
end

-- Returns the one-sided slopes of each channel at omega = 0 and pi.
local function slopes(rpe, channels)
  local list = {}
  for c = 1, channels do
    local ends = tl.tensor { 0, math.pi }:require_grad()
    rpe(ends, 2):narrow(2, c, 1):sum():backward()
    list[c] = ends:grad():totable()
  end
  return list
end

-- Returns the mean of j^2 |k_j| over the channels and over lags first..last of one parity, and the
-- value that the slopes at the ends predict.
local function floor_of(k, ends, first, last, parity)
  local measured, predicted, count = 0.0, 0.0, 0
  for j = first, last do
    if j % 2 == parity then
      count = count + #ends
      for c, slope in ipairs(ends) do
        measured = measured + j * j * math.abs(k[j + 1][c])
        local sign = parity == 0 and 1 or -1
        predicted = predicted + math.abs(sign * slope[2] - slope[1]) / math.pi
      end
    end
  end
  return measured / count, predicted / count
end

-- Returns the root mean square over the channels and over lags j and j+1, one of which is even.
local function size_at(k, j)
  local sum = 0.0
  for _, row in ipairs { k[j + 1], k[j + 2] } do
    for _, v in ipairs(row) do sum = sum + v * v end
  end
  return math.sqrt(sum / 2 / #k[1])
end

local CELLS = 128 -- for second differences of float32 numbers: in more, rounding would dominate

-- Returns for a channel c of h, a response at size/2+1 points of [0, pi], the means over a period
-- of |H'|, of |H''| without the kinks at 0 and pi, and of |H''| with them.
local function mean_derivatives(h, c)
  local points, first, second = #h - 1, 0.0, 0.0
  for i = 1, points do first = first + math.abs(h[i + 1][c] - h[i][c]) end
  local every = math.max(points // CELLS, 1)
  local step, last = every * math.pi / points, points // every * every
  local function slope(i) return (h[i + every + 1][c] - h[i + 1][c]) / step end
  for i = every, last - every, every do
    second = second + math.abs(slope(i) - slope(i - every))
  end
  local kinks = math.abs(slope(0)) + math.abs(slope(last - every))
  return first / math.pi, second / math.pi, (second + kinks) / math.pi
end

-- Returns the largest quotients of j |k_j|, j^2 |k_j| and, counting the kinks, j^2 |k_j| and their
-- bounds by the derivatives, over the channels and the lags from 1 to last.
local function against_bounds(k, h, last)
  local most = { 0.0, 0.0, 0.0 }
  for c = 1, #h[1] do
    local one, two, with_kinks = mean_derivatives(h, c)
    for j = 1, last do
      local size = j * math.abs(k[j + 1][c])
      most[1], most[2] = math.max(most[1], size / one), math.max(most[2], j * size / two)
      most[3] = math.max(most[3], j * size / with_kinks)
    end
  end
  return table.unpack(most)
end

-- Returns the sum of k_j^2 as a multiple of the mean of H^2 over the frequencies between those of
-- the transform, both summed over the channels.
local function parseval(rpe, k, size)
  local between = (tl.range(0, size // 2 - 1) + 0.5) * (2 * math.pi / size)
  local squares = rpe(between, size // 2):square():sum():item() / (size // 2)
  return k:square():sum():item() / squares
end

local function geometric(last)
  local list, at = {}, 1.0
  while at <= last do
    local j = math.floor(at + 0.5)
    if j ~= list[#list] then list[#list + 1] = j end
    at = at * 1.06
  end
  return list
end

local function choose(trials, wanted)
  local list = {}
  for _, t in ipairs(trials) do
    local fits = true
    for key, value in pairs(wanted) do fits = fits and t.config[key] == value end
    if fits then list[#list + 1] = t end
  end
  return list
end

local acts, inputs, norms = { "relu", "silu", "gelu" }, { "integer", "cos" },
  { "simplermsnorm", "none" }
local called = { integer = "omega", cos = "cos omega" }

local function panel(trials, norm)
  local series = {}
  for i, act in ipairs(acts) do
    for _, input in ipairs(inputs) do
      local t = choose(trials, { norm = norm, act = act, input = input })[1]
      if t then
        local x, y = t:series "size"
        series[#series + 1] = { name = act .. " of " .. called[input], x = x, y = y, colour = i,
          dashed = input == "cos" }
      end
    end
  end
  local silu = choose(trials, { norm = norm, act = "silu", input = "integer" })[1]
  if silu then
    local x, y = silu:series "predicted size"
    series[#series + 1] = { name = "silu, as its slopes predict", x = x, y = y,
      colour = 7, style = "points" }
  end
  return { title = norm == "none" and "without a norm" or "with " .. norm, xlabel = "lag j",
    ylabel = "|k_j| / max |k|, rms over channels", logx = true, logy = true, key = "outside",
    yrange = { 1e-10, 1 }, series = series }
end

return tl.experiment "smoothness" {
  label = { step = "lag" },
  fixed = {
    layers = 3, hidden = 64, channels = 16,
    size = 8192,                    -- transform length
    first = 31, last = 128,         -- lags over which the floor is measured
    small = 1e-6,                   -- threshold relative to the largest coefficient
    farthest = 1024,                -- greatest lag
  },
  grid = { norm = norms, act = acts, input = inputs },
  seeds = 5,
  scale = { smoke = { hidden = 32, channels = 8, size = 4096 } },

  check = function(c)
    if not (c.first >= 1 and c.first < c.last and 2 * c.last < c.size and c.size % 2 == 0) then
      error(("lags first = %d to last = %d must be some below half of size = %d, which is even")
        :format(c.first, c.last, c.size), 0)
    end
  end,

  trial = function(t, c)
    local rpe = tl.nn.RPE(c.channels, { hidden = c.hidden, layers = c.layers, norm = c.norm,
      act = c.act, input = c.input })
    local ends = slopes(rpe, c.channels)
    local k, h = tl.no_grad(function()
      local omega = tl.range(0, c.size // 2) * (2 * math.pi / c.size)
      local response = rpe(omega, c.size // 2)
      local coefficients = impulse(response, c.size)
      t:log { parseval = parseval(rpe, coefficients, c.size) }
      return coefficients:totable(), response:totable()
    end)
    local first, second, with_kinks = against_bounds(k, h, c.last)
    t:log { over_bound_1 = first, over_bound_2 = second, over_bound_2_with_kinks = with_kinks }

    local even, even_by_slopes = floor_of(k, ends, c.first, c.last, 0)
    local odd, odd_by_slopes = floor_of(k, ends, c.first, c.last, 1)
    t:log { floor_even = even, predicted_even = even_by_slopes, floor_odd = odd,
      predicted_odd = odd_by_slopes }

    local most, last = 0.0, 0
    for j = 0, c.farthest do most = math.max(most, size_at(k, j)) end
    for j = 0, c.farthest do
      if size_at(k, j) > c.small * most then last = j end
    end
    t:log { significant_lags = last }
    local squares = 0.0 -- of j^2 k_j, the mean over channels, and over an even and an odd j
    for _, slope in ipairs(ends) do
      squares = squares + (slope[1] ^ 2 + slope[2] ^ 2) / math.pi ^ 2 / c.channels
    end
    for _, j in ipairs(geometric(c.farthest)) do
      t:log({ size = size_at(k, j) / most }, j)
      if j >= 8 then t:log({ ["predicted size"] = math.sqrt(squares) / j ^ 2 / most }, j) end
    end
  end,

  report = function(trials, report)
    local rows, bounds, names = {}, {}, { "floor_even", "predicted_even", "floor_odd",
      "predicted_odd", "significant_lags" }
    local statements = { "parseval", "over_bound_1", "over_bound_2", "over_bound_2_with_kinks" }
    for _, norm in ipairs(norms) do
      for _, act in ipairs(acts) do
        for _, input in ipairs(inputs) do
          local chosen = choose(trials, { norm = norm, act = act, input = input })
          local function row_of(metrics)
            local row = { norm, act, called[input] }
            for i, name in ipairs(metrics) do
              local values = {}
              for s, t in ipairs(chosen) do values[s] = t.metrics[name] end
              row[3 + i] = report.mean(values)
            end
            return #chosen > 0 and row or nil
          end
          rows[#rows + 1], bounds[#bounds + 1] = row_of(names), row_of(statements)
        end
      end
    end
    report.table({ "norm", "activation", "input", "j^2 |k_j|, even j", "predicted",
      "j^2 |k_j|, odd j", "predicted", "last lag above 1e-6 of the largest" }, rows)
    report.table({ "norm", "activation", "input", "sum of k_j^2 / mean of H^2",
      "j |k_j| / mean |H'|", "j^2 |k_j| / mean |H''|", "with the kinks at 0 and pi" }, bounds,
      "smoothness-bounds", "the last three: the largest of all lags up to `last` and channels; the "
      .. "bound holds where it is at most 1")
    report.plot { panels = { panel(trials, "simplermsnorm"), panel(trials, "none") }, columns = 1,
      width = 860, height = 420 }
  end,
}
