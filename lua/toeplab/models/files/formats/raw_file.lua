-- models/files/formats/raw_file.lua: opens files of other programs, safetensors and NumPy's, and
-- reads elements from them. All errors begin with the path.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"

local raw_file = {}

-- Raises an error about a file that cannot be read or written.
function raw_file.bad(path, format, ...)
  errors.raise(errors.FAILED, "%s: %s", path, format:format(...))
end

-- Raises a usage error unless path is a file.
function raw_file.check(path)
  local kind = core.sys.kind(path)
  if kind == "file" then return end
  errors.usage("%s: %s", path, kind and "is not a plain file" or "there is no such file")
end

-- Returns the open file at path and its size in bytes.
function raw_file.open(path)
  raw_file.check(path)
  local file, why = io.open(path, "rb")
  if not file then errors.raise(errors.FAILED, "%s", why) end
  return file, file:seek "end"
end

-- Returns the elements of a type at an offset as a tensor. who: follows the path in messages.
function raw_file.elements(path, who, offset, kind, dims)
  local ok, t = pcall(core.raw_read, path, offset, kind, dims)
  if ok then return t end
  local why = errors.text(t)
  if why:sub(1, #path + 2) == path .. ": " then why = why:sub(#path + 3) end
  raw_file.bad(path, "%s%s", who, why)
end

-- Raises unless text is valid UTF-8; what names it.
function raw_file.check_text(path, what, text)
  if type(text) ~= "string" then raw_file.bad(path, "%s is a %s, not text", what, type(text)) end
  if not utf8.len(text) then
    raw_file.bad(path, "%s is not UTF-8 text: '%s'", what, core.sys.clean(text))
  end
end

return raw_file
