-- store/replay.lua: applies the records in the files of a trial to its rows in runs.db.
--
-- The files are the truth. The rows are made from them during a run (records.lua), or all at once
-- if runs.db is missing or damaged (rebuild.lua). The worker of attempt K writes events-K.jnl.
-- Other processes append to marks.jnl; each of these records applies after the attempt that it
-- names. journal.lua lists the kinds of lines.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local journal = require "toeplab.store.journal"
local trial_files = require "toeplab.store.trial_files"

local replay = {}

-- ---- The journal of an attempt ----------------------------------------------------------------

-- One function per kind of line, which updates the rows of trial id; self: the Records.
local lines = {}

-- From here on, the code with this hash runs the trial. If different code made the checkpoint from
-- which the trial continues, adds an event.
function lines.code(self, id, hash, at)
  local row = self:rows("SELECT step, code_hash FROM trials WHERE id = ?", { id })[1]
  if row.code_hash == hash then return end
  if (row.step or 0) > 0 then
    lines.event(self, id, row.step, "code", ("by code %s up to this step, by %s from here on")
      :format(row.code_hash:sub(1, 12), hash:sub(1, 12)), at)
  end
  self:rows("UPDATE trials SET code_hash = ? WHERE id = ?", { hash, id })
end

function lines.begin(self, id, attempt, started, pid, code, provenance)
  lines.code(self, id, code, started)
  self:rows([[UPDATE trials SET status = 'running', ended = NULL, attempt = ?2, started = ?3,
    finished = NULL, error = NULL, pid = ?4, host = ?5 ->> '$.host', command = ?5 ->> '$.command',
    git_commit = ?5 ->> '$.commit', git_dirty = ?5 ->> '$.dirty', provenance = ?5 WHERE id = ?1]],
    { id, attempt, started, pid, provenance, n = 5 })
  self:rows([[INSERT INTO journals VALUES (?, ?, 0)
    ON CONFLICT (trial) DO UPDATE SET attempt = excluded.attempt, bytes = 0]], { id, attempt })
end

-- Begins an attempt whose first record is damaged: the time of its start is unknown, and only the
-- lock of its worker shows whether it still runs.
function replay.begin_lost(self, id, attempt)
  local row = self:rows([[SELECT created, code_hash,
    json_set(provenance, '$.run', 'unknown') AS provenance FROM trials WHERE id = ?]], { id })[1]
  lines.begin(self, id, attempt, row.created, nil, row.code_hash, row.provenance)
end

