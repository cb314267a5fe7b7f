-- store/claims.lua: the files by which the tasks of array jobs, on any hosts of a cluster, divide
-- the trials of a sweep among themselves. They lie in the results folder:
--   claims/ID12-K          who runs attempt K at a trial
--   claims/ID12-K.STATUS   how this attempt ended: done, failed or interrupted
--
-- A claim appears by link(2), so that of several tasks one gets it, on NFS too, where neither locks
-- nor O_EXCL of old servers can be relied on. Attempts are numbered: once attempt K + 1 is claimed,
-- the holder of attempt K has lost the trial, e.g. because Slurm gave its node up. So it has once
-- its claim is gone; an ending without a claim, which it may still write then, counts for nothing.
local core = require "toeplab.core"
local process = require "toeplab.base.process"
local journal = require "toeplab.store.journal"
local temporary = require "toeplab.base.temporary"
local trial_files = require "toeplab.store.trial_files"

local claims = {}

local FOLDER = "claims"
local MOST = 9999 -- attempts at a trial; what has a larger number is no claim

-- Creates the folder of claims in the results folder root.
function claims.make(root) trial_files.make(root, FOLDER) end

-- Returns whether there are claims in the results folder root. Temporary files do not count.
function claims.any(root)
  for _, name in ipairs(trial_files.plain(root, FOLDER)) do
    if name:sub(1, 1) ~= "." then return true end
  end
  return false
end

-- Returns the part of the id of a trial by which claims name it.
function claims.short(id) return id:sub(1, 12) end

local function path_of(root, id, attempt, status)
  return ("%s/%s/%s-%d%s"):format(root, FOLDER, claims.short(id), attempt,
    status and "." .. status or "")
end

-- Returns what the name of a file says: the short id of the trial, the attempt, the status of an
-- ending (nil: it is a claim), and the name of the claim. nil if it is neither claim nor ending.
local function parse(name)
  local claim, status = name:match "^(%x+%-%d+)%.?(%l*)$"
  local id, number = (claim or ""):match "^(%x+)%-(%d+)$"
  local attempt = math.tointeger(tonumber(number))
  if not attempt or attempt > MOST or #id ~= 12 then return nil end
  return id, attempt, status ~= "" and status or nil, claim
end

-- Reads the latest state of all claims: the short id of a trial -> {attempt= (the last one),
-- ends= {attempt -> status of those that have ended}, first= (the first attempt)}.
function claims.list(root)
  local found, last = {}, nil -- last: the claim before, which its endings follow: names are sorted
  for _, name in ipairs(trial_files.plain(root, FOLDER)) do
    local id, attempt, status, claim = parse(name)
    if id and not status then
      local one = found[id] or { attempt = 0, first = math.huge, ends = {} }
      found[id], last = one, name
      one.attempt, one.first = math.max(one.attempt, attempt), math.min(one.first, attempt)
    elseif id and claim == last then
      -- A task that was taken for dead may still have ended well, and the attempt then has two
      -- endings. The first name counts: done, failed, interrupted.
      found[id].ends[attempt] = found[id].ends[attempt] or status
    end
  end
  return found
end

-- Claims an attempt at trial id for the task that `by` describes: {job=, task= (its
-- number), restarts=, host=, pid=, started=, code= (a hash), provenance= (JSON), process_start=
-- (process.start, or nil)}. Returns whether it got it.
function claims.take(root, id, attempt, by)
  return journal.create(path_of(root, id, attempt), { "claim", id, by.job, by.task,
    by.restarts, by.host, by.pid, by.started, by.code, by.provenance, by.process_start, n = 11 })
end

local function only_line(path)
  local line = journal.read(path, 0)[1]
  return line and line.n >= 2 and line or nil
end

-- Returns what a claim says, with id; nil if it cannot be read.
function claims.read(root, short, attempt)
  local line = only_line(path_of(root, short, attempt))
  if not line or line[1] ~= "claim" or not trial_files.is_id(line[2])
    or claims.short(line[2]) ~= short then
    return nil
  end
  return { id = line[2], job = line[3], task = line[4], restarts = line[5], host = line[6],
    pid = line[7], started = line[8], code = line[9], provenance = line[10],
    process_start = line[11] }
end

