-- report/figures/plot.lua: draws figures by gnuplot: SVG, PNG or PDF files by the extension of the
-- path, SVG for a page, and text for a terminal.
--
--   plot.svg("loss.svg", { title = "Loss", xlabel = "step", logy = true,
--     series = { { name = "ours", x = {1, 2}, y = {0.5, 0.4} } } })
--   plot.svg("loss.svg", { series = { { y = mean, low = least, high = most } } })    with a band
--   plot.heat("matrix.svg", { title = "T", matrix = {{1, 2}, {3, 4}} })
--   print(plot.text({ series = { { y = { 3, 2, 1 } } } }))
--
-- A spec may have panels = { spec, ... }, in columns = 2. Values that are not finite, or not
-- positive on a logarithmic axis, become gaps. Equal specs give equal files. The functions return
-- true, or nil and the reason, e.g. that gnuplot is missing.
local axes = require "toeplab.report.figures.axes"
local core = require "toeplab.core"
local gnuplot = require "toeplab.report.figures.gnuplot"
local progress = require "toeplab.base.progress"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local plot = {}

local clean, quote = gnuplot.clean, gnuplot.quote
local drawable = axes.drawable

local WIDTH, HEIGHT, CELLS = 720, 460, 360 -- of a panel in points; size of a matrix as text
local LETTER, LINE = 8, 20 -- approximate size of a character in points
-- The colour-blind-safe palette of Okabe and Ito.
local colours = { "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000" }
local markers = { 7, 5, 9, 13, 11, 6, 4 }
local letters = { "*", "#", "$", "%", "@", "&", "=" } -- of gnuplot's lines in text

local places = { ["top right"] = true, ["top left"] = true, ["bottom right"] = true,
  ["bottom left"] = true, outside = true, below = true, none = true }
local styles = { line = "lines", points = "points", both = "linespoints" }
local fields = {
  title = "string", xlabel = "string", ylabel = "string", zlabel = "string", key = "string",
  logx = "boolean|number", logy = "boolean|number", logz = "boolean", series = "table",
  matrix = "table|userdata", panels = "table", columns = "number", width = "number",
  height = "number", xrange = "table", yrange = "table", xnames = "table", ynames = "table",
}
local series_fields = {
  name = "string", x = "table|userdata", y = "table|userdata", error = "table|userdata",
  style = "string", dashed = "boolean", colour = "number", marker = "number",
  low = "table|userdata", high = "table|userdata",
}

-- ---- Checks -----------------------------------------------------------------------------------