function lines.metric(self, id, step, name, value, at)
  self:rows([[INSERT INTO metrics (trial, name, step, value, at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (trial, name, step) DO UPDATE SET value = excluded.value, at = excluded.at]],
    { id, name, step, value, at, n = 5 })
  self:rows([[INSERT INTO last VALUES (?, ?, ?, ?) ON CONFLICT (trial, name)
    DO UPDATE SET step = excluded.step, value = excluded.value WHERE excluded.step >= step]],
    { id, name, step, value, n = 4 })
end

function lines.artifact(self, id, kind, step, path, bytes, sha256, at)
  self:rows([[INSERT OR REPLACE INTO artifacts (trial, kind, step, path, bytes, sha256, created)
    VALUES (?, ?, ?, ?, ?, ?, ?)]], { id, kind, step, path, bytes, sha256, at or core.sys.now() })
end

function lines.drop(self, id, path)
  self:rows("DELETE FROM artifacts WHERE trial = ? AND path = ?", { id, path })
end

function lines.step(self, id, step, seconds)
  self:rows("UPDATE trials SET step = ?, seconds = ? WHERE id = ?", { step, seconds, id, n = 3 })
end

function lines.forget(self, id, step)
  self:rows("DELETE FROM metrics WHERE trial = ? AND coalesce(at, step) > ?", { id, step })
  self:rows("DELETE FROM last WHERE trial = ?", { id })
  self:rows([[INSERT INTO last SELECT trial, name, max(step), value FROM metrics WHERE trial = ?
    GROUP BY name]], { id })
  self:rows("DELETE FROM artifacts WHERE trial = ? AND step > ?", { id, step })
  self:rows("UPDATE trials SET step = ? WHERE id = ?", { step, id })
end

-- Stores an event once: a trial that resumes from before the event repeats it in the same words.
-- step: nil for the trial's saved step.
function lines.event(self, id, step, kind, text, at)
  self:rows([[INSERT INTO events (trial, step, kind, text, created)
    SELECT id, coalesce(?2, step, 0) AS at, ?3, ?4, ?5 FROM trials WHERE id = ?1
    AND NOT EXISTS (SELECT 1 FROM events WHERE trial = ?1 AND events.step = at AND kind = ?3
    AND text = ?4)]], { id, step, kind, text, at or core.sys.now(), n = 5 })
end

lines["end"] = function(self, id, status, why, ended, seconds, at)
  self:rows([[UPDATE trials SET status = ?, error = ?, ended = ?, seconds = coalesce(?, seconds),
    finished = ? WHERE id = ?]], { status, why, ended, seconds, at, id, n = 6 })
end

-- Applies a line of a journal to the rows of trial id.
function replay.apply(self, id, line)
  local act = lines[line[1]]
  if act then act(self, id, table.unpack(line, 2, line.n)) end
end

-- ---- Marks ------------------------------------------------------------------------------------

local marks = {}

function marks.marks(self, id, _, tags, notes)
  self:rows("UPDATE trials SET tags = ?, notes = ? WHERE id = ?", { tags, notes, id })
end

function marks.trash(self, id, _, since)
  self:rows("UPDATE trials SET trashed = ? WHERE id = ?", { since, id })
end

function marks.restore(self, id)
  self:rows("UPDATE trials SET trashed = NULL WHERE id = ?", { id })
end

-- The trial is to run again.
function marks.queue(self, id)
  self:rows([[UPDATE trials SET status = 'queued', ended = NULL, error = NULL, finished = NULL
    WHERE id = ?]], { id })
end

-- The trial is to run again from its start. Deletes the rows of its metrics, artifacts and events
-- (the files are deleted when it starts): an old verdict of the pruner or an old rollback must not
-- affect the new run. Keeps tags and notes, and adds an event about the old run.
function marks.redo(self, id, at)
  self:rows("DELETE FROM events WHERE trial = ? AND kind <> 'redo'", { id })
  self:rows([[INSERT INTO events (trial, step, kind, text, created) SELECT id, coalesce(step, 0),
    'redo', coalesce(ended, status) || ' by code ' || substr(code_hash, 1, 12), ? FROM trials
    WHERE id = ?]], { at, id })
  for _, name in ipairs { "metrics", "last", "artifacts" } do
    self:rows(("DELETE FROM %s WHERE trial = ?"):format(name), { id })
  end
  self:rows("UPDATE trials SET step = NULL, seconds = NULL WHERE id = ?", { id })
  marks.queue(self, id)
end

-- The current script gives the trial another id, key. code: the parts of its code as JSON, which
-- older releases did not store; why: the change since its run.
function marks.adopt(self, id, at, key, code, why)
  self:rows([[UPDATE trials SET provenance = json_set(iif(?3 IS NULL, provenance,
    json_set(provenance, '$.code', json(?3))), '$.key', ?2) WHERE id = ?1]],
    { id, key, code, n = 3 })
  if why then lines.event(self, id, nil, "adopt", why, at) end
end

-- Another process records how the attempt ended. A worker that was considered dead may still write
-- its own end, which takes precedence.
marks["end"] = function(self, id, at, status, why, ended)
  local known = self:rows("SELECT status FROM trials WHERE id = ?", { id })[1].status
  if known == "done" or status == "interrupted" and known ~= "running" then return end
  lines["end"](self, id, status, why, ended, nil, at)
end

-- Returns the text of the event that asks an attempt to stop.
function replay.stop_text(attempt) return "attempt " .. attempt .. " was asked to stop" end

function marks.stop(self, id, at, attempt)
  lines.event(self, id, nil, "stop", replay.stop_text(attempt), at)
end

function marks.event(self, id, at, step, kind, text) lines.event(self, id, step, kind, text, at) end

function marks.artifact(self, id, at, kind, step, path, bytes, sha256)
  lines.artifact(self, id, kind, step, path, bytes, sha256, at)
end

-- Applies a line of marks.jnl {kind, attempt, time, ...} to the rows of trial id.
function replay.apply_mark(self, id, line)
  local act = marks[line[1]]
  if act then act(self, id, table.unpack(line, 3, line.n)) end
end

-- ---- A whole trial ----------------------------------------------------------------------------

-- Calls each(line) for the lines of the journal at path from an offset (nil: 0). past: as in
-- journal.read. Returns the offset after the last record, and why lines may be missing (nil: none
-- are).
local function read_all(path, each, offset, past)
  local damage, from, list, why = nil, nil, nil, nil
  offset = offset or 0
  repeat
    from = offset
    list, offset, why = journal.read(path, from, past)
    damage = damage or why
    for _, line in ipairs(list) do each(line) end
  until offset == from or damage and not past
  return offset, damage
end

-- Lists the attempts that have a journal among the names of files, in order.
local function attempts_of(names)
  local list, seen = {}, {}
  for _, name in ipairs(names) do
    local attempt = math.tointeger(tonumber(name:match "^events%-(%d+)%.jnl$"))
    if attempt and not seen[attempt] then list[#list + 1] = attempt end
    seen[attempt or 0] = true
  end
  table.sort(list)
  return list
end

-- Lists the names of the journals in the folder of a trial: marks.jnl, then attempts in order.
function replay.journals(folder)
  local list = { core.sys.exists(folder .. "/marks.jnl") and "marks.jnl" or nil }
  for _, attempt in ipairs(attempts_of(core.sys.list(folder) or {})) do
    list[#list + 1] = ("events-%d.jnl"):format(attempt)
  end
  return list
end

-- Returns the first and the last readable line of the journal at path, and why lines may be missing
-- (nil: none are).
function replay.ends(path)
  local first, last
  local _, damage = read_all(path, function(line) first, last = first or line, line end, 0, true)
  return first, last, damage
end

-- Deletes the rows of a trial.
function replay.delete(self, id)
  self:rows("DELETE FROM last WHERE trial = ?", { id })
  self:rows("DELETE FROM metrics WHERE trial = ?", { id })
  self:rows("DELETE FROM trials WHERE id = ?", { id })
end

-- Applies the journal at path of an attempt at trial id. last: whether it is the last attempt: then
-- stops at a damaged record, because the trial resumes from before it and logs the lost lines
-- again; unless the attempt is done. Returns the offset after the last record read, why lines may
-- be missing, and whether the attempt has ended.
local function apply_attempt(self, id, attempt, path, last)
  local begun, ended = false, false
  local function apply(line)
    if not begun and line[1] ~= "begin" then replay.begin_lost(self, id, attempt) end
    begun, ended = true, ended or line[1] == "end"
    replay.apply(self, id, line)
  end
  local offset, damage = read_all(path, apply)
  if damage then
    local _, final = replay.ends(path)
    local read_on = not last or final and final[1] == "end" and final[2] == "done"
    if read_on then offset = read_all(path, apply, offset, true) end
    if not begun then replay.begin_lost(self, id, attempt) end
  end
  return offset, damage, ended
end

-- Fills the rows of trial id, whose row its sweep's file has made, from the files in its folder.
-- last: the number of an attempt that is known to exist; a network file system may not list its
-- journal yet.
function replay.trial(self, id, last)
  local root, after, ended = trial_files.check_all(self.folder, id), {}, nil
  local function warn_of(name, damage)
    if damage then errors.say("%s/%s: %s; see `toeplab fsck`", root, name, damage) end
  end
  local function apply_marks(attempt)
    for _, line in ipairs(after[attempt] or {}) do
      replay.apply_mark(self, id, line)
      ended = ended or line[1] == "end"
    end
    after[attempt] = nil
  end
  local _, damage = read_all(root .. "/marks.jnl", function(line)
    local attempt = line[2]
    after[attempt] = after[attempt] or {}
    table.insert(after[attempt], line)
  end, 0, true)
  warn_of("marks.jnl", damage)
  apply_marks(0)
  local names = core.sys.list(root) or {}
  if last and last > 0 then names[#names + 1] = ("events-%d.jnl"):format(last) end
  local attempts = attempts_of(names)
  for i, attempt in ipairs(attempts) do
    local name, offset, why = ("events-%d.jnl"):format(attempt), nil, nil
    offset, why, ended = apply_attempt(self, id, attempt, root .. "/" .. name, i == #attempts)
    warn_of(name, why)
    self:rows("UPDATE journals SET bytes = ? WHERE trial = ?", { offset, id })
    apply_marks(attempt)
  end
  local row = self:rows("SELECT attempt, status FROM trials WHERE id = ?", { id })[1]
  for attempt = 1, row.attempt do apply_marks(attempt) end -- of attempts without a journal
  if ended then self:rows("DELETE FROM journals WHERE trial = ?", { id }) end
end

return replay
