-- report/html.lua: builds the parts of a self-contained HTML page: escaped text, tables, and
-- figures as inline SVG in the colours of the page.
local plot = require "toeplab.report.figures.plot"
local text_table = require "toeplab.base.text_table"

local html = {}

local marks = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }

-- Escapes text for a page; replaces what is not UTF-8 or not printable.
function html.escape(text)
  text = tostring(text):gsub("[%z\1-\8\11-\31\127]", " ")
  if not utf8.len(text) then text = text:gsub("[\x80-\xff]", "?") end
  return (text:gsub("[&<>\"']", marks))
end

local escape = html.escape

-- Formats text and escapes its %s arguments, except html.raw values; nil gives "".
function html.text(format, ...)
  local parts = table.pack(...)
  for i = 1, parts.n do
    local v = parts[i]
    parts[i] = getmetatable(v) == html and v.markup or escape(v == nil and "" or v)
  end
  return format:format(table.unpack(parts, 1, parts.n))
end

-- Wraps markup that a table inserts unescaped.
function html.raw(markup) return setmetatable({ markup = markup }, html) end

local function cell(v, whole, spread)
  if getmetatable(v) == html then return v.markup end
  return escape(text_table.cell(v, whole, spread))
end

-- Returns a table in a frame that scrolls by itself in a narrow window; the caption stays above the
-- frame. right: the set of right-aligned columns, by default of numbers; the first cell of a
-- row is its header.
function html.table(header, rows, caption, right)
  local lines, whole = {}, text_table.whole(header, rows)
  right = right or text_table.numeric(header, rows)
  local function one(tag, c, content, scope)
    return ("<%s%s%s>%s</%s>"):format(tag, scope and (' scope="%s"'):format(scope) or "",
      right[c] and ' class="n"' or "", content, tag)
  end
  for r = 0, #rows do
    local cells = {}
    for c = 1, #header do
      local row = rows[r]
      cells[c] = r == 0 and one("th", c, escape(header[c]), "col")
        or one(c == 1 and "th" or "td", c, cell(row[c], whole[c], text_table.spread_of(row, c)),
          c == 1 and "row" or nil)
    end
    lines[r + 1] = "<tr>" .. table.concat(cells) .. "</tr>"
  end
  return html.text('<p class="caption" aria-hidden="true">%s</p>\n<div class="scroll" '
    .. 'role="region" tabindex="0" aria-label="%s"><table>\n<caption>%s</caption>\n', caption,
    caption, caption) .. "<thead>" .. lines[1] .. "</thead><tbody>\n"
    .. table.concat(lines, "\n", 2) .. "\n</tbody></table></div>\n"
end

-- Returns a list of names and values; values may be html.raw.
function html.pairs(list)
  local lines = {}
  for i, pair in ipairs(list) do
    lines[i] = ("<dt>%s</dt><dd>%s</dd>"):format(escape(pair[1]), cell(pair[2]))
  end
  return "<dl>\n" .. table.concat(lines, "\n") .. "\n</dl>\n"
end

-- Returns content that the reader can unfold.
function html.details(summary, content)
  return html.text("<details><summary>%s</summary>\n", summary) .. content .. "</details>\n"
end

-- ---- Figures -----------------------------------------------------------------------------------

-- Embeds gnuplot's SVG into a page: removes its file header and prefixes its ids, which must differ
-- from other figures' ids.
local function inline(svg, prefix, alt)
  svg = svg:gsub("^.-<svg", "", 1):gsub("<title>.-</title>%s*", "", 1)
  svg = svg:gsub("<desc>.-</desc>%s*", "", 1):gsub("<filter.-</filter>%s*", "")
  svg = svg:gsub('xmlns[:%w]*="[^"]*"%s*', ""):gsub("xlink:href='#", "href='#" .. prefix)
  svg = svg:gsub("xlink:href", "href"):gsub("( id=['\"])", "%1" .. prefix)
  svg = svg:gsub("url%(#", "url(#" .. prefix):gsub("<g [^>]*>%s*</g>\n?", "")
  return html.text('<svg role="img" aria-label="%s"', alt) .. svg
end

