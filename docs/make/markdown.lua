-- docs/make/markdown.lua: reads the Markdown of the reference into a list of blocks:
--   { kind = "heading", level =, text = }, { kind = "text", text = },
--   { kind = "list", items = { text, ... } }, { kind = "code", info =, lines = },
--   { kind = "table", header = cells, rows = { cells, ... } }
-- This is the subset that the pages use: lists are not nested, and a comment is a line by itself.
local markdown = {}

-- Returns the cells of a row of a table. A bar of a cell is written \|.
local function cells(line)
  local list = {}
  line = line:gsub("\\|", "\0")
  for cell in line:match "^|(.*)$":gmatch "%s*([^|]-)%s*|" do
    list[#list + 1] = cell:gsub("\0", "|")
  end
  return list
end

-- Reads a fenced block, whose first line is at i. Returns it and the number of the line after it.
local function read_code(lines, i)
  local block = { kind = "code", info = lines[i]:match "^```(.*)$", lines = {} }
  i = i + 1
  while lines[i] and lines[i] ~= "```" do
    block.lines[#block.lines + 1], i = lines[i], i + 1
  end
  if not lines[i] then error("a fenced block has no end: " .. (block.lines[1] or ""), 0) end
  return block, i + 1
end

local function read_table(lines, i)
  local block = { kind = "table", header = cells(lines[i]), rows = {} }
  i = i + 2
  while lines[i] and lines[i]:find "^|" do
    block.rows[#block.rows + 1], i = cells(lines[i]), i + 1
  end
  return block, i
end

-- Reads a paragraph, or a list, whose items go on in indented lines.
local function read_text(lines, i)
  local list = lines[i]:find "^%- " and { kind = "list", items = {} }
  local text = {}
  while lines[i] and not lines[i]:find "^%s*$" and not lines[i]:find "^[|#]"
    and not lines[i]:find "^```" and not lines[i]:find "^<!%-%-" do
    if list and lines[i]:find "^%- " then
      list.items[#list.items + 1] = lines[i]:sub(3)
    elseif list then
      list.items[#list.items] = list.items[#list.items] .. "\n" .. lines[i]:match "^%s*(.*)$"
    else
      text[#text + 1] = lines[i]
    end
    i = i + 1
  end
  return list or { kind = "text", text = table.concat(text, "\n") }, i
end

function markdown.read(text)
  local lines, blocks, i = {}, {}, 1
  for line in text:gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
  while i <= #lines do
    local line = lines[i]
    local level, heading = line:match "^(#+) (.*)$"
    if heading then
      blocks[#blocks + 1], i = { kind = "heading", level = #level, text = heading }, i + 1
    elseif line:find "^```" then
      blocks[#blocks + 1], i = read_code(lines, i)
    elseif line:find "^|" then
      blocks[#blocks + 1], i = read_table(lines, i)
    elseif line == "" or line:find "^<!%-%-" then
      i = i + 1
    else
      blocks[#blocks + 1], i = read_text(lines, i)
    end
  end
  return blocks
end

return markdown
