-- report/figures/gnuplot.lua: quotes texts for gnuplot and runs it.
local core = require "toeplab.core"
local shell = require "toeplab.base.shell"

local gnuplot = {}

-- Returns text as one line of UTF-8: control characters become spaces. If text is not UTF-8, bytes
-- beyond ASCII become question marks.
function gnuplot.clean(text)
  text = text:gsub("%c", " ")
  return utf8.len(text) and text or (text:gsub("[\x80-\xff]", "?"))
end

-- Quotes a text literally. gnuplot expands nothing in single quotes, but cannot read two quotes in
-- a row.
function gnuplot.quote(text)
  return "'" .. gnuplot.clean(text):gsub("'", [[' . "'" . ']]) .. "'"
end

-- Quotes the label of a tick. gnuplot reads it as a format for the number of the tick, in which a
-- per cent sign is written twice.
local function tick(text)
  return gnuplot.quote((tostring(text):gsub("%%", "%%%%")))
end

-- Returns text, shortened to `most` letters.
function gnuplot.short(text, most)
  local length = utf8.len(text)
  if not length or length <= most then return text end
  return text:sub(1, utf8.offset(text, most) - 1) .. "…"
end

-- Returns the letters of the longest of some names; 0 for none.
function gnuplot.longest(names)
  local most = 0
  for _, name in pairs(names or {}) do most = math.max(most, utf8.len(name) or #name) end
  return most
end

-- Labels the positions 1 to count of an axis, x or y, that have a name. Turns names that are too
-- long to stand side by side.
function gnuplot.ticks(out, axis, names, count)
  local list = {}
  for i = 1, count do
    if names[i] then list[#list + 1] = ("%s %d"):format(tick(names[i]), i) end
  end
  local turned = axis == "x" and out.kind ~= "text" and out.space.turned
  out("set %stics %s(%s) noenhanced", axis, turned and "rotate by 90 right " or "",
    table.concat(list, ", "))
end

-- Quotes a text for gnuplot, broken between words into the fewest lines of at most about `most`
-- letters, of about equal length.
function gnuplot.lines(text, most)
  local rows, row, length = {}, nil, utf8.len(text) or 0
  most = math.max(8, most // 1)
  if length <= most then return gnuplot.quote(text) end
  most = math.min(most, length // ((length + most - 1) // most) + 6)
  for word in gnuplot.clean(text):gmatch("%S+") do
    if row and utf8.len(row .. word) < most then
      row = row .. " " .. word
    else
      rows[#rows + 1], row = row, word
    end
  end
  rows[#rows + 1] = row or ""
  for i, line in ipairs(rows) do rows[i] = gnuplot.quote(line) end
  return table.concat(rows, [[ . "\n" . ]])
end

-- Returns the family ("" if not given) and the size in points (nil if not given) of a font like
-- "Times,8"; nil and the reason if it is invalid. A nil text gives neither.
function gnuplot.font(text)
  local family, size = (text or ""):match "^([^,]-),?%s*(%d*%.?%d*)$"
  local points = tonumber(size)
  if not family or family:find "[^%w%s_-]" or size ~= "" and not (points and points >= 1
    and points <= 100) then
    return nil, ("'%s' is not a family, a size of 1 to 100, or both, like Times,8"):format(text)
  end
  return family, points
end

-- Returns the kind of figure, "svg", "png" or "pdf", by the ending of a path; else nil.
function gnuplot.kind(path)
  local kind = path:lower():match "%.(%a+)$"
  return (kind == "svg" or kind == "png" or kind == "pdf") and kind or nil
end

-- Returns whether a width or height in inches can be drawn; nil stands for an invalid number.
function gnuplot.drawable_inches(inches)
  return inches ~= nil and inches >= 0.5 and inches <= 100
end

-- Returns the output of gnuplot for the commands; nil and the reason if it fails.
function gnuplot.run(text)
  if not shell.on_path("gnuplot") then
    return nil, "gnuplot is not installed: " .. shell.install("gnuplot-nox", "gnuplot")
  end
  local name, commands, errors = os.tmpname(), os.tmpname(), os.tmpname()
  local file <close> = io.open(commands, "w") -- readable by its user only
  local ok, why = file:write(text)
  ok = ok and file:flush()
  local picture
  if ok then
    -- -d ignores the user's own settings.
    ok = shell.run(("gnuplot -d %s >%s 2>%s"):format(shell.quote(commands), shell.quote(name),
      shell.quote(errors)))
    picture = ok and core.sys.read_file(name)
    why = "gnuplot: " .. ((core.sys.read_file(errors) or ""):match("([^\n]+)%s*$") or "no picture")
    why = why:gsub(commands, "picture", 1)
  end
  for _, path in ipairs { name, commands, errors } do os.remove(path) end
  if not picture or picture == "" then return nil, why end
  return picture
end

return gnuplot
