-- report/figures/plot.lua: draws figures by gnuplot: SVG, PNG or PDF files by the extension of the
-- path, SVG for a page, and text for a terminal.
--
--   plot.svg("loss.svg", { title = "Loss", xlabel = "step", logy = true,
--     series = { { name = "ours", x = {1, 2}, y = {0.5, 0.4} } } })
--   plot.svg("loss.svg", { series = { { y = mean, low = least, high = most } } })    with a band
--   plot.heat("matrix.svg", { title = "T", matrix = {{1, 2}, {3, 4}} })
--   plot.svg("loss.pdf", { size = { 3.25, 2.2 }, font = "Times,8", series = ... })   for a paper
--   print(plot.text({ series = { { y = { 3, 2, 1 } } } }))
--
-- A spec may have panels = { spec, ... }, in columns = 2. Values that are not finite, or not
-- positive on a logarithmic axis, become gaps. Equal specs give equal files. The functions return
-- true, or nil and the reason, e.g. that gnuplot is missing.
local axes = require "toeplab.report.figures.axes"
local core = require "toeplab.core"
local gnuplot = require "toeplab.report.figures.gnuplot"
local heat = require "toeplab.report.figures.heat"
local progress = require "toeplab.base.progress"
local series = require "toeplab.report.figures.series"
local sorted_keys = require "toeplab.base.sorted_keys"
local suggest = require "toeplab.base.suggest"

local plot = {}

local clean, quote = gnuplot.clean, gnuplot.quote

-- Lengths are in points of the screen, INCH of which make an inch.
local INCH, WIDTH, HEIGHT, FONT = 96, 720, 460, 13 -- WIDTH, HEIGHT: a panel's
local LONGEST = 100 -- letters of a name

