-- store/alive.lua: checks whether a process still runs a trial. It tests the locks of files: a lock
-- ends with its process, whereas pids and host names are reused:
--   at-work/HOST.PID-TIME   locked by a run that has begun trials
--   runs/ID12/events-K.jnl  locked by the worker of attempt K (journal.lua)
-- Rows of earlier versions name a process, but not a run.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local journal = require "toeplab.store.journal"
local process = require "toeplab.base.process"
local trial_files = require "toeplab.store.trial_files"

local alive = {}

local FOLDER = "at-work"

-- The columns of trials that the functions below need in addition to id.
alive.COLUMNS = [[attempt, status, host, pid,
  provenance ->> '$.process_start' AS process_start, provenance ->> '$.run' AS run]]

-- ---- Runs -------------------------------------------------------------------------------------

-- Registers this process as a run. Returns the name of the run and its locked file, which
-- alive.leave takes. Removes the files of killed runs. The caller must hold the lock of the store:
-- otherwise another process could remove the new file before it is locked.
function alive.enter(root)
  local folder = trial_files.make(root, FOLDER)
  for _, name in ipairs(trial_files.plain(root, FOLDER)) do
    local path = folder .. "/" .. name
    if not journal.in_use(path) then core.sys.remove(path) end
  end
  local name = ("%s.%d-%d"):format(core.sys.hostname(), core.sys.getpid(),
    math.floor(core.sys.now() * 1000))
  local file = errors.stored(io.open(folder .. "/" .. name, "wb"))
  journal.lock(file, name)
  return name, file
end

function alive.leave(root, name, file)
  core.sys.remove(("%s/%s/%s"):format(root, FOLDER, name))
  file:close()
end

-- ---- Trials -----------------------------------------------------------------------------------

-- Returns whether the run that marked a trial as running still runs. row: id and COLUMNS.
function alive.has_run(root, row)
  if row.status ~= "running" then return false end
  if row.run then
    return not row.run:find "/" and journal.in_use(("%s/%s/%s"):format(root, FOLDER, row.run))
  end
  return row.host == core.sys.hostname()
    and not process.has_died(row.host, row.pid, row.process_start)
end

-- Returns whether a worker is running the last attempt at a trial.
function alive.has_worker(root, row)
  if row.attempt == 0 then return false end
  local path = journal.path(trial_files.folder(root, row.id), row.attempt)
  return journal.in_use(root .. "/" .. path)
end

-- Returns whether a process may still run a trial. True also if its process belongs to another
-- machine and cannot be checked.
function alive.possibly(root, row)
  if alive.has_run(root, row) or alive.has_worker(root, row) then return true end
  return row.status == "running" and not row.run
    and not process.has_died(row.host, row.pid, row.process_start)
end

return alive
