-- store/attempts.lua: begins the attempts at trials, of which no two are made at a time, whatever
-- runs share the results folder.
local alive = require "toeplab.store.alive"
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local journal = require "toeplab.store.journal"
local json = require "toeplab.base.json"
local news = require "toeplab.store.news"
local process = require "toeplab.base.process"
local replay = require "toeplab.store.replay"
local trial_files = require "toeplab.store.trial_files"

local attempts = {}

-- Returns why trial t is not to be begun, though it was to be run when this process looked: its
-- status, which another process has given it since, or "removed"; nil if it is free. The second
-- result is the number of its last attempt.
local function taken(self, t)
  local status, row = self:status(t.id)
  if not row or row.trashed then return "removed" end
  if row.busy or alive.has_worker(self.folder, row) then return "running" end
  local over = status ~= "queued" and status ~= "interrupted" and status ~= "running"
  local passed = over and (row.attempt > (t.attempt or 0) or row.status == "done")
  return passed and status or nil, row.attempt
end

-- Reads what the killed worker of the last attempt at trial t has left in its journal.
local function take_rest(self, t)
  local row = self:rows("SELECT attempt FROM journals WHERE trial = ?", { t.id })[1]
  if not row then return end
  local last = { id = t.id, path = trial_files.folder(self.folder, t.id), attempt = row.attempt }
  self:take(last)
  self:end_journal(last)
end

-- Makes the journal of the next attempt at trial t in process pid, and returns its first line. What
-- a run that was killed in between, or one whose rows were lost, has begun becomes part of the rows
-- first. Returns nil and what taken returns if another process was faster.
local function next_attempt(self, t, pid, about)
  local path = self:make_folder(t.id)
  while true do
    local why, last = taken(self, t)
    if not why then
      take_rest(self, t)
      why, last = taken(self, t)
    end
    if why then return nil, why end
    local attempt = last + 1
    local file = self.folder .. "/" .. journal.path(path, attempt)
    news.tell(self, "begin", t.id, tostring(attempt))
    local line = { "begin", attempt, core.sys.now(), pid, t.code_hash, about, n = 6 }
    if journal.create(file, line) then return line end
    if not core.sys.exists(file) then return nil, "running" end -- a network shows it later
    local first = journal.read(file, 0)[1]
    if first and first[1] == "begin" and first[2] == attempt then
      replay.apply(self, t.id, first)
    else
      replay.begin_lost(self, t.id, attempt)
    end
  end
end

-- Begins the next attempt at a trial, in process pid, and sets t.attempt to its number. Returns it,
-- the seconds of earlier attempts, and the artifacts of the trial; nil and what taken returns if
-- another process was faster. Raises if one of the artifacts is not a file of the trial.
function attempts.begin(self, t, pid)
  local p = config.copy(t.provenance)
  p.label, p.data = t.label, next(t.data) and t.data or nil
  p.process_start, p.key = process.start(pid), t.key ~= t.id and t.key or nil
  return self:transaction(function()
    if not self.run then self.run, self.at_work = alive.enter(self.folder) end
    p.run = self.run
    trial_files.check_all(self.folder, t.id)
    local line, why = next_attempt(self, t, pid, json.encode(p))
    if not line then return nil, why end
    replay.apply(self, t.id, line)
    local bytes = #journal.record { line }
    self:rows("UPDATE journals SET bytes = ? WHERE trial = ?", { bytes, t.id })
    local row = self:rows("SELECT attempt, seconds FROM trials WHERE id = ?", { t.id })[1]
    local artifacts = self:rows([[SELECT kind, step, path, bytes, sha256 FROM artifacts
      WHERE trial = ?]], { t.id })
    for _, a in ipairs(artifacts) do trial_files.check_row(self.folder, t.id, a) end
    t.attempt, t.read, t.read_bytes = row.attempt, row.attempt, bytes
    return row.attempt, (row.seconds or 0) + 0.0, artifacts
  end)
end

return attempts