local fields = {
  title = "string", xlabel = "string", ylabel = "string", zlabel = "string", key = "string",
  logx = "boolean|number", logy = "boolean|number", logz = "boolean", series = "table",
  matrix = "table|userdata", panels = "table", columns = "number", width = "number",
  height = "number", xrange = "table", yrange = "table", zrange = "table", xnames = "table",
  ynames = "table", xline = "number", size = "table", font = "string", legend = "boolean",
}
local series_fields = {
  name = "string", x = "table|userdata", y = "table|userdata", error = "table|userdata",
  style = "string", dashed = "boolean", colour = "number", marker = "number",
  low = "table|userdata", high = "table|userdata", xlow = "table|userdata",
  xhigh = "table|userdata",
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
  if not series.styles[s.style or "line"] then
    error(("%s: style '%s'%s"):format(what, s.style,
      suggest.hint(s.style, sorted_keys(series.styles))), 0)
  end
  if (s.error and 1 or 0) + (s.low and 1 or 0) + (s.xlow and 1 or 0) > 1 then
    error(what .. ": choose one of error, low and high, xlow and xhigh", 0)
  end
  for low, high in pairs { low = "high", xlow = "xhigh" } do
    if (s[low] == nil) ~= (s[high] == nil) then
      error(("%s: %s and %s are given together"):format(what, low, high), 0)
    end
  end
  local checked = { style = s.style or "line", colour = s.colour or number, y = list(s.y), x = {} }
  for i = 1, s.x and 0 or #checked.y do checked.x[i] = i end
  for _, name in ipairs { "x", "error", "low", "high", "xlow", "xhigh" } do
    local values = list(s[name]) or checked[name]
    if values and #values ~= #checked.y then
      error(("%s: %d of y, %d of %s"):format(what, #checked.y, #values, name), 0)
    end
    checked[name] = values
  end
  return setmetatable(checked, { __index = s })
end

-- ---- The figure --------------------------------------------------------------------------------

-- Centres the title over the axes, which a legend or a colour scale moves off the middle. The text
-- terminal has no space beside its axes, so their labels go below the title.
local function labels(out, spec)
  local most = spec.key == "outside" and math.min(out.letters, WIDTH / out.letter) or out.letters
  -- Names beside the axes move these away from the middle.
  if spec.ynames and not spec.matrix then most = out.space.x end
  local title = (spec.title or "") ~= "" and gnuplot.lines(spec.title, most * 8 // 11)
  if spec.xlabel then
    out("set xlabel %s noenhanced", gnuplot.lines(spec.xlabel, out.space.x * 9 // 10))
  end
  if out.kind == "text" then
    local beside = { spec.ylabel and "y: " .. spec.ylabel }
    beside[#beside + 1] = spec.zlabel and "z: " .. spec.zlabel
    local below = #beside > 0 and quote(table.concat(beside, ", "))
    title = title and below and title .. [[ . "\n" . ]] .. below or title or below
  else
    -- A label is centred beside the axes, which are not in the middle.
    local high = math.floor((out.space.y + 1 + 2 * out.space.title) * out.line / out.letter)
    local y, z = spec.ylabel, spec.zlabel
    if y then out("set ylabel %s noenhanced", gnuplot.lines(y, high)) end
    if z then out("set cblabel %s noenhanced", gnuplot.lines(z, high)) end
  end
  if title then out("set title %s noenhanced", title) end
end

-- Begins a part of a figure at place: the left, the bottom, the width and the height, as shares.
local function begin(out, place)
  out("reset\nset encoding utf8")
  if place then out("set origin %.6g, %.6g\nset size %.6g, %.6g", table.unpack(place)) end
end

-- Estimates the size of the area between the axes, x in letters, y and cb (the colour scale) in
-- lines, and of the title above it and the label beside the colour scale, in lines.
local function space(out, spec)
  local names, longest = series.names(spec)
  local beside = spec.matrix and 12 or spec.key == "outside" and names > 0 and longest + 6 or 0
  local up = out.lines - 3.5 - out.title_lines
  local function lines_of(text)
    return math.ceil((utf8.len(text or "") or 0) / math.max(1, up * out.line / out.letter))
  end
  local left = (spec.ylabel and 10 or 8) + 2 * math.max(0, lines_of(spec.ylabel) - 1)
  left = math.max(left, gnuplot.longest(spec.ynames) + 3)
  local across, words = out.letters - left - beside, gnuplot.longest(spec.xnames)
  local turned = not spec.matrix and #(spec.xnames or {}) * (words + 2) > across
  if turned then up = up - words * out.letter / out.line end
  return { x = across, y = up, cb = up, title = out.title_lines, beside = lines_of(spec.zlabel),
    turned = turned }
end

-- Raises if the surroundings of the axes leave no room for them, or for the words along them.
local function check_room(out, spec)
  local s = out.space
  if out.kind == "text" or s.x >= 8 and s.y >= 2
    and (spec.matrix or #(spec.ynames or {}) <= s.y * 1.3)
    and (spec.matrix or #(spec.xnames or {}) * out.line <= s.x * out.letter * 1.1) then return end
  error(("plot: titles, legend and names leave no room in %.3gx%.3g inches: make the figure "
    .. "larger, the font smaller, or draw less"):format(out.size[1], out.size[2]), 0)
end

local function panel(out, spec, place)
  out.space = space(out, spec)
  check_room(out, spec)
  begin(out, place)
  if place and out.kind ~= "text" then out("set tmargin %.2f", out.title_lines + 1.5) end
  out("set tics nomirror")
  if out.kind ~= "text" then out("set border lc rgb '#444444'") end
  -- Points on the frame would not be seen among its characters.
  if out.kind == "text" and not spec.matrix then out("set offsets 0, 0, graph 0.05, graph 0.05") end
  labels(out, spec)
  if spec.matrix then heat(out, spec) else series.draw(out, spec) end
end

-- Draws the title of all panels.
local function heading(out, spec, place)
  begin(out, place)
  out("unset border\nunset tics\nunset key\nset label 1 %s at screen 0.5, %.6g center noenhanced",
    gnuplot.lines(spec.title, out.letters * 8 // 11), place[2] + place[4] / 2)
  out("plot [0:1][0:1] NaN notitle")
end

local function check_size(spec)
  if spec.panels and #spec.panels == 0 then error("plot: panels is empty", 0) end
  for _, name in ipairs { "columns", "width", "height" } do
    if (spec[name] or 1) < 1 then error(("plot: %s must be at least 1"):format(name), 0) end
  end
  if spec.columns and not math.tointeger(spec.columns) then
    error("plot: columns must be a whole number", 0)
  end
  for i = 1, spec.size and 2 or 0 do
    if not gnuplot.drawable_inches(tonumber(spec.size[i])) then
      error("plot: size must be two numbers of inches, each 0.5 to 100", 0)
    end
  end
end

-- Returns the family and the size in points of the screen of the font of a spec.
local function font_of(spec)
  local family, points = gnuplot.font(spec.font)
  if not family then error("plot: font: " .. points, 0) end
  return family ~= "" and family or "sans-serif", points and points * INCH / 72
    or spec.size and 9 * INCH / 72 or FONT
end

-- Raises if a panel cannot be drawn; returns it with checked series.
local function checked(what, p, text)
  check(what, p, fields)
  for _, name in ipairs { "xrange", "yrange", "zrange" } do
    local range = p[name] or { 0, 1 }
    if not axes.drawable(range[1]) or not axes.drawable(range[2]) then
      error(("plot: %s must be two numbers"):format(name), 0)
    end
  end
  if p.key and not series.places[p.key] then
    error(("plot: key '%s'%s"):format(p.key, suggest.hint(p.key, sorted_keys(series.places))), 0)
  end
  local own = setmetatable({ series = {}, key = text and p.key == "outside" and "below" or nil },
    { __index = p })
  for k, s in ipairs(p.series or {}) do
    own.series[k] = check_series(s, k)
    own.series[k].name = s.name and gnuplot.short(s.name, LONGEST)
  end
  for _, axis in ipairs { "xnames", "ynames" } do
    own[axis] = p[axis] and {}
    for i, name in pairs(p[axis] or {}) do own[axis][i] = gnuplot.short(tostring(name), LONGEST) end
  end
  if series.names(own) == 0 then own.key = "none" end
  return own
end

local terminals = {
  svg = "svg size %.0f,%.0f font '%s,%.4g' background rgb 'white' enhanced",
  inline = "svg size %.0f,%.0f font '%s,%.4g' enhanced",
  png = "pngcairo size %.0f,%.0f font '%s,%.4g' background rgb 'white' enhanced rounded "
    .. "fontscale %.4g linewidth %.4g pointscale %.4g",
  pdf = "pdfcairo size %.4gin,%.4gin font '%s,%.4g' enhanced fontscale 0.75 linewidth 1.2 "
    .. "pointscale 0.8",
  text = "dumb size %.0f,%.0f ",
}

-- Returns the terminal for a figure of this size. A PNG has 2 pixels for each point of the screen,
-- or 300 for each inch of paper.
local function terminal(out, spec, width, height, family, size)
  local kind = out.kind
  if kind == "text" then
    return terminals.text:format(width / out.letter, height / out.line)
  elseif kind == "pdf" then
    return terminals.pdf:format(width / INCH, height / INCH, family, size)
  end
  local sharp = kind == "png" and (spec.size and 300 / INCH or 2) or 1
  return terminals[kind]:format(sharp * width, sharp * height, family, size, 0.75 * sharp, sharp,
    sharp)
end

-- Returns the height of the strip for a legend whose width is `letters`.
local function strip(out, spec, letters)
  return (series.grid(spec, letters) + 0.4) * out.line
end

-- Returns where the parts of a figure are, in points: across (panels side by side), down, width and
-- height (of a panel), above (height of the title), below (height of the legend of all panels) and
-- total (height). A legend beside the axes makes panels wider, one below makes them higher, unless
-- the figure has a size.
local function layout(out, spec, panels)
  local l = { across = out.columns and 1 or math.min(spec.columns or 2, #panels), above = 0.0,
    below = 0.0, width = spec.width or WIDTH, height = spec.height or HEIGHT }
  l.down = (#panels + l.across - 1) // l.across
  for _, p in ipairs(panels) do
    if p.key == "outside" and not spec.width then
      l.width = math.max(l.width, 680 + out.letter * select(2, series.names(p)))
    end
  end
  if out.columns then l.width = out.columns * out.letter end
  if spec.size then l.width = spec.size[1] * INCH / l.across end
  out.letters = l.width / out.letter
  local legend = 0.0
  for _, p in ipairs(panels) do
    legend = math.max(legend, p.key == "below" and strip(out, p, out.letters) or 0.0)
  end
  l.height = l.height + legend
  if spec.panels and (spec.title or "") ~= "" then l.above = 1.5 * out.line end
  if spec.legend and series.names(series.together(panels)) > 0 then
    l.below = strip(out, series.together(panels), l.across * out.letters)
  end
  if spec.size then l.height = (spec.size[2] * INCH - l.above - l.below) / l.down end
  l.total = l.down * l.height + l.above + l.below
  return l
end

-- Returns the commands for a figure of one of these kinds. For text: columns, and colours, a mode
-- of gnuplot's text terminal.
local function script(spec, kind, columns, colours)
  check("plot", spec, fields)
  check_size(spec)
  local text, panels, mode = {}, {}, colours or ""
  local family, font = font_of(spec)
  -- letter, line: the approximate size of a character; letters, lines: the size of a panel in them.
  local out = setmetatable({ blocks = 0, kind = kind, shades = colours == "mono", columns = columns,
    letter = font * 8 / FONT, line = font * 20 / FONT },
    { __call = function(_, format, ...) text[#text + 1] = format:format(...) end })
  for i, p in ipairs(spec.panels or { spec }) do
    panels[i] = checked(spec.panels and "plot: panel " .. i or "plot", p, kind == "text")
    -- Text without colours: shading characters replace the greys of a matrix.
    if p.matrix and colours == "mono" then mode = "ansirgb" end
  end
  local l = layout(out, spec, panels)
  out.title_lines, out.size = 0, { l.across * l.width / INCH, l.total / INCH }
  for _, p in ipairs(panels) do -- equal for all panels, so that their axes are equal
    local letters = p.ynames and out.letters / 2 or out.letters
    out.title_lines = math.max(out.title_lines,
      math.ceil((utf8.len(p.title or "") or 0) * 11 / 8 / letters))
  end
  local total = l.total
  out("set terminal %s", terminal(out, spec, l.across * l.width, total, family, font) .. mode)
  out("set encoding utf8")
  local several = #panels > 1 or spec.panels or panels[1].key == "below" and kind ~= "text"
  if several then out("set multiplot") end
  for i, p in ipairs(panels) do
    local left, wide = (i - 1) % l.across / l.across, 1 / l.across
    local bottom = total - l.above - ((i - 1) // l.across + 1) * l.height
    local legend = p.key == "below" and kind ~= "text" and strip(out, p, out.letters) or 0
    out.lines = (l.height - legend) / out.line
    panel(out, p, several and { left, (bottom + legend) / total, wide,
      (l.height - legend) / total })
    if legend > 0 then
      begin(out, { left, bottom / total, wide, legend / total })
      series.legend(out, p, out.letters)
    end
  end
  out.letters = out.letters * l.across
  if l.above > 0 then heading(out, spec, { 0, 1 - l.above / total, 1, l.above / total }) end
  if l.below > 0 then
    begin(out, { 0, 0, 1, l.below / total })
    series.legend(out, series.together(panels), out.letters)
  end
  if several then out("unset multiplot") end
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
  local kind = gnuplot.kind(path)
  if not kind then
    error(("plot: %s: its name must end in .svg, .png or .pdf"):format(path), 0)
  end
  local picture, why = plot.picture(spec, kind)
  if not picture then return nil, why end
  return core.sys.write_file(path, picture)
end

-- ---- Text -------------------------------------------------------------------------------------

local shades = { " ", "░", "▒", "▓", "█" }

-- Returns the figure of a spec as lines of UTF-8, by gnuplot's text terminal; nil and the reason if
-- it cannot be drawn. options: columns, colour (both by default from standard output's
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

-- Draws lines and points into the file at path, an SVG, PNG or PDF by its name. spec.series: a list
-- of {name=, x=, y=, style="line"|"points"|"both", dashed=, error= (half the height of bars), low=,
-- high= (a band), xlow=, xhigh= (the ends of bars along x), colour= (from 1), marker= (gnuplot's
-- number)}; xline= (where a line goes up), xnames=, ynames= (words at 1, 2, ...); or spec.panels,
-- with legend= (one for all). Returns true, or nil and the reason.
function plot.svg(path, spec)
  return draw(path, spec)
end

-- Draws spec.matrix (lists of numbers, the first row on top) as colours into the file at path.
function plot.heat(path, spec)
  if type(spec) == "table" and not spec.matrix then error("plot.heat: there is no matrix", 0) end
  return draw(path, spec)
end

return suggest.strict("tl.plot", plot)
