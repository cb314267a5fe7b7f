-- stop.lua: the exit codes of the program, and errors that end it with one of them and one clear
-- line.
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

local folder = (package.searchpath("toeplab.stop", package.path) or ""):match("^(.*/)[^/]*$") or ""

-- An error text without the places in the library that it passed through; what a script's author
-- needs is the place in the script. TOEPLAB_TRACEBACK keeps them.
function stop.plain(message)
  if folder == "" or os.getenv("TOEPLAB_TRACEBACK") then return message end
  local place = folder:gsub("%p", "%%%0") .. "[%w_/%-]+%.lua:%d+: "
  return (message:gsub(place, ""))
end

local problems = {
  full = { "no space left", "disk is full", "file too large", "quota exceeded", "of free disk" },
  damaged = { "disk i/o error", "input/output error", "disk image is malformed",
    "read-only file system", "readonly database" },
}

-- "full" or "damaged" if an error text of the engine says so of the storage, else nil.
function stop.storage_problem(message)
  local text = tostring(message):lower()
  for kind, list in pairs(problems) do
    for _, words in ipairs(list) do
      if text:find(words, 1, true) then return kind end
    end
  end
end

return stop
