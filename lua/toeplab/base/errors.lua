-- base/errors.lua: the exit codes of the program, and errors that end it with one of them and one
-- clear line.
local core = require "toeplab.core"
local json = require "toeplab.base.json"

local errors = {
  DONE = 0, FAILED = 1, USAGE = 2, BUDGET = 3, CHECK = 4, LOCKED = 5, STORAGE = 6,
  HANGUP = 129, INTERRUPT = 130, TERMINATE = 143,
}

local Stop = { __name = "stop", __tostring = function(e) return e.message end }

-- The error object that commands/init.lua turns into "toeplab: MESSAGE" and the exit code.
function errors.new(code, format, ...)
  local message = select("#", ...) > 0 and format:format(...) or format
  return setmetatable({ code = code, message = message }, Stop)
end

function errors.raise(...) error(errors.new(...), 0) end

function errors.usage(format, ...) errors.raise(errors.USAGE, format, ...) end

-- A line on stderr, clean.
function errors.say(format, ...)
  io.stderr:write(core.sys.clean(select("#", ...) > 0 and format:format(...) or format), "\n")
end

function errors.is(e) return getmetatable(e) == Stop end

local folder = (package.searchpath("toeplab", package.path) or ""):match "^(.*/)[^/]*$" or ""

-- An error text without the places in the library that it passed through; what a script's author
-- needs is the place in the script. TOEPLAB_TRACEBACK keeps them.
function errors.plain(message)
  if folder == "" or os.getenv("TOEPLAB_TRACEBACK") then return message end
  local place = folder:gsub("%p", "%%%0") .. "[%w_/%-]+%.lua:%d+: "
  return (message:gsub(place, ""))
end

-- Whatever error raised as text: a table that cannot say itself as its content.
function errors.text(e)
  local speaks = type(e) ~= "table" or (getmetatable(e) or {}).__tostring
  if speaks then return errors.plain(tostring(e)) end
  if type(e.message) == "string" then return errors.plain(e.message) end
  local ok, text = pcall(json.encode, e)
  return "an error object " .. (ok and text or tostring(e))
end

local signals = { INT = errors.INTERRUPT, TERM = errors.TERMINATE, USR1 = errors.TERMINATE,
  USR2 = errors.TERMINATE, HUP = errors.HANGUP }

-- The signal that asks this process to end, "INT" or another, and its exit code; nil: none came.
function errors.signal()
  local count, name = core.sys.interrupted()
  name = name or count > 0 and "INT" or nil
  return name, signals[name]
end

local problems = { ENOSPC = "full", EIO = "damaged", ECORRUPT = "damaged" }

-- "full" or "damaged" if an error of the engine, or its status, says so of the storage, else nil.
function errors.storage_problem(e)
  return problems[type(e) == "table" and rawget(e, "status") or e]
end

local advice = { ["No space"] = "free some space", ["too large"] = "free some space",
  quota = "free some space", ["was moved, removed or replaced"] = "put it back" }

-- Raises what is wrong with the storage of a run, with what to do about it.
function errors.storage(message)
  local help = "repair it"
  for words, text in pairs(advice) do
    if message:find(words, 1, true) then help = text end
  end
  errors.raise(errors.STORAGE, "%s\nthe storage failed: %s and give the same command again",
    message,
    help)
end

return errors