-- Takes a claim back.
function claims.drop(root, id, attempt) core.sys.remove(path_of(root, id, attempt)) end

-- Records how an attempt ended: status is done, failed or interrupted, why a message or nil, ended
-- as in the journal, at the time. The first record of a status counts.
function claims.finish(root, id, attempt, status, why, ended, at)
  journal.create(path_of(root, id, attempt, status), { "end", status, why, ended, at, n = 5 })
end

-- Returns the record of claims.finish: {status=, why=, ended=, at=}; nil if it cannot be read.
function claims.ending(root, short, attempt, status)
  local line = only_line(path_of(root, short, attempt, status))
  return line and { status = line[2], why = line[3], ended = line[4], at = line[5] }
end

local GONE = { [2] = true, [116] = true } -- ENOENT, ESTALE

-- Returns whether the file at path, which was there once, still is. The client of an NFS server
-- asks it when a file is opened, whereas it may answer a question like core.sys.exists by what it
-- knew a minute ago.
function claims.is_there(path)
  local file <close>, _, code = io.open(path, "rb")
  return file ~= nil or not GONE[code]
end

-- Returns whether an attempt at trial id is still claimed, and the last one.
function claims.holds(root, id, attempt)
  return claims.is_there(path_of(root, id, attempt))
    and not core.sys.exists(path_of(root, id, attempt + 1))
end

-- Deletes all claims of a trial, of each attempt the claim before its endings: they count for
-- nothing without it, whereas a claim without an ending is one that is held.
function claims.remove(root, short, one)
  for attempt = one.first, one.attempt do
    core.sys.remove(path_of(root, short, attempt))
    for _, status in ipairs { "done", "failed", "interrupted" } do
      core.sys.remove(path_of(root, short, attempt, status))
    end
  end
end

-- Deletes the endings without a claim of all trials but those in the set kept (of short ids), and
-- the temporary files of processes that have died; if kept is empty, all temporary files, since
-- nobody is at work who may claim anything.
function claims.remove_orphans(root, kept)
  for _, name in ipairs(trial_files.plain(root, FOLDER)) do
    local id, attempt, status = parse(name)
    local host, pid = temporary.owner(name)
    if host and (not next(kept) or process.has_died(host, pid)) then
      core.sys.remove(("%s/%s/%s"):format(root, FOLDER, name))
    end
    if status and not kept[id] and not core.sys.exists(path_of(root, id, attempt)) then
      core.sys.remove(path_of(root, id, attempt, status))
    end
  end
end

-- ---- What earlier attempts have done ------------------------------------------------------------

local apply = {}

function apply.artifact(state, kind, step, path, bytes, sha256)
  apply.drop(state, path)
  for i = #state.artifacts, 1, -1 do
    local a = state.artifacts[i]
    if a.kind == kind and a.step == step then table.remove(state.artifacts, i) end
  end
  table.insert(state.artifacts, { kind = kind, step = step, path = path, bytes = bytes,
    sha256 = sha256 })
end

function apply.drop(state, path)
  for i = #state.artifacts, 1, -1 do
    if state.artifacts[i].path == path then table.remove(state.artifacts, i) end
  end
end

function apply.forget(state, step)
  for i = #state.artifacts, 1, -1 do
    if state.artifacts[i].step > step then table.remove(state.artifacts, i) end
  end
  state.step = step
end

function apply.step(state, step, seconds) state.step, state.seconds = step, seconds end

apply["end"] = function(state, status, why, ended, seconds)
  state.status, state.why, state.ended, state.seconds = status, why, ended, seconds
end

-- Applies a line of a journal to state: {artifacts=, step=, seconds=}, and, once a line says how
-- the attempt ended, status, why and ended.
function claims.apply(state, line)
  local act = apply[line[1]]
  if act then act(state, table.unpack(line, 2, line.n)) end
end

-- Applies to state what the journals of attempts from `first` to `last` of the trial at path (its
-- folder within root) say. The store need not have read them yet.
function claims.replay(root, path, first, last, state)
  for attempt = first, last do
    local file, offset, lines = root .. "/" .. journal.path(path, attempt), 0, nil
    state.status = nil
    repeat
      lines, offset = journal.read(file, offset)
      for _, line in ipairs(lines) do claims.apply(state, line) end
    until #lines == 0
  end
  return state
end

return claims
