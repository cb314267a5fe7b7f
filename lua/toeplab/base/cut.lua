-- base/cut.lua: cuts a text to at most so many bytes, but never inside a UTF-8 character.
return function(text, most)
  if #text <= most then return text end
  for _ = 1, 3 do
    local next_byte = text:byte(most + 1)
    if most == 0 or next_byte < 0x80 or next_byte > 0xBF then break end
    most = most - 1
  end
  return text:sub(1, most)
end
