-- report/formats.lua: a filled table (tables.lua) as aligned text, Markdown, LaTeX, CSV and HTML.
local footnotes = require "toeplab.report.footnotes"
local html = require "toeplab.report.html"
local report = require "toeplab.report.table_text"
local tables = require "toeplab.report.tables"

local formats = {}

local WIDE = 8 -- columns from which on a table stands on its side

-- ---- Numbers ----------------------------------------------------------------------------------

-- The fewest decimals, at most 4, that tell all the published numbers of a column exactly; whether
-- it has any.
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

local function number(v, decimals)
  if math.abs(v) >= 1e6 then return ("%.2e"):format(v) end
  if decimals then return ("%." .. decimals .. "f"):format(v) end
  local size = math.abs(v)
  if size ~= 0 and size < 1e-3 then return ("%.3g"):format(v) end
  return ("%.4f"):format(v)
end

local function paper_text(cell, decimals)
  if cell.dash then return "-" end
  if type(cell.paper) == "number" then return number(cell.paper, decimals) end
  return cell.paper or ""
end

-- What was measured: "31.20 ± 0.15 (2/3) †", "…", "diverged", or nothing.
local function here_text(cell, decimals)
  if cell.asked == 0 then return "" end
  local text
  if cell.interval then
    text = number(cell.interval.mean, decimals)
    if cell.interval.half then text = text .. " ± " .. number(cell.interval.half, decimals) end
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

local function column_name(column)
  local unit = column.unit and column.unit ~= "" and ", " .. column.unit or ""
  return column.name .. unit .. (arrows[column.better] or "")
end

-- ---- The grid of texts ------------------------------------------------------------------------

-- The texts of a table: head (a list), body (lists), bold (a set "r c" of cells in bold).
local function upright(result)
  local head, body, bold = { result.corner }, {}, {}
  local paper = result.published ~= nil
  for r, row in ipairs(result.rows) do body[r] = { row.name } end
  for c, column in ipairs(result.columns) do
    local exact, numbers = paper_decimals(result, c)
    local decimals = paper and math.max(exact, (column.better or not numbers) and 2 or 0) or nil
    local best = tables.best(result, c)
    if paper then
      head[#head + 1] = column_name(column)
      for r, row in ipairs(result.rows) do
        body[r][#head] = paper_text(row.cells[c], exact)
      end
    end
    if column.here then
      head[#head + 1] = paper and "here" or column_name(column)
      for r, row in ipairs(result.rows) do
        body[r][#head] = here_text(row.cells[c], decimals)
        if r == best then bold[r .. " " .. #head] = true end
      end
    end
  end
  return { head = head, body = body, bold = bold }
end

-- The same with the columns below each other: for tables with many of them.
local function sideways(result)
  local head, body, bold = { result.columns_are or "column" }, {}, {}
  local best = {}
  for c, column in ipairs(result.columns) do
    body[c], best[c] = { column_name(column) }, tables.best(result, c)
  end
  for r, row in ipairs(result.rows) do
    local here = false
    for _, cell in ipairs(row.cells) do here = here or cell.asked > 0 end
    for _, part in ipairs { row.published and "paper" or false, here and "here" or false } do
      if part then
        local first = part == "paper" or not row.published
        head[#head + 1] = first and row.name or "here"
        for c in ipairs(result.columns) do
          local cell, exact = row.cells[c], (paper_decimals(result, c))
          body[c][#head] = part == "paper" and paper_text(cell, exact)
            or here_text(cell, math.max(2, exact))
          if part == "here" and best[c] == r then bold[c .. " " .. #head] = true end
        end
      end
    end
  end
  return { head = head, body = body, bold = bold }
end

local function grid(result)
  local g = (#result.columns > WIDE and sideways or upright)(result)
  for _, row in ipairs(g.body) do
    for c = 1, #g.head do row[c] = row[c] or "" end
  end
  return g
end

-- Only the first column, the names of the rows, is set to the left.
local function right(g)
  local set = {}
  for c = 1, #g.head do set[c] = c > 1 end
  return set
end

-- ---- Text and Markdown ------------------------------------------------------------------------

-- Appends text to lines, broken between words.
local function wrap(lines, text, columns)
  local line = ""
  for word in text:gmatch "%S+" do
    if line ~= "" and (utf8.len(line) or #line) + (utf8.len(word) or #word) + 1 > columns then
      lines[#lines + 1], line = line, "  " .. word
    else
      line = line == "" and word or line .. " " .. word
    end
  end
  lines[#lines + 1] = line
end

local function title(result) return result.id .. ": " .. result.caption end

function formats.text(result)
  local g, lines = grid(result), {}
  wrap(lines, title(result), 100)
  lines[#lines + 1] = ""
  local body = report.lines(g.head, g.body, right(g))
  table.move(body, 1, #body, #lines + 1, lines)
  lines[#lines + 1] = ""
  for _, note in ipairs(footnotes.of(result)) do wrap(lines, note, 100) end
  return table.concat(lines, "\n") .. "\n"
end

function formats.md(result)
  local g = grid(result)
  local lines = { "**" .. result.id .. "** " .. result.caption, "",
    table.unpack(report.markdown(g.head, g.body, right(g))) }
  lines[#lines + 1] = ""
  for _, note in ipairs(footnotes.of(result)) do lines[#lines + 1] = "- " .. note end
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

local function tex(text) return (text:gsub(utf8.charpattern, tex_marks)) end

-- A booktabs table; the best measured value of a column is bold if its interval clears the others'.
function formats.tex(result)
  local g = grid(result)
  local lines = { "\\begin{table}", "  \\centering",
    "  \\caption{" .. tex(result.caption) .. "}", "  \\label{" .. "tab:" .. result.id .. "}",
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

-- One line per cell, all numbers in full.
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
  return report.csv(header, rows)
end

-- A <figure> for a page; the best measured values in <b>, as in formats.tex.
function formats.html(result)
  local g, notes = grid(result), {}
  for place in pairs(g.bold) do
    local r, c = place:match "(%d+) (%d+)"
    local row = g.body[tonumber(r)]
    row[tonumber(c)] = html.raw(html.text("<b>%s</b>", row[tonumber(c)]))
  end
  for i, note in ipairs(footnotes.of(result)) do notes[i] = html.text("<li>%s</li>\n", note) end
  return '<figure class="paper">\n' .. html.table(g.head, g.body, title(result), right(g))
    .. "<figcaption><ul>\n" .. table.concat(notes) .. "</ul></figcaption></figure>\n"
end

return formats
