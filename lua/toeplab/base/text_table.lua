-- base/text_table.lua: formats tables as aligned text, Markdown and CSV.
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local json = require "toeplab.base.json"
local width = require "toeplab.base.width"

local text_table = {}

-- Wraps text between words into lines of at most `columns` columns; a longer word gets its own
-- line. Puts indent before all lines except the first.
function text_table.wrap(text, columns, indent)
  local lines, line = {}, ""
  for word in text:gmatch "%S+" do
    if line ~= "" and width.of(line) + width.of(word) + 1 > columns then
      lines[#lines + 1], line = line, indent .. word
    else
      line = line == "" and word or line .. " " .. word
    end
  end
  lines[#lines + 1] = line
  return lines
end

-- Formats a finite number, with `decimals` decimals if given. A number of at least 1e6 has decimals
-- only if half, the half width of its interval, is known; otherwise it is whole or has 3
-- significant digits.
function text_table.number(v, decimals, half)
  local size = math.abs(v)
  local fine = half and half > 0 and half < 1e6 and size < 1e15
  if size >= 1e6 and not fine then
    return (size < 1e15 and v == math.floor(v) and "%d" or "%.2e"):format(v)
  end
  if decimals then return ("%." .. decimals .. "f"):format(v) end
  return (size ~= 0 and size < 1e-3 and "%.3g" or "%.4f"):format(v)
end

-- Formats a cell: floats with 4 decimals, very small and large ones by text_table.number, large
-- whole ones exactly, nil as "-". whole: whether all whole numbers have no decimals
-- (text_table.whole). spread: of a mean, {half= (the half width of its interval), decimals= (to
-- show)}; nil: unknown.
function text_table.cell(v, whole, spread)
  if v == nil then return "-" end
  if math.type(v) ~= "float" then return tostring(v) end
  if v ~= v then return "nan" end
  local size = math.abs(v)
  whole = (whole or size >= 1000) and size < 1e15 and v == math.floor(v)
  if whole then return ("%d"):format(v) end
  return text_table.number(v, size >= 1e6 and spread and spread.decimals or nil,
    spread and spread.half)
end

-- Returns the spread of cell c of a row from the field spreads of its metatable; nil if unknown.
local function spread_of(row, c)
  local spreads = (getmetatable(row) or {}).spreads
  return spreads and spreads[c]
end

text_table.spread_of = spread_of

-- Returns the set of columns of rows that hold only numbers; these are right-aligned.
function text_table.numeric(header, rows)
  local right = {}
  for c = 1, #header do
    right[c] = #rows > 0
    for _, row in ipairs(rows) do
      right[c] = right[c] and (type(row[c]) == "number" or row[c] == nil)
    end
  end
  return right
end

-- Returns the set of columns of rows whose finite numbers are all whole, such as counts.
function text_table.whole(header, rows)
  local whole = {}
  for c = 1, #header do
    whole[c] = true
    for _, row in ipairs(rows) do
      local v = row[c]
      whole[c] = whole[c] and (type(v) ~= "number" or v - v ~= 0 or v == math.floor(v))
    end
  end
  return whole
end

-- Returns a string as one line for a terminal.
local function line(s) return core.sys.clean((s:gsub("[\n\t]", " "))) end

local plain = { left = "", between = "  ", right = "", least = 0, escape = line }

-- Escapes a string as one line of Markdown.
function text_table.markdown_text(s) return (line(s):gsub("[][|\\*_`<]", "\\%0")) end

local markdown = { left = "| ", between = " | ", right = " |", least = 3,
  escape = text_table.markdown_text }

-- Returns aligned lines of cells, the header first, and the widths of the columns. exact: as for
-- text_table.lines.
local function aligned(header, rows, right, form, exact)
  local cells, widths, lines, whole = {}, {}, {}, text_table.whole(header, rows)
  for r = 0, #rows do
    cells[r] = {}
    for c = 1, #header do
      local v = r > 0 and rows[r][c]
      local setting = exact and exact[c] and math.type(v) == "float"
      cells[r][c] = form.escape(r == 0 and tostring(header[c])
        or setting and config.show(v) or text_table.cell(v, whole[c], spread_of(rows[r], c)))
      widths[c] = math.max(widths[c] or form.least, width.of(cells[r][c]))
    end
  end
  for r = 0, #rows do
    for c, text in ipairs(cells[r]) do
      cells[r][c] = width.pad(text, widths[c], right[c])
    end
    local text = form.left .. table.concat(cells[r], form.between) .. form.right
    lines[r + 1] = text:match(".*%S") or ""
  end
  return lines, widths
end

-- Returns the lines of a table: header is a list of names, rows are lists of values; right: the set
-- of right-aligned columns, by default columns of numbers; exact: the set of columns whose floats
-- are settings and not rounded (nil: none).
function text_table.lines(header, rows, right, exact)
  return (aligned(header, rows, right or text_table.numeric(header, rows), plain, exact))
end

-- Like text_table.lines, in Markdown.
function text_table.markdown(header, rows, right)
  right = right or text_table.numeric(header, rows)
  local lines, widths = aligned(header, rows, right, markdown)
  local rule = {}
  for c, w in ipairs(widths) do rule[c] = right[c] and ("-"):rep(w - 1) .. ":" or ("-"):rep(w) end
  table.insert(lines, 2, "| " .. table.concat(rule, " | ") .. " |")
  return lines
end

function text_table.print(header, rows, exact)
  for _, text in ipairs(text_table.lines(header, rows, nil, exact)) do print(text) end
end

local function csv_cell(v)
  if v == nil then return "" end
  if v ~= v then return "nan" end
  if type(v) == "number" then return v - v == 0 and json.number(v) or tostring(v) end
  local s = core.sys.clean(tostring(v))
  return s:find('[",\n]') and '"' .. s:gsub('"', '""') .. '"' or s
end

-- Returns CSV by RFC 4180 with one header line. Escapes control characters, like tables.
function text_table.csv(header, rows)
  local lines = {}
  for r = 0, #rows do
    local row, parts = rows[r] or header, {}
    for c = 1, #header do parts[c] = csv_cell(row[c]) end
    lines[#lines + 1] = table.concat(parts, ",")
  end
  return table.concat(lines, "\n") .. "\n"
end

return text_table
