-- docs/make/roff.lua: writes pages of Markdown as a manual page for man(1).
local functions = require "functions"
local markdown = require "markdown"

local roff = {}

-- Escapes text for roff: backslashes, characters beyond ASCII, a hyphen as it is typed, and a point
-- or an apostrophe at the beginning of a line.
local function escaped(text)
  text = text:gsub("\\", "\\e"):gsub("%-", "\\-"):gsub("'", "\\(aq")
    :gsub("\n%.", "\n\\&."):gsub("^%.", "\\&.")
  return (text:gsub("[\xC2-\xF4][\x80-\xBF]*", function(character)
    return ("\\[u%04X]"):format(utf8.codepoint(character))
  end))
end

-- Returns text without backslashes before punctuation, and with **words** in bold.
local function plain(text)
  text = text:gsub("\\(%p)", "%1")
  return (escaped(text):gsub("%*%*(.-)%*%*", "\\fB%1\\fR"))
end

-- Returns text of Markdown as roff: `words` in backquotes are bold. A link becomes its words or,
-- where these are the name of a page, what names gives for it, or its path from the top.
function roff.inline(text, names)
  local out, at = {}, 1
  text = text:gsub("%[([^%]]+)%]%(([^)]+)%)", function(words, target)
    if words ~= target:match "[^/]*$" then return words end
    return names and names[words] or "docs/" .. words
  end)
  for before, literal, next_ in text:gmatch "([^`]*)`([^`]+)`()" do
    out[#out + 1] = plain(before) .. "\\fB" .. escaped(literal) .. "\\fR"
    at = next_
  end
  out[#out + 1] = plain(text:sub(at))
  return (table.concat(out):gsub("\n([.'])", "\n\\&%1"))
end

local write = {}

-- The level of a page's own heading is 0 if the manual has no other page.
function write.heading(block, add, of)
  local level = block.level - (#of.pages == 1 and 1 or 0)
  local text = plain(block.text:gsub("`", ""))
  if level == 0 then add ".SH DESCRIPTION"
  elseif level == 1 then add(".SH %s", plain(block.text:upper()))
  elseif level == 2 then add(".SS %s", text)
  else add(".PP\n\\fB%s\\fR", text) end
end

function write.text(block, add, of) add(".PP\n%s", roff.inline(block.text, of.names)) end

function write.list(block, add, of)
  for _, item in ipairs(block.items) do
    add(".IP \\(bu 2\n%s", roff.inline(item, of.names))
  end
end

-- Writes a block as it is, or signatures as a list of them with their texts.
function write.code(block, add)
  if block.info == "signatures" then
    for _, entry in ipairs(functions.entries(block.lines)) do
      local with = entry.list[1].with ~= nil
      add(with and ".PP\n%s" or ".TP\n\\fB%s\\fR", (escaped(entry.head)))
      if entry.text ~= "" then add("%s", (escaped(entry.text))) end
    end
  else
    add ".PP\n.RS 4\n.EX"
    for _, line in ipairs(block.lines) do add("%s", (escaped(line))) end
    add ".EE\n.RE"
  end
end

-- Writes a row as a term and its second cell, with the others and their headings in parentheses.
function write.table(block, add, of)
  for _, row in ipairs(block.rows) do
    local more = {}
    for i = 3, #row do
      if row[i] ~= "" then more[#more + 1] = block.header[i] .. ": " .. row[i] end
    end
    more = #more > 0 and (" (%s)"):format(table.concat(more, "; ")) or ""
    local text = (row[2] .. more):match "^ ?(.*)$"
    add(".TP\n%s", roff.inline(row[1], of.names))
    if text ~= "" then add("%s", roff.inline(text, of.names)) end
  end
end

-- Returns a manual page. of: {name=, section=, about=, version=, pages= (texts of Markdown), names=
-- (of pages in Markdown: what to call them), see= (other manuals)}.
function roff.page(of)
  local lines = {}
  local function add(form, ...) lines[#lines + 1] = form:format(...) end
  add('.\\" Made by docs/make from the pages of docs.')
  add('.TH %s %s "" "Toeplab %s"\n.nr HY 0\n.nh\n.ad l', of.name:upper(), of.section, of.version)
  add(".SH NAME\n%s \\- %s", of.name, of.about)
  for _, text in ipairs(of.pages) do
    for _, block in ipairs(markdown.read(text)) do write[block.kind](block, add, of) end
  end
  add(".SH SEE ALSO\n%s", table.concat(of.see, ", "))
  return table.concat(lines, "\n") .. "\n"
end

return roff
