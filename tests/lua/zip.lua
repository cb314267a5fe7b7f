-- zip.lua: writes zip archives of arrays as NumPy does, stored or compressed.
local core = require "toeplab.core"
local harness = require "harness"

local zip = {}

-- Returns a deflate stream of blocks that hold bytes as they are.
function zip.blocks(bytes)
  local list = {}
  for at = 1, math.max(1, #bytes), 1000 do
    local block = bytes:sub(at, at + 999)
    list[#list + 1] = string.pack("<BI2I2", at + 1000 > #bytes and 1 or 0, #block, ~#block & 0xFFFF)
      .. block
  end
  return table.concat(list)
end

-- Returns the bytes of a .npy file.
function zip.npy(description, dims, elements)
  local text = ("{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }\n"):format(description,
    table.concat(dims, ", "))
  return "\x93NUMPY\1\0" .. string.pack("<s2", text) .. elements
end

-- Writes an archive of entries {name, bytes, stream}: with a deflate stream (optional), which is to
-- expand to bytes, the entry is compressed.
function zip.write(path, entries)
  local parts, list, at = {}, {}, 0
  for i, entry in ipairs(entries) do
    local name, bytes, stream = entry[1] .. ".npy", entry[2], entry[3]
    local about = string.pack("<I2I2I2I2I2I4I4I4I2I2", 20, 0, stream and 8 or 0, 0, 0x21,
      core.crc32(bytes), #(stream or bytes), #bytes, #name, 0)
    parts[i] = "PK\3\4" .. about .. name .. (stream or bytes)
    list[i] = "PK\1\2" .. string.pack("<I2", 20) .. about
      .. string.pack("<I2I2I2I4I4", 0, 0, 0, 0, at) .. name
    at = at + #parts[i]
  end
  local all = table.concat(list)
  harness.write(path, table.concat(parts) .. all .. "PK\5\6"
    .. string.pack("<I2I2I2I2I4I4I2", 0, 0, #list, #list, #all, at, 0))
end

return zip
