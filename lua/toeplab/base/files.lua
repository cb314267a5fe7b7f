-- base/files.lua: reads files, and measures and removes files and folders.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"

local files = {}

local function size_of(path)
  local file <close> = io.open(path, "rb")
  return file and file:seek("end") or 0
end

-- Returns the size of a file, or of all files in a folder.
function files.bytes(path)
  local kind, link = core.sys.kind(path)
  if kind == "file" then return size_of(path) end
  if kind ~= "folder" or link then return 0 end
  local sum = 0
  for _, name in ipairs(core.sys.list(path) or {}) do
    sum = sum + files.bytes(path .. "/" .. name)
  end
  return sum
end

-- Returns the text of a file of at most `most` bytes, a multiple of 2^20; also of a pipe or an
-- endless device. Returns nil and why if it is longer or cannot be read.
function files.read(path, most)
  local file <close>, why = io.open(path, "rb")
  if not file then return nil, why end
  local parts, size, part = {}, 0, nil
  repeat
    part, why = file:read(1 << 20)
    if why then return nil, path .. ": " .. why end
    parts[#parts + 1], size = part, size + #(part or "")
    if size > most then return nil, ("%s has more than %d MiB"):format(path, most >> 20) end
  until not part
  return table.concat(parts)
end

-- Removes a file, or a folder with its contents; of a symbolic link, only the link.
function files.remove(path)
  local kind, link = core.sys.kind(path)
  if kind == "folder" and not link then
    for _, name in ipairs(core.sys.list(path) or {}) do files.remove(path .. "/" .. name) end
  end
  local ok, why = core.sys.remove(path)
  if not ok and core.sys.exists(path) then errors.raise(errors.STORAGE, "%s", why) end
end

return files
