-- report/figures/series.lua: writes the gnuplot commands that draw lines, points, bands and bars,
-- and their legend.
local axes = require "toeplab.report.figures.axes"
local gnuplot = require "toeplab.report.figures.gnuplot"

local series = {}

-- The palette of Okabe and Ito, whose colours most colour-blind people tell apart.
local colours = { "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000" }
local markers = { 7, 5, 9, 13, 11, 6, 4 }
local line_letters = { "*", "#", "$", "%", "@", "&", "=" } -- of gnuplot's lines in text

series.styles = { line = "lines", points = "points", both = "linespoints" }

-- Where a legend may be.
series.places = { ["top right"] = true, ["top left"] = true, ["bottom right"] = true,
  ["bottom left"] = true, outside = true, below = true, none = true }

local drawable = axes.drawable

-- ---- Data -------------------------------------------------------------------------------------

-- Returns the data lines of a series, with an empty line, which gnuplot draws as a gap, for each
-- value that cannot be drawn; the number of the others; and the data lines of values between two
-- gaps, which a line does not show.
local function data(s, spec)
  local lines, count, across = {}, 0, s.xlow ~= nil
  local lower, upper, log = s.low or s.xlow, s.high or s.xhigh, spec.logy
  if across then log = spec.logx end
  for i = 1, #s.y do
    local x, y = drawable(s.x[i], spec.logx), drawable(s.y[i], spec.logy)
    lines[i] = ""
    if x and y then
      count = count + 1
      lines[i] = ("%.15g %.15g"):format(x, y)
      local at, half = across and x or y, s.error and (drawable(s.error[i]) or 0)
      if half or lower then
        lines[i] = lines[i] .. (" %.15g %.15g"):format(
          drawable(half and at - half or lower[i], log) or at,
          drawable(half and at + half or upper[i], log) or at)
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

-- ---- Lines ------------------------------------------------------------------------------------