-- Describes a figure in words for screen readers.
local function describe(spec)
  local parts = {}
  for _, panel in ipairs(spec.panels or { spec }) do
    local words = { panel.title }
    words[#words + 1] = panel.matrix and "a matrix as colours"
      or ("%s against %s"):format(panel.ylabel or "values", panel.xlabel or "index")
    for _, s in ipairs(panel.series or {}) do
      local y = type(s.y) == "userdata" and s.y:totable() or s.y
      if s.name and #y > 0 and s.style ~= "points" then
        words[#words + 1] = ("%s ends at %s"):format(s.name, text_table.cell(y[#y]))
      end
    end
    parts[#parts + 1] = table.concat(words, "; ")
  end
  return table.concat(parts, ". ")
end

-- Returns a figure of spec (plot.lua) with its caption ("": none); nil and the reason if it cannot
-- be drawn. number: its number on the page, which makes its ids differ from other figures'.
function html.figure(spec, number, caption)
  local svg, why = plot.picture(spec, "inline")
  if not svg then return nil, why end
  return ("<figure>%s\n%s</figure>\n"):format(inline(svg, "f" .. number, describe(spec)),
    caption ~= "" and html.text("<figcaption>%s</figcaption>", caption) or "")
end

-- ---- The page ---------------------------------------------------------------------------------

local style = [[
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1b1b; --soft: #595959; --grid: #ddd;
  --card: #f5f5f2; --link: #005a9c; --bad: #c24f00 }
@media (prefers-color-scheme: dark) { :root { --paper: #16181b; --ink: #ececec; --soft: #b4b4b4;
  --grid: #3a3d42; --card: #202327; --link: #7fbfff; --bad: #f0803c }
  svg { filter: invert(1) hue-rotate(180deg) } }
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100% }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 72rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .6rem; padding-bottom: .2rem;
  border-bottom: 1px solid var(--grid) }
p { max-width: 46rem; margin: .6rem 0 } a { color: var(--link) }
.question { font-size: 1.15rem } .soft, figcaption, .caption { color: var(--soft) }
nav ul { list-style: none; padding: 0; margin: 1rem 0; display: flex; flex-wrap: wrap;
  gap: .2rem 1.2rem } nav a { display: inline-block; padding: .2rem 0 }
.scroll { overflow-x: auto; margin: .2rem 0 1rem; position: relative }
.caption { font-size: .92rem; margin: 1rem 0 0 }
.scroll:focus-visible { outline: 2px solid var(--link) }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%) }
th, td { padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top }
thead th { border-bottom: 1px solid var(--soft); vertical-align: bottom }
tbody tr + tr > * { border-top: 1px solid var(--grid) }
tbody th { font-weight: normal } .n { text-align: right; white-space: nowrap }
thead .n { white-space: normal }
.id, pre, code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .88em }
.bad { color: var(--bad); font-weight: 600 }
pre { background: var(--card); padding: .8rem 1rem; overflow-x: auto; border-radius: .3rem;
  white-space: pre-wrap; overflow-wrap: anywhere; margin: .8rem 0 }
.figures { display: grid; gap: 1.5rem; margin: 1.2rem 0; grid-template-columns: repeat(auto-fit,
  minmax(min(100%, 26rem), 1fr)) }
figure { margin: 0; min-width: 0 } svg { display: block; max-width: 100%; height: auto }
figcaption { font-size: .92rem; margin-top: .2rem; overflow-wrap: anywhere }
figcaption ul { padding-left: 1.2rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: .8rem 0 }
dt { color: var(--soft) } dd { margin: 0; min-width: 0; overflow-wrap: anywhere }
details { margin: .8rem 0 } summary { cursor: pointer; padding: .2rem 0 }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr } dd { margin-bottom: .4rem } }
@media print { body { max-width: none } .scroll { overflow: visible } }
]]

-- Returns a whole page. It loads nothing from other hosts and runs no scripts, which its content
-- security policy enforces.
function html.page(title, body)
  return ([[<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
 img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<style>
%s</style>
</head>
<body>
%s</body>
</html>
]]):format(escape(title), style, body)
end

return html
