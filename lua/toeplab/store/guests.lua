-- store/guests.lua: the runs that are at work beside the one that holds the store (guests of it).
-- A guest never writes to the store: it claims its trials as the tasks of array jobs do
-- (claims.lua), and takeover.lua copies what they log. FOLDER/guests/HOST.PID lists the trials of a
-- guest, an id a line, so that no other run takes them. The holder of the store writes it
-- (changes.enlist), so of two guests that ask for the same trial one gets it.
local claims = require "toeplab.store.claims"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local process = require "toeplab.base.process"
local takeover = require "toeplab.store.takeover"
local trial_files = require "toeplab.store.trial_files"

local guests = {}

local FOLDER = "guests"

-- Records that this process runs no trials any more.
function guests.leave(root)
  core.sys.remove(("%s/%s/%s.%d"):format(root, FOLDER, core.sys.hostname(), core.sys.getpid()))
end

-- Returns the trials of all guests that live: id -> {host=, pid=}; and the files, relative to the
-- results folder, of those that have died.
function guests.trials(root)
  local set, dead = {}, {}
  for _, name in ipairs(trial_files.plain(root, FOLDER)) do
    local host, pid = name:match "^([^.].*)%.(%d+)$"
    local path = FOLDER .. "/" .. name
    if host and process.has_died(host, pid) then
      dead[#dead + 1] = path
    elseif host then
      for id in (core.sys.read_file(root .. "/" .. path) or ""):gmatch "[^\n]+" do
        set[id] = { host = host, pid = pid }
      end
    end
  end
  return set, dead
end

-- Records that process pid on host runs the trials of ids, and removes what dead guests have left.
function guests.enter(root, host, pid, ids)
  if math.type(pid) ~= "integer" or not tostring(host):find "^[%w_-][%w_.-]*$" then
    errors.usage("%s, process %s: this is not a process of a machine", host, pid)
  end
  local _, dead = guests.trials(root)
  for _, name in ipairs(dead) do core.sys.remove(root .. "/" .. name) end
  local path = ("%s/%s.%d"):format(trial_files.make(root, FOLDER), host, pid)
  errors.stored(core.sys.write_file(path, table.concat(ids, "\n") .. "\n"))
end

-- Returns in words which of the trials of ids a guest runs; nil if none does.
function guests.taken(root, ids)
  local set = guests.trials(root)
  for _, id in ipairs(ids) do
    local by = set[id]
    if by then
      return ("process %s on %s runs trial %s (%s/%s.%s says so; remove that file if the process "
        .. "is gone)"):format(by.pid, by.host, claims.short(id), FOLDER, by.host, by.pid)
    end
  end
end

-- Raises if a guest runs one of the trials of list ({id=} each).
function guests.check(root, list)
  local ids = {}
  for i, t in ipairs(list) do ids[i] = t.id end
  local taken = guests.taken(root, ids)
  if taken then errors.raise(errors.LOCKED, "%s: %s", root, taken) end
end

-- Returns whether the guest that made a claim lives; nil if a task of an array job made it.
function guests.is_alive(claim)
  if claim.job ~= claims.GUEST then return nil end
  return not process.has_died(claim.host, claim.pid, claim.process_start)
end

-- Returns whether the store holds all of attempt `attempt` at trial id.
function guests.is_stored(store, id, attempt)
  local row = store:rows([[SELECT attempt, EXISTS (SELECT 1 FROM journals WHERE trial = ?1) AS open
    FROM trials WHERE id = ?1]], { id })[1]
  return row ~= nil and row.attempt >= attempt and row.open == 0
end

-- Copies what guests have written so far into the store, opened for writing.
function guests.take_over(store, warn)
  takeover.run(store, guests.is_alive, warn)
end

return guests
