-- report/terminal.lua: the pictures that plot.lua draws, as text: lines of dots (Braille), matrices
-- of shades. Lines are named by letters at their ends.
--
--   print(terminal.draw({ series = { { name = "ours", y = { 3, 2, 1 } } } }, { columns = 60 }))
--
-- options: columns, rows (of the field of a panel), colour, plain (no character beyond ASCII).
local core = require "toeplab.core"
local progress = require "toeplab.base.progress"

local terminal = {}

local ROWS, MARGIN = 16, 11
local codes = { 34, 31, 32, 35, 33, 36, 39 }
local shades = { " ", "░", "▒", "▓", "█" }
local plain_shades = { " ", ".", "+", "*", "#" }

local function list(values)
  return type(values) == "userdata" and values:totable() or values
end

local function finite(v, log)
  return type(v) == "number" and v - v == 0 and (not log or v > 0)
end

-- Whether the terminal's characters go beyond ASCII.
function terminal.has_utf8()
  for _, name in ipairs { "LC_ALL", "LC_CTYPE", "LANG" } do
    local value = os.getenv(name)
    if value and value ~= "" then return value:lower():find "utf%-?8" ~= nil end
  end
  return false
end

local function paint(text, code, o)
  return o.colour and code ~= 39 and ("\27[%dm%s\27[0m"):format(code, text) or text
end

local function number(v) return ("%.4g"):format(v) end

local function width(text) return utf8.len(text) or #text end

-- Names and titles on one line.
local function line(text) return text and core.sys.clean((text:gsub("[\n\t]", " "))) end

local function cut(text, columns)
  if width(text) <= columns then return text end
  local at = utf8.len(text) and utf8.offset(text, columns + 1) or columns + 1
  return text:sub(1, at - 1)
end

-- ---- Lines ------------------------------------------------------------------------------------

local function extent(spec, axis)
  local low, high = math.huge, -math.huge
  for _, s in ipairs(spec.series) do
    for i, y in ipairs(s.y) do
      local v = axis == "y" and y or s.x[i]
      if finite(s.x[i], spec.logx) and finite(y, spec.logy) then
        low, high = math.min(low, v), math.max(high, v)
      end
    end
  end
  if low > high then low, high = 1, 2 end
  if low == high then
    local log = spec["log" .. axis]
    low, high = log and low / 2 or low - 1, log and high * 2 or high + 1
  end
  return low, high
end

-- A function from values to 0..1.
local function scaled(low, high, log)
  if log then low, high = math.log(low), math.log(high) end
  return function(v) return ((log and math.log(v) or v) - low) / (high - low) end
end

local dots = { { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 } }

-- Sets the dot at x, y (from 0, left and below) of a field of cells {bits=, series=}.
local function dot(field, x, y, series)
  local row, column = field.rows - y // 4, x // 2 + 1
  local cell = field[row][column] or { bits = 0 }
  cell.bits, cell.series = cell.bits | dots[4 - y % 4][x % 2 + 1], series
  field[row][column] = cell
end

local function stroke(field, a, b, series)
  local steps = math.max(math.abs(b[1] - a[1]), math.abs(b[2] - a[2]), 1)
  for i = 0, steps do
    dot(field, math.floor(a[1] + (b[1] - a[1]) * i / steps + 0.5),
      math.floor(a[2] + (b[2] - a[2]) * i / steps + 0.5), series)
  end
end

-- Draws the series into a field; returns it and the row where each line ends.
local function field_of(spec, columns, rows)
  local field, ends = { rows = rows }, {}
  for r = 1, rows do field[r] = {} end
  local x_low, x_high = extent(spec, "x")
  local y_low, y_high = extent(spec, "y")
  local fx, fy = scaled(x_low, x_high, spec.logx), scaled(y_low, y_high, spec.logy)
  for number_of, s in ipairs(spec.series) do
    local before
    for i, y in ipairs(s.y) do
      local here
      if finite(s.x[i], spec.logx) and finite(y, spec.logy) then
        here = { math.floor(fx(s.x[i]) * (2 * columns - 1) + 0.5),
          math.floor(fy(y) * (4 * rows - 1) + 0.5) }
        stroke(field, before and s.style ~= "points" and before or here, here, number_of)
        ends[number_of] = rows - here[2] // 4
      end
      before = here
    end
  end
  return field, ends, { x_low, x_high, y_low, y_high }
end

local function letter(s) return string.char(97 + (s.letter - 1) % 26) end

