-- store/requests.lua: lets a command change trials while a run is at work.
--
-- The run holds the lock of the store and is its only writer, because several writers on one
-- database in write-ahead mode can lose pages in the versions of SQLite that are in use. So another
-- process leaves its request as a file in FOLDER/requests, the run carries it out between two turns
-- of its loop, and answers by a second file:
--   HOST.PID-N.ask      a request, renamed to HOST.PID-N.taken by the run before it acts
--   HOST.PID-N.answer   what was done, or why not
-- A request that no run has taken is withdrawn by renaming it too, so that it is carried out once
-- at most. That of a process that has ended (by Ctrl-C, say) is removed: its user took it back, and
-- a run that begins days later must not carry it out.
local changes = require "toeplab.store.changes"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local json = require "toeplab.base.json"
local process = require "toeplab.base.process"
local records = require "toeplab.store.records"
local trial_files = require "toeplab.store.trial_files"

local requests = {}

local PATIENCE_SECONDS, PAUSE_SECONDS = 10, 0.02

local function write(path, value)
  local ok, why = core.sys.write_file(path, json.encode(value))
  if not ok then errors.raise(errors.STORAGE, "%s", why) end
end

-- ---- Asking -----------------------------------------------------------------------------------

local count = 0 -- requests of this process

-- Returns what the answer at path says; raises if that is an error.
local function answer_of(folder, path)
  local store <close> = records.open(folder, "r")
  local answer = store:decode(core.sys.read_file(path) or "null")
  core.sys.remove(path)
  if type(answer) ~= "table" then
    errors.raise(errors.STORAGE, "%s: the run at work has written no answer", path)
  end
  if answer.why then errors.raise(answer.code, "%s", answer.why) end
  return answer.done
end

-- Carries out the change of that name (changes.lua) in the results folder: by itself or, while a
-- run is at work there, through that run. Returns the change's result. Raises its errors, and that
-- the store is locked if its holder does not take requests.
function requests.perform(folder, change, arguments)
  count = count + 1
  local began, path, locked = core.sys.clock(), nil, nil
  repeat
    local store
    if path and core.sys.exists(path .. ".answer") then
      return answer_of(folder, path .. ".answer")
    end
    if not path or core.sys.exists(path .. ".ask") then
      store, locked = records.try_open(folder, "u")
    end
    if store then
      local guard <close> = store
      if not path or core.sys.rename(path .. ".ask", path .. ".taken") then
        if path then core.sys.remove(path .. ".taken") end
        return changes[change](store, arguments)
      end
    elseif not path then
      path = ("%s/%s.%d-%d"):format(trial_files.make(folder, "requests"), core.sys.hostname(),
        core.sys.getpid(), count)
      write(path .. ".ask", { change = change, arguments = arguments })
    end
    core.sys.sleep(PAUSE_SECONDS)
    errors.check_signals()
  until core.sys.clock() - began > PATIENCE_SECONDS
  core.sys.remove(path .. ".ask")
  error(locked, 0)
end

-- ---- Serving ----------------------------------------------------------------------------------

-- Carries out one request; returns the answer to write.
local function answered(store, text, run)
  local ok, result = pcall(function()
    local request = store:decode(text)
    local change = type(request) == "table" and changes[request.change]
    if not change or type(request.arguments) ~= "table" then
      errors.usage("this is not a request of this program: %s", text:sub(1, 200))
    end
    return change(store, request.arguments, run())
  end)
  if ok then return { done = result } end
  if errors.is(result) then return { why = result.message, code = result.code } end
  return { why = errors.text(result), code = errors.FAILED }
end

-- Returns the text of a file; "" if it is no plain file, but a link out of the folder.
local function plain_text(path)
  local kind, link = core.sys.kind(path)
  return kind == "file" and not link and core.sys.read_file(path) or ""
end

-- Carries out the requests in the folder of the store, and removes those, and answers, of processes
-- that have ended. run: a function that returns what changes.lua needs to know of the run.
function requests.serve(store, run)
  local folder = store.folder .. "/requests"
  local kind, link = core.sys.kind(folder)
  for _, name in ipairs(kind == "folder" and not link and core.sys.list(folder) or {}) do
    local base, host, pid, what = name:match "^((.+)%.(%d+)%-%d+)%.(%l+)$"
    local path = base and folder .. "/" .. base
    if base and process.has_died(host, pid) then
      core.sys.remove(path .. "." .. what)
    elseif what == "ask" and core.sys.rename(path .. ".ask", path .. ".taken") then
      local answer = answered(store, plain_text(path .. ".taken"), run)
      local ok, why = core.sys.write_file(path .. ".answer", json.encode(answer))
      -- The run goes on: who asked says after a while that there is no answer.
      if not ok then errors.say("warning: a request is not answered: %s", why) end
      core.sys.remove(path .. ".taken")
    end
  end
end

return requests