local function colour_of(s) return colours[(s.colour - 1) % #colours + 1] end

-- Distinguishes repeated colours by dashes and markers. In text without colours, the linetype
-- selects the letter that a line is drawn with. bars: "y" or "x", the direction of error bars.
local function style(s, bars)
  local round = (s.colour - 1) // #colours
  local marker = s.marker or markers[(s.colour - 1 + 3 * round) % #markers + 1]
  local how = series.styles[s.style]
  if bars then how = bars .. (s.style == "points" and "errorbars" or "errorlines") end
  local words = { "with", how, ("lt %d lc rgb '%s'"):format((s.colour - 1) % #colours + 1,
    colour_of(s)) }
  if s.style ~= "points" or bars then words[#words + 1] = "lw 1.8" end
  if s.style ~= "points" and (s.dashed or round > 0) then
    words[#words + 1] = "dt " .. (s.dashed and 2 or 2 + round % 4)
  end
  if s.style ~= "line" then
    words[#words + 1] = ("pt %s ps %s"):format(marker, s.marker and "1.1" or "0.6")
  end
  return table.concat(words, " ")
end

local function title_of(name)
  return name and "title " .. gnuplot.quote(name) .. " noenhanced" or "notitle"
end

-- Appends the commands that draw one series to parts, and its band to bands, which are drawn first.
-- Text has no bands: they would hide the lines.
local function draw(out, spec, s, parts, bands)
  local text, count, alone = data(s, spec)
  local name = title_of(s.name and (count > 0 and s.name or s.name .. " (no value to draw)"))
  if count == 0 then
    parts[#parts + 1] = "NaN " .. name .. " " .. style { style = s.style, colour = s.colour }
    return
  end
  out.blocks = out.blocks + 1
  out("$data%d << EOD\n%s\nEOD", out.blocks, text)
  parts[#parts + 1] = ("$data%d %s%s %s"):format(out.blocks, s.low and "using 1:2 " or "", name,
    style(s, s.error and "y" or s.xlow and "x"))
  if s.low and out.kind ~= "text" then
    bands[#bands + 1] = ("$data%d using 1:3:4 with filledcurves fc rgb '%s' fs transparent "
      .. "solid 0.2 noborder notitle"):format(out.blocks, colour_of(s))
  end
  local bars = out.kind ~= "text" and s.low and "y"
  if #alone > 0 and (s.style == "line" or bars) then
    out.blocks = out.blocks + 1
    out("$data%d << EOD\n%s\nEOD", out.blocks, table.concat(alone, "\n"))
    parts[#parts + 1] = ("$data%d %snotitle %s"):format(out.blocks, bars and "" or "using 1:2 ",
      style({ style = "points", colour = s.colour, marker = out.kind == "text"
        and gnuplot.quote(line_letters[(s.colour - 1) % #colours + 1]) or nil }, bars))
  end
end

-- ---- The legend -------------------------------------------------------------------------------

-- Returns a spec with the series that some panels name, each name once.
function series.together(panels)
  local all, seen = { series = {} }, {}
  for _, p in ipairs(panels) do
    for _, s in ipairs(p.series) do
      if s.name and not seen[s.name] then
        all.series[#all.series + 1], seen[s.name] = s, true
      end
    end
  end
  table.sort(all.series, function(a, b) return a.colour < b.colour end)
  return all
end

-- Returns the number of names in a spec and the length of the longest.
function series.names(spec)
  local count, longest = 0, 0
  for _, s in ipairs(spec.series or {}) do
    count = count + (s.name and 1 or 0)
    longest = math.max(longest, utf8.len(s.name or "") or #s.name)
  end
  return count, longest
end

-- Returns the rows and the columns of a legend below the axes, and the letters of a column.
function series.grid(spec, letters)
  local count, longest = series.names(spec)
  local wide = math.ceil(1.25 * longest) + 7
  local rows = math.ceil(count / math.max(1, (letters - 2) // wide))
  return rows, math.ceil(count / math.max(1, rows)), wide
end

-- Sets gnuplot's own legend, or none.
local function set_key(out, spec)
  local place = spec.key or series.names(spec) > 0 and "top right" or "none"
  if place == "none" or place == "below" and out.kind ~= "text" then
    out("unset key")
  elseif place == "outside" then
    out("set key outside right top Left reverse samplen 2.5")
  elseif place == "below" then
    local rows, columns = series.grid(spec, out.letters)
    out("set key bmargin center horizontal maxcols %d Left reverse samplen 2.5\nset bmargin %.1f",
      columns, rows + 3.4)
  else
    out("set key %s opaque", place)
  end
end

-- Draws the legend of a spec alone, in the middle of a strip `letters` wide. gnuplot's own legend
-- below the axes runs off the page if names are long.
function series.legend(out, spec, letters)
  local rows, columns, wide = series.grid(spec, letters)
  local left, n, parts = math.max(0, (letters - columns * wide) / 2), 0, {}
  out("unset border\nunset tics\nunset key\nset margins 0, 0, 0, 0")
  out("set xrange [0:%.6g]\nset yrange [%d.5:0.5]", letters, rows)
  for _, s in ipairs(spec.series) do
    if s.name then
      local x, y = left + n % columns * wide, n // columns + 1
      n = n + 1
      out("set label %d %s at first %.6g, %d left noenhanced", n,
        gnuplot.quote(gnuplot.short(s.name, math.max(8, (letters - 7) // 1.25))), x + 5, y)
      out.blocks = out.blocks + 1
      out("$data%d << EOD\n%.6g %d\n%.6g %d\n%.6g %d\nEOD", out.blocks, x, y, x + 2, y, x + 4, y)
      if s.style ~= "points" then
        parts[#parts + 1] = ("$data%d notitle %s"):format(out.blocks,
          style { style = "line", colour = s.colour, dashed = s.dashed })
      end
      if s.style ~= "line" then
        parts[#parts + 1] = ("$data%d every ::1::1 notitle %s"):format(out.blocks,
          style { style = "points", colour = s.colour, marker = s.marker })
      end
    end
  end
  out("plot %s", table.concat(parts, ", \\\n  "))
end

-- ---- All series -------------------------------------------------------------------------------

function series.draw(out, spec)
  set_key(out, spec)
  local bars = false
  for _, s in ipairs(spec.series) do bars = bars or s.error ~= nil or s.xlow ~= nil end
  axes.scale(out, spec, "x", bars and 0.04 or nil)
  axes.scale(out, spec, "y")
  out("set errorbars 0\nset autoscale xfix")
  if out.kind ~= "text" then out("set grid lt 1 lw 0.6 lc rgb '#dddddd'") end
  for _, name in ipairs { "x", "y" } do
    local words = spec[name .. "names"]
    if words then
      gnuplot.ticks(out, name, words, #words)
      out("set %srange [%s]", name, name == "x" and ("0.5:%d.5"):format(#words)
        or ("%d.5:0.5"):format(#words))
    end
  end
  if spec.xline then -- a line from below to above, such as at "no difference"
    out("set arrow from first %.15g, graph 0 to first %.15g, graph 1 nohead lc rgb '#888888' "
      .. "lw 1 back", spec.xline, spec.xline)
  end
  local parts, bands = {}, {}
  for _, s in ipairs(spec.series) do draw(out, spec, s, parts, bands) end
  table.move(parts, 1, #parts, #bands + 1, bands)
  out("plot %s", #bands > 0 and table.concat(bands, ", \\\n  ") or "NaN notitle")
end

return series
