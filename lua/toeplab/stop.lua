-- stop.lua: the exit codes of the program, and errors that end it with one of them and one clear line.
local stop = {
  DONE = 0, FAILED = 1, USAGE = 2, CHECK = 4, LOCKED = 5, STORAGE = 6,
  HANGUP = 129, INTERRUPT = 130, TERMINATE = 143,
}

local Stop = { __name = "stop", __tostring = function(e) return e.message end }

-- Raises the error object that commands/init.lua turns into "toeplab: MESSAGE" and the exit code.
function stop.raise(code, format, ...)
  local message = select("#", ...) > 0 and format:format(...) or format
  error(setmetatable({ code = code, message = message }, Stop), 0)
end

function stop.usage(format, ...) stop.raise(stop.USAGE, format, ...) end

function stop.is(e) return getmetatable(e) == Stop end

-- Whether an error text of the engine says that the storage cannot take more.
function stop.storage_full(message)
  local text = tostring(message):lower()
  return (text:find("no space left", 1, true) or text:find("disk is full", 1, true)
    or text:find("file too large", 1, true) or text:find("quota exceeded", 1, true)) ~= nil
end

return stop
