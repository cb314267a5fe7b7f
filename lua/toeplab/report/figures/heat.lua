-- report/figures/heat.lua: writes the gnuplot commands that draw a matrix as colours.
local axes = require "toeplab.report.figures.axes"
local gnuplot = require "toeplab.report.figures.gnuplot"

local CELLS = 360 -- pixels of a matrix's longer side

-- Returns the numbers as text, each repeated `times` by `times` because some viewers blur large
-- cells; also the minimum and the maximum.
local function text_of(matrix, log, times)
  local rows, low, high = {}, math.huge, -math.huge
  for r, row in ipairs(matrix) do
    local cells = {}
    for c, v in ipairs(row) do
      local shown = axes.drawable(v, log)
      cells[c] = (shown and ("%.9g "):format(shown) or "NaN "):rep(times)
      if shown then low, high = math.min(low, v), math.max(high, v) end
    end
    if #cells == 0 or #cells ~= #matrix[1] then
      error(("plot: row %d of the matrix has %d numbers, row 1 %d"):format(r, #cells, #matrix[1]),
        0)
    end
    rows[r] = (table.concat(cells) .. "\n"):rep(times)
  end
  return table.concat(rows), low, high
end

-- Palettes of a matrix by kind of figure: from the minimum to the maximum or, if there are negative
-- values, symmetric about 0. In text without colours, brightness shows the magnitude regardless of
-- the sign.
local palettes = {
  signed = "0 '#053061', 1 '#4393c3', 2 '#f7f7f7', 3 '#d6604d', 4 '#67001f'",
  positive = "0 '#440154', 1 '#3b528b', 2 '#21918c', 3 '#5ec962', 4 '#fde725'",
  signed_shades = "0 'white', 1 'black', 2 'white'",
  positive_shades = "0 'black', 1 'white'",
}

-- Returns the range of the colours for values between low and high.
local function colour_range(low, high, log)
  if low > high then return log and 1 or 0, log and 10 or 1 end -- there is no value
  if low < 0 then return -math.max(-low, high), math.max(-low, high) end
  if low == high then return low, log and 10 * low or low + 1 end
  return low, high
end

-- Sets the numbers beside the colour scale, and the space for them and their label.
local function colour_scale(out, low, high, log)
  local step = axes.round_step(high - low)
  local longest = log and 7 or math.max(#("%g"):format(step * math.ceil(low / step)),
    #("%g"):format(step * (math.ceil(low / step) + 1)), #("%g"):format(step * (high // step)))
  if out.kind ~= "text" then out("set rmargin %d", 5 + longest + 2 * out.space.beside) end
  if log then out("set logscale cb") end
  if log and high / low >= 100 then
    out("set format cb '10^{%%T}'")
  elseif log then -- there may be no power of ten in between
    local middle = math.sqrt(low * high)
    out("set cbtics ('%.2g' %.9g, '%.2g' %.9g, '%.2g' %.9g)", low, low, middle, middle, high, high)
  end
  if not log then axes.spread(out, "cb", low, high) end
  out("set cbrange [%.9g:%.9g]", low, high)
end

-- Draws spec.matrix, a list of lists of numbers. The colours are from zrange[1] to zrange[2], by
-- default from its minimum to its maximum.
return function(out, spec)
  local matrix = spec.matrix
  if type(matrix) == "userdata" then matrix = matrix:totable() end
  if #matrix == 0 then error("plot: the matrix is empty", 0) end
  for _, row in ipairs(matrix) do
    if type(row) ~= "table" then error("plot: a matrix must be a list of rows", 0) end
  end
  local times = out.kind == "text" and 1 or math.max(1, CELLS // math.max(#matrix, #matrix[1]))
  local text, low, high = text_of(matrix, spec.logz, times)
  if spec.zrange then low, high = spec.zrange[1], spec.zrange[2] end
  low, high = colour_range(low, high, spec.logz)
  colour_scale(out, low, high, spec.logz)
  out("unset key")
  local palette = (low < 0 and "signed" or "positive") .. (out.shades and "_shades" or "")
  out("set palette defined (%s)", palettes[palette])
  out("set xrange [0.5:%d.5]\nset yrange [%d.5:0.5]", #matrix[1], #matrix)
  if #matrix[1] <= 10 then out("set xtics 1") end
  if #matrix <= 10 then out("set ytics 1") end
  axes.spread(out, "x", 1, #matrix[1])
  axes.spread(out, "y", 1, #matrix)
  for axis, count in pairs { x = #matrix[1], y = #matrix } do
    if spec[axis .. "names"] then gnuplot.ticks(out, axis, spec[axis .. "names"], count) end
  end
  out.blocks = out.blocks + 1
  out("$data%d << EOD\n%sEOD", out.blocks, text)
  local using = ("(($1+0.5)/%d+0.5):(($2+0.5)/%d+0.5):3"):format(times, times)
  out("plot $data%d matrix using %s notitle with image", out.blocks, using)
end
