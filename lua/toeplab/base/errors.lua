-- base/errors.lua: defines the exit codes of the program, and errors that end it with one of them
-- and one line of text.
local core = require "toeplab.core"
local cut = require("toeplab.base.characters").cut
local json = require "toeplab.base.json"
local shell = require "toeplab.base.shell"

local errors = {
  DONE = 0, FAILED = 1, USAGE = 2, BUDGET = 3, CHECK = 4, LOCKED = 5, STORAGE = 6,
  HANGUP = 129, INTERRUPT = 130, TERMINATE = 143,
}

local Stop = { __name = "stop", __tostring = function(e) return e.message end }

-- Returns the error object that commands/init.lua turns into "toeplab: MESSAGE" and the exit code.
function errors.new(code, format, ...)
  format = shell.named(format)
  local message = select("#", ...) > 0 and format:format(...) or format
  return setmetatable({ code = code, message = message }, Stop)
end

function errors.raise(...) error(errors.new(...), 0) end

function errors.usage(format, ...) errors.raise(errors.USAGE, format, ...) end

-- Raises the usage error that data is not on this machine; its field absent is true.
function errors.absent(...)
  local e = errors.new(errors.USAGE, ...)
  e.absent = true
  error(e, 0)
end

-- Returns ok; raises an error about the storage unless it is true: errors.stored(io.open(path)).
function errors.stored(ok, why)
  if not ok then errors.raise(errors.STORAGE, "%s", why) end
  return ok
end

-- Prints a line on stderr, without control characters.
function errors.say(format, ...)
  format = shell.named(format)
  io.stderr:write(core.sys.clean(select("#", ...) > 0 and format:format(...) or format), "\n")
end

-- Cuts a message that would fill the terminal. where: the command that shows all of it, or nil.
function errors.shown(text, where)
  local most = where and 1000 or 10000
  if #text <= most then return text end
  local more = where and ", more in " .. shell.named(where) or ""
  return ("%s... (%d bytes%s)"):format(cut(text, most), #text, more)
end

function errors.is(e) return getmetatable(e) == Stop end

local folder = (package.searchpath("toeplab", package.path) or ""):match "^(.*/)[^/]*$" or ""

local function literally(text) return (text:gsub("%p", "%%%0")) end

-- Removes places in the library from an error message, because the author of a script needs the
-- place in the script. Lua writes a long path as "..." and its end. TOEPLAB_TRACEBACK keeps them.
function errors.plain(message)
  if folder == "" or os.getenv("TOEPLAB_TRACEBACK") then return message end
  local file, tail = "[%w_/%-]+%.lua:%d+: ", folder:match "[^/]*/[^/]*/$" or folder
  return (message:gsub(literally(folder) .. file, "")
    :gsub("%.%.%.[^\n:]*" .. literally(tail) .. file, ""))
end

-- For handlers of errors: returns "path:line" of the innermost function in a file for which
-- wanted(path) holds; nil if there is none.
function errors.innermost(wanted)
  for level = 2, 1000 do -- the time to find a level grows with its depth
    local info = debug.getinfo(level, "Sl")
    if not info then return nil end
    local path = info.source:match "^@(.*)"
    if path and wanted(path) then return ("%s:%d"):format(path, info.currentline) end
  end
end

local function is_own(path) return path:sub(1, #folder) ~= folder end

-- Returns the path of the file that a function comes from, if it is not of the library, else nil.
function errors.own_file(fn)
  local path = debug.getinfo(fn, "S").source:match "^@(.*)"
  return path and is_own(path) and path or nil
end

-- For handlers of errors: returns the message without places in the library and, if no place is
-- left, with the line of the innermost function outside the library that led to the error.
function errors.located(message)
  local plain = errors.plain(message)
  if plain:find "^[^\n:]*:%d+: " then return plain end
  local place = errors.innermost(is_own)
  return place and place .. ": " .. plain or message
end

-- Returns any error value as a string; a table without __tostring as its content.
function errors.text(e)
  local printable = type(e) ~= "table" or (getmetatable(e) or {}).__tostring
  if printable then return errors.plain(tostring(e)) end
  if type(e.message) == "string" then return errors.plain(e.message) end
  local ok, text = pcall(json.encode, e)
  return "an error object " .. (ok and text or tostring(e))
end

local signals = { INT = errors.INTERRUPT, TERM = errors.TERMINATE, USR1 = errors.TERMINATE,
  USR2 = errors.TERMINATE, HUP = errors.HANGUP }

-- Returns the name of the signal that asked this process to end, such as "INT", and its exit code;
-- nil if none arrived.
function errors.signal()
  local count, name = core.sys.interrupted()
  name = name or count > 0 and "INT" or nil
  return name, signals[name]
end

-- Describes the stop of a trial by a signal. SIGINT, which Ctrl-C sends, is a request of the user.
function errors.stop_text(name)
  return name == "INT" and "stopped on request" or "stopped by SIG" .. name
end

-- Raises an error that ends the program if a signal has asked for it.
function errors.check_signals()
  local name, code = errors.signal()
  if name then errors.raise(code, "stopped by SIG%s", name) end
end

local problems = { ENOSPC = "full", EIO = "damaged", ECORRUPT = "damaged" }

-- Returns "full" or "damaged" if an error object of the engine, or a status, reports such a problem
-- of the storage; else nil.
function errors.storage_problem(e)
  return problems[type(e) == "table" and rawget(e, "status") or e]
end

-- Returns the exit code of a failure: an error object of the engine or a status.
function errors.code_of(e) return errors.storage_problem(e) and errors.STORAGE or errors.FAILED end

-- By the errno of Linux; 23 and 24: too many open files, 30: a read-only disk.
local statuses = { [5] = "EIO", [23] = "EIO", [24] = "EIO", [30] = "EIO", [27] = "ENOSPC",
  [28] = "ENOSPC", [122] = "ENOSPC" }

-- Returns the status of an errno of the io library that reports a problem of the storage; else nil.
function errors.status_of(errno) return statuses[errno] end

-- Returns the error object for a disk that is too full for a planned write.
function errors.full(format, ...)
  local e = errors.new(errors.STORAGE, format, ...)
  e.status = "ENOSPC"
  return e
end

local advice = { -- the first that fits
  { "was moved, removed or replaced", "put it back" },
  { "file too large", "raise the limit of a file's size (ulimit -f)" },
  { "no space left", "free some space" }, { "quota exceeded", "free some space" } }

-- Raises an error about the storage of a run, with advice on how to continue.
function errors.storage(message)
  local help = "repair it"
  for i = #advice, 1, -1 do
    if message:lower():find(advice[i][1], 1, true) then help = advice[i][2] end
  end
  errors.raise(errors.STORAGE, "%s\nthe storage failed: %s and run the same command again",
    message, help)
end

return errors
