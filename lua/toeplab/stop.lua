-- stop.lua: the exit codes of the program, and errors that end it with one of them and one clear
-- line.
local core = require "toeplab.core"
local json = require "toeplab.json"

local stop = {
  DONE = 0, FAILED = 1, USAGE = 2, BUDGET = 3, CHECK = 4, LOCKED = 5, STORAGE = 6,
  HANGUP = 129, INTERRUPT = 130, TERMINATE = 143,
}

local Stop = { __name = "stop", __tostring = function(e) return e.message end }

-- The error object that commands/init.lua turns into "toeplab: MESSAGE" and the exit code.
function stop.new(code, format, ...)
  local message = select("#", ...) > 0 and format:format(...) or format
  return setmetatable({ code = code, message = message }, Stop)
end

function stop.raise(...) error(stop.new(...), 0) end

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

-- Whatever error raised as text: a table that cannot say itself as its content.
function stop.text(e)
  local speaks = type(e) ~= "table" or (getmetatable(e) or {}).__tostring
  if speaks then return stop.plain(tostring(e)) end
  if type(e.message) == "string" then return stop.plain(e.message) end
  local ok, text = pcall(json.encode, e)
  return "an error object " .. (ok and text or tostring(e))
end

local signals = { INT = stop.INTERRUPT, TERM = stop.TERMINATE, USR1 = stop.TERMINATE,
  USR2 = stop.TERMINATE, HUP = stop.HANGUP }

-- The signal that asks this process to end, "INT" or another, and its exit code; nil: none came.
function stop.signal()
  local count, name = core.sys.interrupted()
  name = name or count > 0 and "INT" or nil
  return name, signals[name]
end

local problems = { ENOSPC = "full", EIO = "damaged", ECORRUPT = "damaged" }

-- "full" or "damaged" if an error of the engine, or its status, says so of the storage, else nil.
function stop.storage_problem(e)
  return problems[type(e) == "table" and rawget(e, "status") or e]
end

return stop
