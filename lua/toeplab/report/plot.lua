-- report/plot.lua: pictures by gnuplot, as SVG, or PNG or PDF where the file's name ends so.
--
--   plot.svg("loss.svg", { title = "Loss", xlabel = "step", logy = true,
--     series = { { name = "ours", x = {1, 2}, y = {0.5, 0.4} } } })
--   plot.svg("loss.svg", { series = { { y = mean, low = least, high = most } } })    with a band
--   plot.heat("matrix.svg", { title = "T", matrix = {{1, 2}, {3, 4}} })
--
-- A picture may have panels = { spec, ... }, in columns = 2. What is not finite, or cannot be on a
-- logarithmic axis, is a gap. Equal specs give equal files. Returns true, or nil and why not, as
-- when there is no gnuplot.
local core = require "toeplab.core"
local gnuplot = require "toeplab.report.gnuplot"
local suggest = require "toeplab.base.suggest"

local plot = {}

local clean, quote = gnuplot.clean, gnuplot.quote

local WIDTH, HEIGHT, CELLS = 720, 460, 360
-- Okabe and Ito's colours, which the colour-blind tell apart.
local colours = { "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000" }
local markers = { 7, 5, 9, 13, 11, 6, 4 }

local places = { ["top right"] = true, ["top left"] = true, ["bottom right"] = true,
  ["bottom left"] = true, outside = true, below = true, none = true }
local styles = { line = "lines", points = "points", both = "linespoints" }
local fields = {
  title = "string", xlabel = "string", ylabel = "string", zlabel = "string", key = "string",
  logx = "boolean|number", logy = "boolean|number", logz = "boolean", series = "table",
  matrix = "table|userdata", panels = "table", columns = "number", width = "number",
  height = "number", xrange = "table", yrange = "table", xnames = "table",
}
local series_fields = {
  name = "string", x = "table|userdata", y = "table|userdata", error = "table|userdata",
  style = "string", dashed = "boolean", colour = "number", marker = "number",
  low = "table|userdata", high = "table|userdata",
}

-- ---- Checks -----------------------------------------------------------------------------------

local function check(what, spec, known)
  if type(spec) ~= "table" then error(("%s must be a table"):format(what), 0) end
  for _, key in ipairs(suggest.keys(spec)) do
    if not known[key] then
      error(("%s has no field '%s'%s"):format(what, key, suggest.hint(key, suggest.keys(known))), 0)
    end
    if not ("|" .. known[key] .. "|"):find("|" .. type(spec[key]) .. "|", 1, true) then
      error(("%s: %s must be a %s, not a %s"):format(what, key, known[key]:gsub("|", " or a "),
        type(spec[key])), 0)
    end
  end
end

local function list(values)
  return type(values) == "userdata" and values:totable() or values
end