local function check(what, spec, known)
  if type(spec) ~= "table" then error(("%s must be a table"):format(what), 0) end
  for _, key in ipairs(sorted_keys(spec)) do
    if not known[key] then
      error(("%s has no field '%s'%s"):format(what, key, suggest.hint(key, sorted_keys(known))), 0)
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
    error(("%s: style '%s'%s"):format(what, s.style, suggest.hint(s.style, sorted_keys(styles))),
      0)
  end
  if (s.low == nil) ~= (s.high == nil) then error(what .. ": a band has low and high", 0) end
  local checked = { style = s.style or "line", colour = s.colour or number, y = list(s.y), x = {} }
  for i = 1, s.x and 0 or #checked.y do checked.x[i] = i end
  for _, name in ipairs { "x", "error", "low", "high" } do
    local values = list(s[name]) or checked[name]
    if values and #values ~= #checked.y then
      error(("%s: %d of y, %d of %s"):format(what, #checked.y, #values, name), 0)
    end
    checked[name] = values
  end
  return setmetatable(checked, { __index = s })
end

-- ---- Data -------------------------------------------------------------------------------------

-- Returns the data lines of a series, with an empty line, which gnuplot draws as a gap, for each
-- value that cannot be drawn; the number of the others; and the data lines of values between two
-- gaps, which a line does not show.
local function data(s, spec)
  local lines, count, bars = {}, 0, s.error
  for i = 1, #s.y do
    local x, y = drawable(s.x[i], spec.logx), drawable(s.y[i], spec.logy)
    lines[i] = ""
    if x and y then
      count = count + 1
      lines[i] = ("%.15g %.15g"):format(x, y)
      local bar = bars and (drawable(bars[i]) or 0)
      if bar then
        local low = drawable(y - bar, spec.logy) or y
        lines[i] = lines[i] .. (" %.15g %.15g"):format(low, y + bar)
      elseif s.low then
        lines[i] = lines[i] .. (" %.15g %.15g"):format(drawable(s.low[i], spec.logy) or y,
          drawable(s.high[i], spec.logy) or y)
      end
    end
  end
  local alone = {}
  for i, line in ipairs(lines) do
    local gaps = (lines[i - 1] or "") == "" and (lines[i + 1] or "") == ""
    if line ~= "" and gaps then alone[#alone + 1] = line end
  end
  return table.concat(lines, "\n"), count, alone
end

local function colour_of(s) return colours[(s.colour - 1) % #colours + 1] end

-- Distinguishes repeated colours by dashes. In text without colours, the linetype selects the
-- letter that a line is drawn with.
local function style(s)
  local colour = colour_of(s)
  local marker = s.marker or markers[(s.colour - 1) % #markers + 1]
  local round = (s.colour - 1) // #colours
  local words = { "with", s.error and s.style == "points" and "yerrorbars"
    or s.error and "yerrorlines" or styles[s.style],
    ("lt %d lc rgb '%s'"):format((s.colour - 1) % #colours + 1, colour) }
  if s.style ~= "points" or s.error then words[#words + 1] = "lw 1.8" end
  if s.style ~= "points" and (s.dashed or round > 0) then
    words[#words + 1] = "dt " .. (s.dashed and 2 or 2 + round % 4)
  end
  if s.style ~= "line" then
    words[#words + 1] = ("pt %s ps %s"):format(marker, s.marker and "1.1" or "0.6")
  end
  return table.concat(words, " ")
end

-- Centres the title over the axes, which a key or a colour scale moves from the middle. Text has no
-- space beside its axes, so the labels go below the title.
local function labels(out, spec)
  local width = spec.key == "outside" and math.min(spec.width, WIDTH) or spec.width
  local title = spec.title and gnuplot.lines(spec.title, width // 11)
  if spec.xlabel then out("set xlabel %s noenhanced", quote(spec.xlabel)) end
  if out.kind == "text" then
    local beside = { spec.ylabel and "y: " .. spec.ylabel }
    beside[#beside + 1] = spec.zlabel and "z: " .. spec.zlabel
    local below = #beside > 0 and quote(table.concat(beside, ", "))
    title = title and below and title .. [[ . "\n" . ]] .. below or title or below
  else
    if spec.ylabel then out("set ylabel %s noenhanced", quote(spec.ylabel)) end
    if spec.zlabel then out("set cblabel %s noenhanced", quote(spec.zlabel)) end
  end
  if title then out("set title %s noenhanced", title) end
end

-- Returns the number of names in a spec and the length of the longest.
local function names(spec)
  local count, longest = 0, 0
  for _, s in ipairs(spec.series or {}) do
    count, longest = count + (s.name and 1 or 0), math.max(longest, #(s.name or ""))
  end
  return count, longest
end

-- Returns the rows and columns of the key below the axes.
local function key_size(spec)
  local count, longest = names(spec)
  local columns = math.max(1, (spec.width - 80) // (LETTER * (longest + 12)))
  return spec.key == "below" and (count + columns - 1) // columns or 0, columns
end

local function key(out, spec)
  local place = spec.key or names(spec) > 0 and "top right" or "none"
  if place == "none" then
    out("unset key")
  elseif place == "outside" then
    out("set key outside right top Left reverse samplen 2.5")
  elseif place == "below" then
    local rows, columns = key_size(spec)
    out("set key bmargin center horizontal maxcols %d Left reverse samplen 2.5\nset bmargin %.1f",
      columns, rows + 3.4)
  else
    out("set key %s opaque", place)
  end
end

-- Labels those of the positions 1 to count of an axis, x or y, that have a name.
local function name_ticks(out, axis, names, count)
  local ticks = {}
  for i = 1, count do
    if names[i] then ticks[#ticks + 1] = ("%s %d"):format(gnuplot.tick(names[i]), i) end
  end
  out("set %stics (%s) noenhanced", axis, table.concat(ticks, ", "))
end

-- Appends the commands that draw one series to parts, and its band to bands, which are drawn first.
-- Text has no bands: they would hide the lines.
local function draw_series(out, spec, s, parts, bands)
  local text, count, alone = data(s, spec)
  local shown = s.name and (count > 0 and s.name or s.name .. " (no value to draw)")
  local name = shown and "title " .. quote(shown) .. " noenhanced" or "notitle"
  if count == 0 then
    parts[#parts + 1] = "NaN " .. name .. " " .. style { style = s.style, colour = s.colour }
    return
  end
  out.blocks = out.blocks + 1
  out("$data%d << EOD\n%s\nEOD", out.blocks, text)
  parts[#parts + 1] = ("$data%d %s%s %s"):format(out.blocks, s.low and "using 1:2 " or "", name,
    style(s))
  if s.low and out.kind ~= "text" then
    bands[#bands + 1] = ("$data%d using 1:3:4 with filledcurves fc rgb '%s' fs transparent "
      .. "solid 0.2 noborder notitle"):format(out.blocks, colour_of(s))
  end
  if s.style == "line" and #alone > 0 then
    local bars = out.kind ~= "text" and s.low
    out.blocks = out.blocks + 1
    out("$data%d << EOD\n%s\nEOD", out.blocks, table.concat(alone, "\n"))
    parts[#parts + 1] = ("$data%d %snotitle %s"):format(out.blocks, bars and "" or "using 1:2 ",
      style { style = "points", colour = s.colour, error = bars,
        marker = out.kind == "text" and quote(letters[(s.colour - 1) % #colours + 1]) or nil })
  end
end

local function lines(out, spec)
  key(out, spec)
  local bars = false
  for _, s in ipairs(spec.series) do bars = bars or s.error ~= nil end
  axes.scale(out, spec, "x", bars and 0.03 or nil)
  axes.scale(out, spec, "y")
  out("set errorbars 0\nset autoscale xfix")
  if out.kind ~= "text" then out("set grid lt 1 lw 0.6 lc rgb '#dddddd'") end
  if spec.xnames then
    name_ticks(out, "x", spec.xnames, #spec.xnames)
    out("set xrange [0.5:%d.5]", #spec.xnames)
  end
  local parts, bands = {}, {}
  for _, s in ipairs(spec.series) do draw_series(out, spec, s, parts, bands) end
  table.move(parts, 1, #parts, #bands + 1, bands)
  out("plot %s", #bands > 0 and table.concat(bands, ", \\\n  ") or "NaN notitle")
end

-- ---- Matrices ---------------------------------------------------------------------------------

-- Returns the numbers as text, each repeated `times` by `times` because some viewers blur large
-- cells; also the minimum and the maximum.
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

-- Palettes of a matrix by kind of figure: from the minimum to the maximum or, if there are negative
-- values, symmetric about 0. In text without colours, brightness shows the magnitude regardless of
-- the sign.
local palettes = {
  signed = "0 '#053061', 1 '#4393c3', 2 '#f7f7f7', 3 '#d6604d', 4 '#67001f'",
  positive = "0 '#440154', 1 '#3b528b', 2 '#21918c', 3 '#5ec962', 4 '#fde725'",
  signed_shades = "0 'white', 1 'black', 2 'white'",
  positive_shades = "0 'black', 1 'white'",
}

local function heat(out, spec)
  local matrix = list(spec.matrix)
  if #matrix == 0 then error("plot: the matrix is empty", 0) end
  for _, row in ipairs(matrix) do
    if type(row) ~= "table" then error("plot: a matrix must be a list of rows", 0) end
  end
  local times = out.kind == "text" and 1 or math.max(1, CELLS // math.max(#matrix, #matrix[1]))
  local text, low, high = matrix_text(matrix, spec.logz, times)
  if low > high then low, high = spec.logz and 1 or 0, spec.logz and 10 or 1 end
  if low < 0 then
    high = math.max(-low, high)
    low = -high
  elseif low == high then
    high = spec.logz and 10 * low or low + 1
  end
  if spec.logz then out("set logscale cb") end
  if spec.logz and high / low >= 100 then
    out("set format cb '10^{%%T}'")
  elseif spec.logz then -- there may be no power of ten in between
    local middle = math.sqrt(low * high)
    out("set cbtics ('%.2g' %.9g, '%.2g' %.9g, '%.2g' %.9g)", low, low, middle, middle, high, high)
  end
  out("unset key")
  local palette = (low < 0 and "signed" or "positive") .. (out.shades and "_shades" or "")
  out("set palette defined (%s)", palettes[palette])
  out("set cbrange [%.9g:%.9g]", low, high)
  out("set xrange [0.5:%d.5]\nset yrange [%d.5:0.5]", #matrix[1], #matrix)
  if #matrix[1] <= 10 then out("set xtics 1") end
  if #matrix <= 10 then out("set ytics 1") end
  for axis, count in pairs { x = #matrix[1], y = #matrix } do
    if spec[axis .. "names"] then name_ticks(out, axis, spec[axis .. "names"], count) end
  end
  out.blocks = out.blocks + 1
  out("$data%d << EOD\n%sEOD", out.blocks, text)
  local using = ("(($1+0.5)/%d+0.5):(($2+0.5)/%d+0.5):3"):format(times, times)
  out("plot $data%d matrix using %s notitle with image", out.blocks, using)
end

-- ---- The figure --------------------------------------------------------------------------------

local function panel(out, spec)
  out("reset\nset encoding utf8\nset tics nomirror")
  if out.kind ~= "text" then out("set border lc rgb '#444444'") end
  -- Points on the frame would not be seen among its characters.
  if out.kind == "text" and not spec.matrix then out("set offsets 0, 0, graph 0.05, graph 0.05") end
  labels(out, spec)
  if spec.matrix then heat(out, spec) else lines(out, spec) end
end

-- Raises unless the figure has panels and a size.
local function check_size(spec)
  if spec.panels and #spec.panels == 0 then error("plot: panels is empty", 0) end
  for _, name in ipairs { "columns", "width", "height" } do
    if (spec[name] or 1) < 1 then error(("plot: %s must be at least 1"):format(name), 0) end
  end
  if spec.columns and not math.tointeger(spec.columns) then
    error("plot: columns must be a whole number", 0)
  end
end

-- Checks the panels of a spec and returns them with the size of each in points; across: the width
-- of a text. A key beside the axes makes panels wider, one below makes them higher.
local function panels_of(spec, across)
  local list, width, height = {}, spec.width or WIDTH, spec.height or HEIGHT
  for i, p in ipairs(spec.panels or { spec }) do
    check(spec.panels and "plot: panel " .. i or "plot", p, fields)
    for _, name in ipairs { "xrange", "yrange" } do
      local range = p[name] or { 0, 1 }
      if not drawable(range[1]) or not drawable(range[2]) then
        error(("plot: %s must be two numbers"):format(name), 0)
      end
    end
    if p.key and not places[p.key] then
      error(("plot: key '%s'%s"):format(p.key, suggest.hint(p.key, sorted_keys(places))), 0)
    end
    list[i] = setmetatable({ series = {}, key = across and p.key == "outside" and "below" or nil },
      { __index = p })
    for k, s in ipairs(p.series or {}) do list[i].series[k] = check_series(s, k) end
    if p.key == "outside" and not spec.width then
      width = math.max(width, 680 + LETTER * math.min(45, select(2, names(p))))
    end
  end
  width = across or width
  for _, p in ipairs(list) do
    p.width = width
    height = math.max(height, (spec.height or HEIGHT) + LINE * key_size(p))
  end
  return list, width, height
end

local terminals = {
  svg = "svg size %.0f,%.0f font 'sans-serif,13' background rgb 'white' enhanced",
  inline = "svg size %.0f,%.0f font 'sans-serif,13' enhanced",
  png = "pngcairo size %.0f,%.0f font 'sans-serif,13' background rgb 'white' enhanced",
  -- On paper, a figure of 720 points fills the page.
  pdf = "pdfcairo size %.2fin,%.2fin fontscale 0.7 font 'sans-serif,13' enhanced",
  text = "dumb size %.0f,%.0f ",
}
-- Points per unit of the terminal's size.
local units = { pdf = { 100, 100 }, text = { LETTER, LINE } }

-- Returns the commands for a figure of one of these kinds. For text: columns, and colours, a mode
-- of gnuplot's text terminal.
local function script(spec, kind, columns, colours)
  check("plot", spec, fields)
  check_size(spec)
  local text = {}
  local out = setmetatable({ blocks = 0, kind = kind, shades = colours == "mono" },
    { __call = function(_, format, ...) text[#text + 1] = format:format(...) end })
  local panels, width, height = panels_of(spec, columns and columns * LETTER)
  local across = columns and 1 or math.min(spec.columns or 2, #panels)
  local down, unit = (#panels + across - 1) // across, units[kind] or { 1, 1 }
  local more = spec.panels and spec.title and 30 or 0
  local mode = colours or ""
  -- Text without colours: shading characters replace the greys of a matrix.
  for _, p in ipairs(panels) do
    if p.matrix and colours == "mono" then mode = "ansirgb" end
  end
  out("set terminal " .. terminals[kind] .. mode, across * width / unit[1],
    (down * height + more) / unit[2])
  out("set encoding utf8")
  if spec.panels then
    out("set multiplot layout %d,%d%s", down, across,
      spec.title and " title " .. quote(spec.title) .. " noenhanced" or "")
  end
  for _, p in ipairs(panels) do panel(out, p) end
  if spec.panels then out("unset multiplot") end
  return table.concat(text, "\n") .. "\n"
end

local escapes = { ["&"] = "&amp;", ["<"] = "&lt;" }

-- Adds the title that viewers display, and disables smoothing of matrices.
local function finish_svg(svg, title)
  local words = clean(title or ""):gsub("[&<]", escapes)
  svg = svg:gsub("<title>Gnuplot</title>\n", function()
    return title and "<title>" .. words .. "</title>\n" or ""
  end, 1)
  return (svg:gsub("<image ", "<image style='image-rendering:pixelated' "))
end

-- Returns the figure of a spec as "svg", "inline" (SVG without a background, for a page), "png" or
-- "pdf"; nil and the reason if it cannot be drawn.
function plot.picture(spec, kind)
  local picture, why = gnuplot.run(script(spec, kind))
  if not picture then return nil, why end
  if kind == "svg" or kind == "inline" then return finish_svg(picture, spec.title) end
  -- The date in a PDF is removed, so that equal figures are equal files.
  return kind == "png" and picture or (picture:gsub("/CreationDate %(D:[^)]*%)", function(date)
    return (date:gsub("%d", "0"))
  end))
end

local function draw(path, spec)
  local kind = path:lower():match("%.(%a+)$")
  if kind ~= "svg" and kind ~= "png" and kind ~= "pdf" then
    error(("plot: %s: its name must end in .svg, .png or .pdf"):format(path), 0)
  end
  local picture, why = plot.picture(spec, kind)
  if not picture then return nil, why end
  return core.sys.write_file(path, picture)
end

-- ---- Text -------------------------------------------------------------------------------------

local shades = { " ", "░", "▒", "▓", "█" }

-- Returns the figure of a spec as lines of UTF-8, by gnuplot's text terminal; nil and the reason if
-- it cannot be drawn. options: columns, colour (both by default those of standard output's
-- terminal).
function plot.text(spec, options)
  local o = options or {}
  local colour = o.colour
  if colour == nil then colour = progress.colour(1) end
  local columns = math.max(40, math.min(o.columns or core.sys.columns() or 80, 120))
  local text, why = gnuplot.run(script(spec, "text", columns, colour and "ansi256" or "mono"))
  if not text then return nil, why end
  if colour then
    -- Black is invisible on a dark terminal, and gnuplot writes white as a number above 255.
    text = text:gsub("\27%[38;5;16m", "\27[39m"):gsub("38;5;26%d", "38;5;231")
    text = text:gsub("(\27%[38;5;%d+m)([^\27\n]+)", function(code, cells)
      return code .. cells:gsub("X", "█"):gsub("[+|/\\-]", "•")
    end)
  else
    -- Shading characters replace the greys in which a matrix is drawn.
    text = text:gsub("\27%[38;2;(%d+);%d+;%d+m(X*)", function(grey, cells)
      return (cells:gsub("X", shades[math.min(5, 1 + tonumber(grey) * 5 // 255)]))
    end):gsub("\27%[[%d;]*m", "")
  end
  return (text:gsub("\f", ""):gsub(" +\n", "\n"):gsub("^\n+", ""))
end

-- Draws lines and points into the file at path. spec.series: a list of {name=, x=, y=,
-- style="line"|"points"|"both", dashed=, error= (half the height of bars), low=, high= (a band),
-- colour= (1..7), marker= (gnuplot's number)}; or spec.panels. Returns true, or nil and the reason.
function plot.svg(path, spec)
  return draw(path, spec)
end

-- Draws spec.matrix (lists of numbers, the first row on top) as colours into the file at path.
function plot.heat(path, spec)
  if type(spec) == "table" and not spec.matrix then error("plot.heat: there is no matrix", 0) end
  return draw(path, spec)
end

return suggest.strict("tl.plot", plot)