local function code_of(s) return codes[(s.colour - 1) % #codes + 1] end

local function field_lines(spec, field, ends, o)
  local lines = {}
  for r = 1, field.rows do
    local parts = {}
    for c = 1, o.field do
      local cell = field[r][c]
      local s = cell and spec.series[cell.series]
      local mark = cell and (o.plain and letter(s) or utf8.char(0x2800 + cell.bits))
      parts[c] = cell and paint(mark, code_of(s), o) or " "
    end
    local names = ""
    for i, s in ipairs(spec.series) do
      if ends[i] == r and s.name then names = names .. paint(letter(s), code_of(s), o) end
    end
    lines[r] = table.concat(parts) .. (names ~= "" and " " .. names or "")
  end
  return lines
end

local function prepared(spec)
  local series, named = {}, 0
  for i, s in ipairs(spec.series) do
    local y = list(s.y)
    local x = list(s.x) or {}
    for k = #x + 1, s.x and 0 or #y do x[k] = k end
    if s.name or named == 0 then named = named + 1 end
    series[i] = { name = line(s.name), x = x, y = y, style = s.style, colour = s.colour or i,
      letter = named }
  end
  return setmetatable({ series = series }, { __index = spec })
end

local function ends_of_axis(spec, ranges)
  if spec.xnames then return line(spec.xnames[1] or ""), line(spec.xnames[#spec.xnames] or "") end
  return number(ranges[1]), number(ranges[2])
end

local function curves(spec, o, out)
  spec = prepared(spec)
  local field, ends, ranges = field_of(spec, o.field, o.rows)
  local lines = field_lines(spec, field, ends, o)
  for r, line in ipairs(lines) do
    local text = r == 1 and number(ranges[4]) or r == #lines and number(ranges[3])
      or r == #lines // 2 + 1 and cut(spec.logy and "log" or "", 5) or ""
    out((" "):rep(MARGIN - 2 - #text) .. text .. (o.plain and " |" or " ▏") .. line)
  end
  local left, right = ends_of_axis(spec, ranges)
  local label = line(spec.xlabel or "") .. (spec.logx and " (log)" or "")
  local space = math.max(2, o.field - width(left) - width(right))
  label = cut(label, space - 2)
  local before = (space - width(label)) // 2
  out((" "):rep(MARGIN) .. left .. (" "):rep(before) .. label
    .. (" "):rep(space - before - width(label)) .. right)
  for i, s in ipairs(spec.series) do
    if s.name then
      out((" "):rep(MARGIN) .. cut(paint(letter(s), code_of(s), o) .. " " .. s.name,
        o.columns - MARGIN))
    end
  end
end

-- ---- Matrices ---------------------------------------------------------------------------------

-- The mean over the cells of the matrix that a character stands for.
local function block(matrix, r1, r2, c1, c2, log)
  local sum, count = 0.0, 0
  for r = r1, r2 do
    for c = c1, c2 do
      local v = matrix[r][c]
      if finite(v, log) then
        sum, count = sum + (log and math.log(v) or v), count + 1
      end
    end
  end
  return count > 0 and sum / count or nil
end

-- The matrix as fewer numbers, and the least and the greatest of them.
local function reduced(matrix, rows, columns, log)
  local n, m, small, low, high = #matrix, #matrix[1], {}, math.huge, -math.huge
  for r = 1, rows do
    small[r] = {}
    for c = 1, columns do
      local r1, c1 = (r - 1) * n // rows + 1, (c - 1) * m // columns + 1
      local v = block(matrix, r1, math.max(r1, r * n // rows), c1, math.max(c1, c * m // columns),
        log)
      small[r][c] = v
      if v then low, high = math.min(low, v), math.max(high, v) end
    end
  end
  return small, low, high
end

-- Shades are sizes; with colour, what is below 0 is blue, what is above red.
local function heat(spec, o, out)
  local matrix = list(spec.matrix)
  local columns = math.min(#matrix[1] * 2, o.field)
  local rows = math.max(1, math.min(#matrix, columns // 2))
  local small, low, high = reduced(matrix, rows, columns, spec.logz)
  local signed = low < 0 and not spec.logz
  local base = signed and 0 or low
  local most = signed and math.max(-low, high) or high - low
  local marks = o.plain and plain_shades or shades
  for r = 1, rows do
    local parts = {}
    for c = 1, columns do
      local v = small[r][c]
      local size = v and most > 0 and math.abs(v - base) / most or 0
      local mark = v and marks[math.min(#marks, 1 + math.floor(size * #marks))] or "?"
      parts[c] = signed and mark ~= " " and paint(mark, v and v < 0 and 34 or 31, o) or mark
    end
    out((" "):rep(MARGIN) .. table.concat(parts))
  end
  if low > high then return end
  if spec.logz then low, high = math.exp(low), math.exp(high) end
  out((" "):rep(MARGIN) .. ("%s from %s to %s"):format(line(spec.zlabel) or "values", number(low),
    number(high)))
end

-- ---- The picture ------------------------------------------------------------------------------

-- The text of spec, as plot.svg takes it.
function terminal.draw(spec, options)
  local o, lines = {}, {}
  for key, value in pairs(options or {}) do o[key] = value end
  o.columns = math.max(40, o.columns or core.sys.columns() or 80)
  if o.colour == nil then o.colour = progress.colour(1) end
  if o.plain == nil then o.plain = not terminal.has_utf8() end
  o.rows, o.field = o.rows or ROWS, math.min(o.columns, 110) - MARGIN - 6
  local function out(text) lines[#lines + 1] = text:match(".*%S") or "" end
  if spec.panels and spec.title then out(line(spec.title)) end
  for i, panel in ipairs(spec.panels or { spec }) do
    if i > 1 then out("") end
    if panel.title then out((" "):rep(MARGIN) .. line(panel.title)) end
    if panel.matrix then
      heat(panel, o, out)
    else
      if panel.ylabel then out((" "):rep(MARGIN - 2) .. line(panel.ylabel)) end
      curves(panel, o, out)
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

return terminal
