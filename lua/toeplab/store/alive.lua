-- store/alive.lua: tells whether processes still see to a trial: by locks, which end with their
-- processes, whatever the numbers of these are and the names of their hosts:
--   at-work/HOST.PID-TIME   of a run that has begun trials
--   runs/ID12/events-K.jnl  of the worker that makes attempt K (journal.lua)
-- Rows that an earlier version wrote name a process and no run.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local journal = require "toeplab.store.journal"
local process = require "toeplab.base.process"
local trial_files = require "toeplab.store.trial_files"

local alive = {}

local FOLDER = "at-work"

-- The columns of trials that the functions below need, besides id.
alive.COLUMNS = [[attempt, status, host, pid,
  provenance ->> '$.process_start' AS process_start, provenance ->> '$.run' AS run]]

-- ---- Runs -------------------------------------------------------------------------------------

-- Returns the name by which this process says that it runs trials, and the open file that says so
-- until alive.leave. Removes the files of runs that were killed. The caller holds the store, so
-- that nobody takes a file for one of these before it is locked.
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

-- Returns whether the run lives that marked a trial as running. row: id and COLUMNS.
function alive.has_run(root, row)
  if row.status ~= "running" then return false end
  if row.run then
    return not row.run:find "/" and journal.in_use(("%s/%s/%s"):format(root, FOLDER, row.run))
  end
  return row.host == core.sys.hostname()
    and not process.has_died(row.host, row.pid, row.process_start)
end

-- Returns whether a worker makes the last attempt at a trial.
function alive.has_worker(root, row)
  if row.attempt == 0 then return false end
  local path = journal.path(trial_files.folder(root, row.id), row.attempt)
  return journal.in_use(root .. "/" .. path)
end

-- Returns whether any process may still see to a trial: also one of another machine of which
-- nothing is known.
function alive.possibly(root, row)
  if alive.has_run(root, row) or alive.has_worker(root, row) then return true end
  return row.status == "running" and not row.run
    and not process.has_died(row.host, row.pid, row.process_start)
end

return alive
