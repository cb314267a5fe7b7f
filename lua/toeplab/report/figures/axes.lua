-- report/figures/axes.lua: chooses the scale, range and ticks of the axes of a figure for gnuplot.
local axes = {}

local ROUNDING = 2.0 ^ -46 -- the share of two values below which their distance is rounding

-- Returns v if it can be drawn, else nil.
function axes.drawable(v, log)
  return type(v) == "number" and v - v == 0 and (not log or v > 0) and v or nil
end

local drawable = axes.drawable

-- Returns the minimum and maximum of the values that can be drawn. bars: with the ends of their
-- bars and bands.
local function extent(spec, axis, bars)
  local low, high = math.huge, -math.huge
  local log = spec["log" .. axis]
  for _, s in ipairs(spec.series) do
    for i, v in ipairs(s[axis]) do
      if drawable(s.x[i], spec.logx) and drawable(s.y[i], spec.logy) then
        local below, above = v, v
        if bars and s.error then
          local half = drawable(s.error[i]) or 0
          below, above = v - half, v + half
        elseif bars and s.low then
          below, above = s.low[i], s.high[i]
        end
        low = math.min(low, v, drawable(below, log) or v)
        high = math.max(high, v, drawable(above, log) or v)
      end
    end
  end
  return low, high
end

-- Returns a step of 1, 2 or 5 times a power of ten, of which about five make a length.
local function round_step(length)
  local power = 10 ^ math.floor(math.log(length / 5, 10))
  local times = length / 5 / power
  return (times < 1.5 and 1 or times < 3.5 and 2 or times < 7.5 and 5 or 10) * power
end

-- Labels round numbers of a logarithmic axis that spans less than a decade: gnuplot would extend
-- it to powers of ten, and label only these.
local function within_decade(out, spec, name)
  local low, high = extent(spec, name, name == "y")
  local wider = (high / low) ^ 0.06
  low, high = low / wider, high * wider
  local step, ticks = round_step(high - low), {}
  for k = math.ceil(low / step), math.floor(high / step) do
    ticks[#ticks + 1] = ("%.15g"):format(k * step)
  end
  out("set %stics (%s)\nset %srange [%.15g:%.15g]", name, table.concat(ticks, ", "), name, low,
    high)
end

-- Sets the scale and range of an axis; more: the share of its length that bars at its ends need.
-- gnuplot chooses the range itself unless there is no value, or only one.
function axes.scale(out, spec, name, more)
  local log, range = spec["log" .. name], spec[name .. "range"]
  local low, high = extent(spec, name)
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
    if log == true and not range and high > low and high / low < 10 then
      return within_decade(out, spec, name)
    end
  end
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
