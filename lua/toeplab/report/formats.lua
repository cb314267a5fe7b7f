-- report/formats.lua: formats a filled table (tables.lua) as aligned text, Markdown, LaTeX, CSV or
-- HTML.
local cells = require "toeplab.report.cells"
local core = require "toeplab.core"
local footnotes = require "toeplab.report.footnotes"
local html = require "toeplab.report.html"
local labels = require "toeplab.report.labels"
local stats = require "toeplab.report.stats"
local text_table = require "toeplab.base.text_table"
local tables = require "toeplab.report.tables"

local formats = {}

local WIDE = 8 -- a table with more columns is transposed
local COLUMNS = 100 -- of the lines above and below a table

-- ---- Numbers ----------------------------------------------------------------------------------

-- Returns the fewest decimals, at most 4, that show all published numbers of a column exactly, and
-- whether there are any.
local function paper_decimals(result, c)
  local most, any = 0, false
  for _, row in ipairs(result.rows) do
    local v = row.cells[c].paper
    if type(v) == "number" and math.abs(v) < 1e6 then
      local d = 0
      while d < 4 and math.abs(tonumber(("%." .. d .. "f"):format(v)) - v) > 1e-9 do d = d + 1 end
      most, any = math.max(most, d), true
    end
  end
  return most, any
end

local function paper_text(cell, decimals)
  if cell.dash then return "-" end
  if type(cell.paper) == "number" then return text_table.number(cell.paper, decimals) end
  return cell.paper or ""
end

-- Returns the text of a measured cell: "31.20 ± 0.15 (2/3) †", "diverged (1/3)", "…" (not
-- finished), "failed", "-", or "" without trials. A mean has the decimals that its interval
-- supports or, if these are not known, its column's.
local function here_text(cell, decimals)
  if cell.asked == 0 then return "" end
  local text
  if cell.rate then
    text = ("%d/%d [%.0f, %.0f] %%"):format(cell.rate[1], cell.rate[2], 100 * cell.interval.low,
      100 * cell.interval.high)
  elseif cell.interval then
    decimals = stats.decimals(cell.interval.half) or decimals
    text = text_table.number(cell.interval.mean, decimals, cell.interval.half)
    if cell.interval.half then
      text = text .. " ± " .. text_table.number(cell.interval.half, decimals)
    end
    if cell.done < cell.asked then
      text = text .. (" (%d/%d)"):format(cell.done, cell.asked)
    end
  elseif cell.diverged > 0 then
    text = ("diverged (%d/%d)"):format(cell.diverged, cell.asked)
  elseif cell.open > 0 then
    text = "…"
  else
    text = cell.failed > 0 and "failed" or "-"
  end
  if cell.rescued and cell.rescued > 0 then text = text .. " " .. footnotes.RESCUED end
  if cell.early and cell.early > 0 then text = text .. " " .. footnotes.EARLY end
  if cell.verdict ~= nil then text = text .. (cell.verdict and " ✓" or " ✗") end
  return text
end

local arrows = { lower = " ↓", higher = " ↑" }

-- ---- Names ------------------------------------------------------------------------------------

-- Returns the labels of a table's experiment, in TeX if tex.
local function labels_of(result, tex)
  local plan = result.frame and result.frame.plan or {}
  return labels.new(plan.labels, tex and plan.tex)
end

local function column_name(result, column, names)
  local name = column.name
  if column.group then
    name = names:values(column.group.at, column.group.keys)
  elseif not result.published and not column.margin then
    local success = column.rate and " " .. cells.success_text(column.rate) or ""
    name = names:name(column.name_of_metric or name) .. success
  end
  local unit = column.unit and column.unit ~= "" and ", " .. column.unit or ""
  return name .. unit .. (not column.plain and arrows[column.better] or "")
end

local function row_name(result, row, names)
  local group = row.group
  if not group or #group.keys == 0 or row.published then return row.name end
  if result.pivot then return names:values(group.at, group.keys) end
  return names:parts(group.at, group.keys) .. group.more
end

-- Returns the names for what the rows and the columns of a table are.
local function kinds_of(result, names)
  if not result.pivot then return result.corner, result.columns_are end
  return names:names(result.pivot.rows), names:names(result.pivot.columns)
end