local function check_series(s, number)
  local what = "plot: series " .. number
  check(what, s, series_fields)
  if not s.y then error(what .. " has no y", 0) end
  if not styles[s.style or "line"] then
    error(("%s: style '%s'%s"):format(what, s.style, suggest.hint(s.style, suggest.keys(styles))),
      0)
  end
  local checked = { name = s.name, style = s.style or "line", dashed = s.dashed,
    colour = s.colour or number, y = list(s.y), x = list(s.x), error = list(s.error),
    marker = s.marker, low = list(s.low), high = list(s.high) }
  if (s.low == nil) ~= (s.high == nil) then error(what .. ": a band has low and high", 0) end
  checked.x = checked.x or {}
  for i = #checked.x + 1, s.x and 0 or #checked.y do checked.x[i] = i end
  if #checked.x ~= #checked.y or checked.error and #checked.error ~= #checked.y then
    error(("%s: %d x, %d y%s"):format(what, #checked.x, #checked.y,
      checked.error and ", " .. #checked.error .. " errors" or ""), 0)
  end
  if s.low and (#checked.low ~= #checked.y or #checked.high ~= #checked.y) then
    error(("%s: %d y, a band of %d low and %d high"):format(what, #checked.y, #checked.low,
      #checked.high), 0)
  end
  return checked
end

-- ---- Data -------------------------------------------------------------------------------------

-- v if it can be drawn, else nil.
local function drawable(v, log)
  return type(v) == "number" and v - v == 0 and (not log or v > 0) and v or nil
end

-- The lines of a series' data: an empty one, which is a gap, for what cannot be drawn. The second
-- result is the number of the others.
local function data(s, spec)
  local lines, count, bars = {}, 0, s.error
  for i = 1, #s.y do
    local x, y = drawable(s.x[i], spec.logx), drawable(s.y[i], spec.logy)
    lines[i] = ""
    if x and y then
      count = count + 1
      lines[i] = ("%.9g %.9g"):format(x, y)
      local bar = bars and (drawable(bars[i]) or 0)
      if bar then
        local low = drawable(y - bar, spec.logy) or y
        lines[i] = lines[i] .. (" %.9g %.9g"):format(low, y + bar)
      elseif s.low then
        lines[i] = lines[i] .. (" %.9g %.9g"):format(drawable(s.low[i], spec.logy) or y,
          drawable(s.high[i], spec.logy) or y)
      end
    end
  end
  return table.concat(lines, "\n"), count
end

local function colour_of(s) return colours[(s.colour - 1) % #colours + 1] end

-- Colours that come back are told apart by dashes.
local function style(s)
  local colour = colour_of(s)
  local marker = s.marker or markers[(s.colour - 1) % #markers + 1]
  local round = (s.colour - 1) // #colours
  local words = { "with", s.error and s.style == "points" and "yerrorbars"
    or s.error and "yerrorlines" or styles[s.style], "lc rgb '" .. colour .. "'" }
  if s.style ~= "points" or s.error then words[#words + 1] = "lw 1.8" end
  if s.style ~= "points" and (s.dashed or round > 0) then
    words[#words + 1] = "dt " .. (s.dashed and 2 or 2 + round % 4)
  end
  if s.style ~= "line" then
    words[#words + 1] = ("pt %d ps %s"):format(marker, s.marker and "1.1" or "0.6")
  end
  return table.concat(words, " ")
end

-- The least and the greatest of the values that can be drawn.
local function extent(spec, axis)
  local low, high = math.huge, -math.huge
  for _, s in ipairs(spec.series) do
    for i, v in ipairs(s[axis]) do
      if drawable(s.x[i], spec.logx) and drawable(s.y[i], spec.logy) then
        low, high = math.min(low, v), math.max(high, v)
      end
    end
  end
  return low, high
end

-- Whole powers of ten are worth a tick only where there are several.
local function axis(out, spec, name)
  local log, range = spec["log" .. name], spec[name .. "range"]
  local low, high = extent(spec, name)
  if range then low, high = range[1], range[2] end
  if low > high then low, high = log and 1 or 0, log and 10 or 1 end
  if log then
    out("set logscale %s %s", name, type(log) == "number" and ("%g"):format(log) or "10")
    if log == true and high / low >= 1e3 then out("set format %s '10^{%%T}'", name) end
  end
  if range or low == high or extent(spec, name) == math.huge then
    if low == high then
      low, high = log and low / 2 or low - 1, log and high * 2 or high + 1
    end
    out("set %srange [%.9g:%.9g]", name, low, high)
  end
end

local function labels(out, spec, width)
  if spec.title then -- in the middle of the axes, which a key or a scale of colours moves
    width = spec.width or width or WIDTH
    if spec.key == "outside" then width = math.min(width, WIDTH) end
    out("set title %s noenhanced", gnuplot.lines(spec.title, width // 11))
  end
  for _, name in ipairs { "xlabel", "ylabel" } do
    if spec[name] then out("set %s %s noenhanced", name, quote(spec[name])) end
  end
  if spec.zlabel then out("set cblabel %s noenhanced", quote(spec.zlabel)) end
end

local function named(spec)
  for _, s in ipairs(spec.series) do
    if s.name then return true end
  end
  return false
end

-- Names at 1, 2, ... of the horizontal axis instead of numbers.
local function name_ticks(out, names)
  local ticks = {}
  for i, name in ipairs(names) do ticks[i] = ("%s %d"):format(quote(name), i) end
  out("set xtics (%s) noenhanced\nset xrange [0.5:%d.5]", table.concat(ticks, ", "), #names)
end

-- Bars at the ends of the axis need some room.
local function pad(out, spec)
  local low, high = extent(spec, "x")
  if low >= high or spec.xrange then return end
  local more = 0.03 * (high - low)
  local times = spec.logx and (high / low) ^ 0.03
  out("set xrange [%.9g:%.9g]", times and low / times or low - more,
    times and high * times or high + more)
end

local function lines(out, spec)
  local key = spec.key or named(spec) and "top right" or "none"
  if key == "none" then out("unset key")
  elseif key == "outside" then out("set key outside right top Left reverse samplen 2.5")
  elseif key == "below" then out("set key at graph 0.5,-0.23 center top horizontal\nset bmargin 6")
  else out("set key %s opaque", key) end
  axis(out, spec, "x")
  axis(out, spec, "y")
  out("set errorbars 0\nset autoscale xfix\nset grid lt 1 lw 0.6 lc rgb '#dddddd'")
  for _, s in ipairs(spec.series) do
    if s.error then pad(out, spec) end
  end
  if spec.xnames then name_ticks(out, spec.xnames) end
  local parts, names, bands = {}, {}, {}
  for i, s in ipairs(spec.series) do
    local text, count = data(s, spec)
    names[i] = s.name and "title " .. quote(s.name) .. " noenhanced" or "notitle"
    parts[i] = "NaN " .. names[i] .. " " .. style { style = s.style, colour = s.colour }
    if count > 0 then
      out.blocks = out.blocks + 1
      out("$data%d << EOD\n%s\nEOD", out.blocks, text)
      parts[i] = ("$data%d %s %s"):format(out.blocks, names[i], style(s))
      if s.low then
        bands[#bands + 1] = ("$data%d using 1:3:4 with filledcurves fc rgb '%s' fs transparent "
          .. "solid 0.2 noborder notitle"):format(out.blocks, colour_of(s))
        parts[i] = parts[i]:gsub("^%S+", "%0 using 1:2", 1)
      end
    end
  end
  table.move(parts, 1, #parts, #bands + 1, bands)
  parts = bands
  out("plot %s", #parts > 0 and table.concat(parts, ", \\\n  ") or "NaN notitle")
end

-- ---- Matrices ---------------------------------------------------------------------------------

-- The numbers as text, each times x times, for viewers that blur large cells; the least and the
-- greatest.
local function matrix_text(matrix, log, times)
  local rows, low, high = {}, math.huge, -math.huge
  for r, row in ipairs(matrix) do
    local cells = {}
    for c, v in ipairs(row) do
      local shown = drawable(v, log)
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

local blue_red = "set palette defined (0 '#053061', 1 '#4393c3', 2 '#f7f7f7', 3 '#d6604d', "
  .. "4 '#67001f')"
local dark_light = "set palette defined (0 '#440154', 1 '#3b528b', 2 '#21918c', 3 '#5ec962', "
  .. "4 '#fde725')"

-- Where there are negative numbers, colours say the sign: 0 is white.
local function heat(out, spec)
  local matrix = list(spec.matrix)
  if #matrix == 0 then error("plot: the matrix is empty", 0) end
  local times = math.max(1, CELLS // math.max(#matrix, #matrix[1]))
  local text, low, high = matrix_text(matrix, spec.logz, times)
  if low > high then low, high = spec.logz and 1 or 0, spec.logz and 10 or 1 end
  if low < 0 then
    high = math.max(-low, high)
    low = -high
  elseif low == high then
    high = spec.logz and 10 * low or low + 1
  end
  if spec.logz then out("set logscale cb") end
  if spec.logz and high / low >= 1e3 then out("set format cb '10^{%%T}'") end
  if spec.logz and high / low < 100 then -- there may be no power of ten between them
    local middle = math.sqrt(low * high)
    out("set cbtics ('%.2g' %.9g, '%.2g' %.9g, '%.2g' %.9g)", low, low, middle, middle, high, high)
  end
  out("unset key")
  out(low < 0 and blue_red or dark_light)
  out("set cbrange [%.9g:%.9g]", low, high)
  out("set xrange [0.5:%d.5]\nset yrange [%d.5:0.5]", #matrix[1], #matrix)
  if #matrix[1] <= 10 then out("set xtics 1") end
  if #matrix <= 10 then out("set ytics 1") end
  out.blocks = out.blocks + 1
  out("$data%d << EOD\n%sEOD", out.blocks, text)
  local using = ("(($1+0.5)/%d+0.5):(($2+0.5)/%d+0.5):3"):format(times, times)
  out("plot $data%d matrix using %s notitle with image", out.blocks, using)
end

-- ---- The picture ------------------------------------------------------------------------------

local function panel(out, spec, width)
  out("reset")
  out("set encoding utf8\nset border lc rgb '#444444'\nset tics nomirror")
  labels(out, spec, width)
  if spec.matrix then return heat(out, spec) end
  local checked = { series = {} }
  for i, s in ipairs(spec.series or {}) do checked.series[i] = check_series(s, i) end
  lines(out, setmetatable(checked, { __index = spec }))
end

local terminals = { svg = "svg", png = "pngcairo", pdf = "pdfcairo" }

-- The commands for a picture of one of these kinds.
local function script(spec, kind)
  local panels = spec.panels or { spec }
  local columns = math.min(spec.columns or 2, #panels)
  local rows = (#panels + columns - 1) // columns
  local text = {}
  local out = setmetatable({ blocks = 0 }, { __call = function(_, format, ...)
    text[#text + 1] = format:format(...)
  end })
  local width = columns * (spec.width or WIDTH)
  local height = rows * (spec.height or HEIGHT) + (spec.panels and spec.title and 30 or 0)
  local size = kind == "pdf" and "%.2fin,%.2fin fontscale 0.7" or "%d,%d"
  local unit = kind == "pdf" and 100 or 1 -- in print a picture of 720 points fills the page
  out("set terminal %s size %s font 'sans-serif,13' background rgb 'white' enhanced",
    terminals[kind], size:format(width / unit, height / unit))
  out("set encoding utf8")
  if spec.panels then
    out("set multiplot layout %d,%d%s", rows, columns,
      spec.title and " title " .. quote(spec.title) .. " noenhanced" or "")
  end
  for i, p in ipairs(panels) do
    check(spec.panels and "plot: panel " .. i or "plot", p, fields)
    if p.key and not places[p.key] then
      error(("plot: key '%s'%s"):format(p.key, suggest.hint(p.key, suggest.keys(places))), 0)
    end
    panel(out, p, spec.width)
  end
  if spec.panels then out("unset multiplot") end
  return table.concat(text, "\n") .. "\n"
end

local escapes = { ["&"] = "&amp;", ["<"] = "&lt;" }

-- What viewers show of the file, and sharp cells of matrices.
local function finish(svg, title)
  local words = clean(title or ""):gsub("[&<]", escapes)
  svg = svg:gsub("<title>Gnuplot</title>\n", function()
    return title and "<title>" .. words .. "</title>\n" or ""
  end, 1)
  return (svg:gsub("<image ", "<image style='image-rendering:pixelated' "))
end

local function draw(path, spec)
  check("plot", spec, fields)
  local kind = path:lower():match("%.(%a+)$")
  if not terminals[kind] then
    error(("plot: %s: its name must end in .svg, .png or .pdf"):format(path), 0)
  end
  local picture, why = gnuplot.run(script(spec, kind))
  if not picture then return nil, why end
  if kind == "svg" then picture = finish(picture, spec.title) end
  if kind == "pdf" then -- no date of its own
    picture = picture:gsub("/CreationDate %(D:[^)]*%)", function(date)
      return (date:gsub("%d", "0"))
    end)
  end
  return core.sys.write_file(path, picture)
end

-- Lines and points: spec.series, each {name=, x=, y=, style="line"|"points"|"both", dashed=,
-- error= (half the height of bars), low=, high= (a band), colour= (1..7), marker= (gnuplot's
-- number)}; or spec.panels.
function plot.svg(path, spec)
  return draw(path, spec)
end

-- A matrix, its first row above, as colours.
function plot.heat(path, spec)
  if type(spec) == "table" and not spec.matrix then error("plot.heat: there is no matrix", 0) end
  return draw(path, spec)
end

return suggest.strict("tl.plot", plot)
