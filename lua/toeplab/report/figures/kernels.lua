-- report/figures/kernels.lua: draws the Toeplitz operators of a stored model: their matrices (TNN,
-- Fig. 3), their kernels, and the frequency responses of the kernels.
--
--   plot.svg(path, { panels = kernels.panels(model, "matrix", { n = 64 }) })
--
-- options: n (the length), layers (numbers; all), channels (numbers; without them matrices show the
-- mean over all channels, the others a few), log (of the values), logx, title (what the panels'
-- titles begin with).
local axes = require "toeplab.report.figures.axes"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"

local kernels = {}

local SHOWN = 6               -- channels of a kernel, if none are given
local MOST = 2 ^ 30           -- bytes, limit for the matrices of a layer

-- ---- Operators --------------------------------------------------------------------------------

-- Lists the operators of a model: {name=, number=, tno=}; numbers: only those.
local function operators(model, numbers)
  local all, list = {}, {}
  for _, entry in ipairs(model:modules()) do
    if entry.module.kind == "TNO" then
      all[#all + 1] = { name = entry.name, number = #all + 1, tno = entry.module }
    end
  end
  if #all == 0 then errors.usage("plot: the model has no Toeplitz operators") end
  for i, number in ipairs(numbers or {}) do
    list[i] = all[number]
      or errors.usage("plot: there is no layer %d: the model has %d Toeplitz operators", number,
        #all)
  end
  return numbers and list or all
end

-- Returns the channels of d to draw: the requested ones, or a few that are evenly spaced.
local function chosen(channels, d)
  local list = {}
  for i, c in ipairs(channels or {}) do
    if c > d then errors.usage("plot: there is no channel %d: the operator has %d", c, d) end
    list[i] = c
  end
  if channels then return list end
  local count = math.min(SHOWN, d)
  for i = 1, count do list[i] = count == 1 and 1 or 1 + (i - 1) * (d - 1) // (count - 1) end
  return list
end

-- Returns the response [n,d] of the operator to 1 in all channels at position `at` (from 1).
local function impulse_response(tno, n, at)
  local d = tno.opt.dim
  local parts = { core.ones(1, 1, d) }
  if at > 1 then table.insert(parts, 1, core.zeros(1, at - 1, d)) end
  if at < n then parts[#parts + 1] = core.zeros(1, n - at, d) end
  return tno(core.concat(parts, 2)):reshape(n, d)
end

-- ---- Panels -----------------------------------------------------------------------------------

local panels = {} -- by kind: a function that returns the panels of an operator as a list

-- Draws T itself: row i, column j is the weight of position j in output i. One panel shows the mean
-- over the channels, or each requested channel has its own.
function panels.matrix(tno, o)
  local n, d, name, list = o.n, tno.opt.dim, o.log and "|T|" or "T", {}
  if 4.0 * d * n * n > MOST then
    errors.usage("plot: %d matrices of %d x %d take %.1f GB: give a smaller --n", d, n, n,
      4e-9 * d * n * n)
  end
  local dense = core.no_grad(tno.dense, tno, n)
  for i, channel in ipairs(o.channels and chosen(o.channels, d) or { false }) do
    local shown = channel and dense:narrow(1, channel, 1) or dense
    if o.log then shown = shown:abs() end -- before the mean, in which signs would cancel
    if not channel then shown = shown:mean(1) end
    list[i] = { matrix = shown:reshape(n, n):totable(), xlabel = "from position j",
      ylabel = "to position i", logz = o.log,
      zlabel = not channel and name .. ", mean over channels" or nil,
      title = channel and (", %s of channel %d"):format(name, channel) }
  end
  return list
end

local function channel_lines(values, x, list, log)
  local series = {}
  for i, c in ipairs(list) do
    local y = {}
    for r, row in ipairs(values) do y[r] = log and math.abs(row[c]) or row[c] end
    series[i] = { name = "channel " .. c, x = x, y = y }
  end
  return series
end

-- Draws t_k against the lag k = i - j.
function panels.kernel(tno, o)
  local n, causal, rows, x = o.n, tno.opt.causal, {}, {}
  local ahead = impulse_response(tno, n, 1):totable()
  local back = causal or impulse_response(tno, n, n):totable()
  for k = causal and 0 or 1 - n, n - 1 do
    rows[#rows + 1], x[#x + 1] = k < 0 and back[n + k] or ahead[k + 1], k
  end
  return { { xlabel = "lag k", ylabel = o.log and "|t_k|" or "t_k", logx = o.logx, logy = o.log,
    series = channel_lines(rows, x, chosen(o.channels, tno.opt.dim), o.log) } }
end

-- Draws the magnitude of the kernel's discrete Fourier transform over 2n points: the lags from 0
-- on, zeros, and the negative lags, wrapped around.
function panels.response(tno, o)
  local n, d = o.n, tno.opt.dim
  local parts = { impulse_response(tno, n, 1) }
  if tno.opt.causal then
    parts[2] = core.zeros(n, d)
  else -- negative lags wrap around
    parts[2] = core.zeros(1, d)
    parts[3] = n > 1 and impulse_response(tno, n, n):narrow(1, 1, n - 1) or nil
  end
  local h = core.rfft(core.concat(parts, 1), 1)
  local rows, x, size = h:totable(), {}, {}
  for i, row in ipairs(rows) do
    x[i], size[i] = (i - 1) / n, {}
    for c, pair in ipairs(row) do size[i][c] = math.sqrt(pair[1] ^ 2 + pair[2] ^ 2) end
  end
  return { { xlabel = "frequency / pi", ylabel = "|response|", logx = o.logx, logy = o.log,
    series = channel_lines(size, x, chosen(o.channels, d), false) } }
end

-- The default length of an operator, of a model that was trained at `length` (nil: unknown): one
-- for all kinds, so that a matrix and a kernel of a model show the same lags.
kernels.LONGEST = 256
function kernels.length(length) return math.min(length or kernels.LONGEST, kernels.LONGEST) end

-- Gives the matrices among panels one scale of colours, so that layers can be compared.
function kernels.one_scale(list)
  local low, high = math.huge, -math.huge
  for _, panel in ipairs(list) do
    for _, row in ipairs(panel.matrix or {}) do
      for _, v in ipairs(row) do
        if axes.drawable(v, panel.logz) then low, high = math.min(low, v), math.max(high, v) end
      end
    end
  end
  for _, panel in ipairs(low <= high and list or {}) do
    if panel.matrix then panel.zrange = { low, high } end
  end
end

kernels.kinds = { "kernel", "matrix", "response" }

-- Returns the panels of a model, one for each Toeplitz operator, or for each requested channel of
-- its matrix, and leaves the model in evaluation mode. kind: "matrix", "kernel" or "response".
function kernels.panels(model, kind, o)
  local list = {}
  model:eval()
  for _, operator in ipairs(operators(model, o.layers)) do
    for _, panel in ipairs(core.no_grad(panels[kind], operator.tno, o)) do
      panel.title = ("%slayer %d%s"):format(o.title and o.title .. ", " or "", operator.number,
        panel.title or "")
      if panel.series then panel.key = #panel.series > 1 and "outside" or "none" end
      list[#list + 1] = panel
    end
  end
  return list
end

return kernels