local function caption(result, names)
  if not result.pivot then return result.caption end
  local rows, columns = kinds_of(result, names)
  local better, title = result.columns[1].better, result.frame.plan.title
  local text = columns == "" and "by " .. rows or ("%s%s by %s and %s"):format(
    names:name(result.pivot.metric), better and (" (%s is better)"):format(better) or "", rows,
    columns)
  return title and title .. ", " .. text or text
end

-- ---- Cells -------------------------------------------------------------------------------------

-- Returns which parts of a column, or of a row of a transposed table, are shown: the paper's value,
-- the measured one, or both.
local function parts_of(result, item, sideways)
  local here = item.here
  for _, cell in ipairs(item.cells or {}) do here = here or cell.asked > 0 end
  local paper
  if sideways then paper = item.published else paper = result.published end
  local parts = { paper and "paper" }
  if here then parts[#parts + 1] = "here" end
  return parts
end

-- Returns 0 if all measured numbers of a column are whole, such as counts, else nil.
local function whole_decimals(result, c)
  for _, row in ipairs(result.rows) do
    local i = row.cells[c].interval
    if i and (i.mean ~= math.floor(i.mean) or (i.half or 0) ~= math.floor(i.half or 0)) then
      return nil
    end
  end
  return 0
end

-- Returns for each column the decimals of its published and measured numbers, and its best row.
local function styles_of(result)
  local list = {}
  for c, column in ipairs(result.columns) do
    local exact, numbers = paper_decimals(result, c)
    list[c] = { paper = exact, best = tables.best(result, c), here = result.published
      and math.max(exact, (column.better or not numbers) and 2 or 0)
      or whole_decimals(result, c) }
  end
  return list
end

-- Returns the texts of a table: head (a list), body (lists), bold (a set "r c" of bold cells). A
-- table of many columns is transposed.
local function grid(result, names)
  local sideways, styles = #result.columns > WIDE, styles_of(result)
  local across, down = result.columns, result.rows
  if sideways then across, down = down, across end
  local corner, columns_are = kinds_of(result, names)
  local g = { head = { sideways and (columns_are or "column") or corner }, body = {}, bold = {} }
  local function name(item)
    return (item.cells and row_name or column_name)(result, item, names)
  end
  for d, item in ipairs(down) do g.body[d] = { name(item) } end
  for a, item in ipairs(across) do
    for k, part in ipairs(parts_of(result, item, sideways)) do
      local place = #g.head + 1
      g.head[place] = k > 1 and "here" or name(item)
      for d in ipairs(down) do
        local r, c = sideways and a or d, sideways and d or a
        local cell, style = result.rows[r].cells[c], styles[c]
        g.body[d][place] = (part == "paper" and paper_text or here_text)(cell, style[part])
        if part == "here" and style.best == r then g.bold[d .. " " .. place] = true end
      end
    end
  end
  return g
end

-- Right-aligns all columns except the first, which holds the names of the rows.
local function right(g)
  local set = {}
  for c = 1, #g.head do set[c] = c > 1 end
  return set
end

-- ---- Text and Markdown ------------------------------------------------------------------------

-- Appends text to lines, broken between words.
local function wrap(lines, text)
  local broken = text_table.wrap(text, COLUMNS, "  ")
  table.move(broken, 1, #broken, #lines + 1, lines)
end

local function title(result, names) return result.id .. ": " .. caption(result, names) end

-- Returns the lists of the names of rows and columns, as text shows them.
function formats.names(result)
  local names, rows, columns = labels_of(result), {}, {}
  for r, row in ipairs(result.rows) do rows[r] = row_name(result, row, names) end
  for c, column in ipairs(result.columns) do columns[c] = column_name(result, column, names) end
  return rows, columns
end

function formats.text(result)
  local names, lines = labels_of(result), {}
  local g = grid(result, names)
  wrap(lines, title(result, names))
  lines[#lines + 1] = ""
  local body = text_table.lines(g.head, g.body, right(g))
  table.move(body, 1, #body, #lines + 1, lines)
  lines[#lines + 1] = ""
  for _, note in ipairs(footnotes.of(result)) do wrap(lines, note) end
  return table.concat(lines, "\n") .. "\n"
end

function formats.md(result)
  local names, text = labels_of(result), text_table.markdown_text
  local g = grid(result, names)
  local lines = { "**" .. text(result.id) .. "** " .. text(caption(result, names)), "",
    table.unpack(text_table.markdown(g.head, g.body, right(g))) }
  lines[#lines + 1] = ""
  for _, note in ipairs(footnotes.of(result)) do lines[#lines + 1] = "- " .. text(note) end
  return table.concat(lines, "\n") .. "\n"
end

-- ---- LaTeX ------------------------------------------------------------------------------------

local tex_marks = {
  ["\\"] = "\\textbackslash{}", ["{"] = "\\{", ["}"] = "\\}", ["$"] = "\\$", ["&"] = "\\&",
  ["#"] = "\\#", ["%"] = "\\%", ["_"] = "\\_", ["^"] = "\\textasciicircum{}",
  ["~"] = "\\textasciitilde{}", ["±"] = "$\\pm$", ["†"] = "\\dag{}", ["‡"] = "\\ddag{}",
  ["↓"] = "$\\downarrow$", ["↑"] = "$\\uparrow$", ["…"] = "\\dots{}", ["✓"] = "(ok)",
  ["✗"] = "(off)", ["<"] = "$<$", [">"] = "$>$",
}

local function escaped(text)
  return (core.sys.clean(text):gsub(utf8.charpattern, tex_marks))
end

local function tex(text) return labels.raw(text, escaped) end

-- Formats a booktabs table; the best measured value of a column is bold if its interval does not
-- overlap the runner-up's.
function formats.tex(result)
  local names = labels_of(result, true)
  local g = grid(result, names)
  local lines = { "\\begin{table}", "  \\centering",
    "  \\caption{" .. tex(caption(result, names)) .. "}", "  \\label{tab:" .. result.id .. "}",
    "  \\begin{tabular}{l" .. ("r"):rep(#g.head - 1) .. "}", "    \\toprule" }
  for r = 0, #g.body do
    local parts = {}
    for c, text in ipairs(r == 0 and g.head or g.body[r]) do
      parts[c] = g.bold[r .. " " .. c] and "\\textbf{" .. tex(text) .. "}" or tex(text)
    end
    lines[#lines + 1] = "    " .. table.concat(parts, " & ") .. " \\\\"
    if r == 0 then lines[#lines + 1] = "    \\midrule" end
  end
  lines[#lines + 1] = "    \\bottomrule\n  \\end{tabular}\n\n  \\smallskip\\footnotesize"
  local notes = footnotes.of(result)
  for i, note in ipairs(notes) do
    lines[#lines + 1] = "  " .. tex((note:gsub("%.$", ""))) .. (i < #notes and ".\\\\" or ".")
  end
  lines[#lines + 1] = "\\end{table}"
  return table.concat(lines, "\n") .. "\n"
end

-- ---- CSV and HTML -----------------------------------------------------------------------------

-- Writes one line per cell, with all numbers in full.
function formats.csv(result)
  local header = { "table", "row", "column", "paper", "mean", "low", "high", "deviation", "n",
    "asked", "diverged", "ended_early", "rescued", "failed", "unfinished" }
  local rows = {}
  for _, row in ipairs(result.rows) do
    for c, cell in ipairs(row.cells) do
      local i = cell.interval or {}
      rows[#rows + 1] = { result.id, row.name, result.columns[c].name, cell.paper, i.mean, i.low,
        i.high, i.low and i.deviation, i.n or 0, cell.asked, cell.diverged, cell.early,
        cell.rescued, cell.failed, cell.open }
    end
  end
  return text_table.csv(header, rows)
end

-- Returns a <figure> for a page, with the best measured values in <b> by the rule of formats.tex.
function formats.html(result)
  local names, notes = labels_of(result), {}
  local g = grid(result, names)
  for place in pairs(g.bold) do
    local r, c = place:match "(%d+) (%d+)"
    local row = g.body[tonumber(r)]
    row[tonumber(c)] = html.raw(html.text("<b>%s</b>", row[tonumber(c)]))
  end
  for i, note in ipairs(footnotes.of(result)) do notes[i] = html.text("<li>%s</li>\n", note) end
  return '<figure class="paper">\n'
    .. html.table(g.head, g.body, title(result, names), right(g))
    .. "<figcaption><ul>\n" .. table.concat(notes) .. "</ul></figcaption></figure>\n"
end

return formats
