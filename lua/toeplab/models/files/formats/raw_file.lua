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

-- Raises an engine's error about the file at path as one about who, which may be a part of it.
function raw_file.about(who, path, problem)
  local why = errors.text(problem)
  if why:sub(1, #path + 2) == path .. ": " then why = why:sub(#path + 3) end
  raw_file.bad(who, "%s", why)
end

-- Returns the elements of a type at an offset of the file at path as a tensor, which messages call
-- who.
function raw_file.elements(path, who, offset, kind, dims)
  local ok, t = pcall(core.raw_read, path, offset, kind, dims)
  if not ok then raw_file.about(who, path, t) end
  return t
end

-- Raises unless text is valid UTF-8; what names it.
function raw_file.check_text(path, what, text)
  if type(text) ~= "string" then raw_file.bad(path, "%s is a %s, not text", what, type(text)) end
  if not utf8.len(text) then
    raw_file.bad(path, "%s is not UTF-8 text: '%s'", what, core.sys.clean(text))
  end
end

return raw_file
