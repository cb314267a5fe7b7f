-- base/width.lua: the width of strings in columns of a terminal: two for a wide character (Chinese,
-- emoji), none for a combining one. The strings have no control characters (core.sys.clean).
local core = require "toeplab.core"

local width = {}

-- Returns the width of a string in columns.
function width.of(text)
  local ascii = not text:find "[\x80-\xFF]"
  return ascii and #text or (core.sys.width(text))
end

-- Returns the longest prefix of a string that fits into `columns` columns.
function width.cut(text, columns)
  local _, bytes = core.sys.width(text, columns)
  return text:sub(1, bytes)
end

-- Pads a string with spaces to `columns` columns; right: right-aligned.
function width.pad(text, columns, right)
  local space = (" "):rep(columns - width.of(text))
  return right and space .. text or text .. space
end

return width
