-- base/characters.lua: finds complete UTF-8 characters in a string, and cuts strings between
-- characters.
local characters = {}

local REPLACEMENT = utf8.char(0xFFFD)

-- Returns the length of a string without a character that is cut off at its end. Bytes that do not
-- begin a character count as complete.
function characters.complete(text)
  local start = text:find("[\xC2-\xF4][\x80-\xBF]*$")
  local first = start and text:byte(start) or 0
  local bytes = first < 0xE0 and 2 or first < 0xF0 and 3 or 4
  return start and #text - start + 1 < bytes and start - 1 or #text
end

-- Replaces each byte that is not UTF-8 by U+FFFD.
function characters.valid(text)
  if not text:find "[\x80-\xFF]" then return text end
  local parts, at = {}, 1
  local length, bad = utf8.len(text)
  while not length do
    parts[#parts + 1] = text:sub(at, bad - 1) .. REPLACEMENT
    at = bad + 1
    length, bad = utf8.len(text, at)
  end
  return table.concat(parts) .. text:sub(at)
end

-- Cuts a string to at most `bytes` bytes, never inside a character.
function characters.cut(text, most)
  if #text <= most then return text end
  for _ = 1, 3 do
    local next_byte = text:byte(most + 1)
    if most == 0 or next_byte < 0x80 or next_byte > 0xBF then break end
    most = most - 1
  end
  return text:sub(1, most)
end

return characters
