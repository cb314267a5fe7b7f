-- report/figures/axes.lua: chooses the scale, range and ticks of the axes of a figure for gnuplot.
local axes = {}

local APART = 1.5 -- least distance of two labels of the y axis, in lines
local ROUNDING = 2.0 ^ -46 -- relative distance of two values that counts as rounding

-- Returns v if it can be drawn, else nil.
function axes.drawable(v, log)
  return type(v) == "number" and v - v == 0 and (not log or v > 0) and v or nil
end

local drawable = axes.drawable

-- Returns the minimum and maximum of the values of axis "x" or "y" that can be drawn. bars: with
-- the ends of their bars and bands.
function axes.extent(spec, axis, bars)
  local log, vertical = spec["log" .. axis], axis == "y"
  local also = not vertical and spec.xline
  local low, high = also or math.huge, also or -math.huge
  for _, s in ipairs(spec.series) do
    local lower, upper = s[vertical and "low" or "xlow"], s[vertical and "high" or "xhigh"]
    for i, v in ipairs(s[axis]) do
      if drawable(s.x[i], spec.logx) and drawable(s.y[i], spec.logy) then
        local below, above = v, v
        if bars and vertical and s.error then
          local half = drawable(s.error[i]) or 0
          below, above = v - half, v + half
        elseif bars and lower then
          below, above = lower[i], upper[i]
        end
        low = math.min(low, v, drawable(below, log) or v)
        high = math.max(high, v, drawable(above, log) or v)
      end
    end
  end
  return low, high
end

local extent = axes.extent

-- Returns a range that is a little wider than from low to high, nil if there is none.
function axes.wider(low, high, log)
  if low >= high then return nil end
  local more = log and (high / low) ^ 0.04 or 0.04 * (high - low)
  return log and { low / more, high * more } or { low - more, high + more }
end

-- Returns 1, 2 or 5 times a power of ten, such that about five steps make a length.
function axes.round_step(length)
  local power = 10 ^ math.floor(math.log(length / 5, 10))
  local times = length / 5 / power
  return (times < 1.5 and 1 or times < 3.5 and 2 or times < 7.5 and 5 or 10) * power
end

-- Labels round numbers of a logarithmic axis that spans less than a decade: gnuplot would extend
-- it to powers of ten, and label only these. Leaves out labels that would touch others.
local function within_decade(out, spec, name)
  local range = spec[name .. "range"]
  local low, high = extent(spec, name, true)
  local wider = range and 1 or (high / low) ^ 0.06
  low, high = range and range[1] or low / wider, range and range[2] or high * wider
  local step, ticks, last = axes.round_step(high - low), {}, -math.huge
  for k = math.ceil(low / step), math.floor(high / step) do
    local text = ("%.12g"):format(k * step)
    local digits, power = text:match "^(.*)e([+-]%d+)$"
    local shown, length = text, #text
    if digits then
      shown, length = ("'%s×10^{%d}' %s"):format(digits, tonumber(power), text), #digits + 6
    end
    local at = math.log(k * step / low) / math.log(high / low) * out.space[name]
    if at - last >= (name == "y" and APART or length + 2) then
      ticks[#ticks + 1], last = shown, at
    end
  end
  out("set %stics (%s)\nset %srange [%.15g:%.15g]", name, table.concat(ticks, ", "), name, low,
    high)
end

-- Sets the distance of the ticks of an axis from low to high if the labels that gnuplot would write
-- could touch one another. base: of a logarithmic axis.
function axes.spread(out, name, low, high, base)
  local room = APART
  if name == "x" then room = math.max(#("%.4g"):format(low), #("%.4g"):format(high), 4) + 2 end
  local most = math.max(1, out.space[name] // room)
  if base and high > low then
    local decades = math.log(high, base) - math.log(low, base)
    local every, ticks = math.ceil(decades / most), {}
    for k = math.floor(math.log(low, base) + 0.5), math.ceil(math.log(high, base)), every do
      ticks[#ticks + 1] = ("%.15g"):format(base ^ k)
    end
    if every > 1 then out("set %stics (%s)", name, table.concat(ticks, ", ")) end
  end
  if base or most >= 9 or low >= high then return end
  local step = 10 ^ math.floor(math.log((high - low) / most, 10))
  for _, times in ipairs { 1, 2, 5, 10 } do
    if times * step * most >= high - low then
      return out("set %stics %.15g", name, times * step)
    end
  end
end

-- Sets the scale and range of an axis; more: the share of its length that bars at its ends need.
-- gnuplot chooses the range itself unless there is no value, or only one.
function axes.scale(out, spec, name, more)
  local log, range = spec["log" .. name], spec[name .. "range"]
  local low, high = extent(spec, name, name == "x")
  local none = low > high
  if range then low, high = range[1], range[2] end
  if low > high then low, high = log and 1 or 0, log and 10 or 1 end
  local size = math.max(math.abs(low), math.abs(high))
  if high - low < ROUNDING * size then high = low end -- a range would be empty
  if low < high and high - low < 1e-4 * size then -- gnuplot labels ticks with 6 digits
    out("set format %s '%%.%dg'", name, math.ceil(math.log(size / (high - low), 10)) + 3)
  end
  if log then
    out("set logscale %s %s", name, type(log) == "number" and ("%g"):format(log) or "10")
    -- If the axis spans several decades, only powers of ten are labelled.
    if log == true and high / low >= 1e3 then out("set format %s '10^{%%T}'", name) end
    if log == true and high > low and high / low < 10 then
      return within_decade(out, spec, name)
    end
  end
  local first, last = extent(spec, name, true)
  if range then first, last = range[1], range[2] end
  axes.spread(out, name, first, last, log and (log == true and 10 or log))
  if low == high then
    local half = math.max(1, 1e-3 * math.abs(low))
    low, high = log and low / 2 or low - half, log and high * 2 or high + half
  elseif more and not range then
    local wider = log and (high / low) ^ more or more * (high - low)
    low, high = log and low / wider or low - wider, log and high * wider or high + wider
  elseif not range and not none then
    return
  end
  out("set %srange [%.15g:%.15g]", name, low, high)
end

return axes
