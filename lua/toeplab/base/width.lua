-- base/width.lua: the columns of a terminal that texts take: two for a wide character (Chinese,
-- emoji), none for a combining one. The texts have no control characters (core.sys.clean).
local core = require "toeplab.core"

local width = {}

-- Returns the number of columns that a text takes.
function width.of(text)
  local ascii = not text:find "[\x80-\xFF]"
  return ascii and #text or (core.sys.width(text))
end

-- Returns the longest beginning of a text that takes at most so many columns.
function width.cut(text, columns)
  local _, bytes = core.sys.width(text, columns)
  return text:sub(1, bytes)
end

-- Returns a text with spaces behind it, or before it if right is true, up to so many columns.
function width.pad(text, columns, right)
  local space = (" "):rep(columns - width.of(text))
  return right and space .. text or text .. space
end

return width
