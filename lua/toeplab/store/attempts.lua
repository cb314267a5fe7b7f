-- store/attempts.lua: begins attempts at trials. A trial has at most one running attempt, even if
-- several runs share the results folder.
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

-- Returns why trial t can no longer be begun: the status that another process has given it since
-- this one looked, or "removed"; nil if it can. The second result is the last attempt's number.
local function why_taken(self, t)
  local status, row = self:status(t.id)
  if not row or row.trashed then return "removed" end
  if row.busy or alive.has_worker(self.folder, row) then return "running" end
  local ended = status ~= "queued" and status ~= "interrupted" and status ~= "running"
  local ended_since = ended and (row.attempt > (t.attempt or 0) or row.status == "done")
  return ended_since and status or nil, row.attempt
end

-- Stores the unread lines that a killed worker left in the journal of the last attempt at trial t.
local function store_rest(self, t)
  local row = self:rows("SELECT attempt FROM journals WHERE trial = ?", { t.id })[1]
  if not row then return end
  local last = { id = t.id, path = trial_files.folder(self.folder, t.id), attempt = row.attempt }
  self:take(last)
  self:end_journal(last)
end

-- Creates the journal of the next attempt at trial t by process pid, and returns its first line. If
-- a journal of that number exists, its run was killed before it stored the row, or the rows were
-- lost: the rows take over that attempt first. Returns nil and the result of why_taken if another
-- process was faster.
local function next_attempt(self, t, pid, about)
  local path = self:make_folder(t.id)
  while true do
    local why, last = why_taken(self, t)
    if not why then
      store_rest(self, t)
      why, last = why_taken(self, t)
    end
    if why then return nil, why end
    local attempt = last + 1
    local file = self.folder .. "/" .. journal.path(path, attempt)
    news.append(self, "begin", t.id, tostring(attempt))
    local line = { "begin", attempt, core.sys.now(), pid, t.code_hash, about, n = 6 }
    if journal.create(file, line) then return line end
    if not core.sys.exists(file) then return nil, "running" end -- not visible here yet (NFS)
    local first = journal.read(file, 0)[1]
    if first and first[1] == "begin" and first[2] == attempt then
      replay.apply(self, t.id, first)
    else
      replay.begin_lost(self, t.id, attempt)
    end
  end
end

-- Begins the next attempt at a trial, by process pid, and sets t.attempt to its number. Returns the
-- number, the seconds of earlier attempts, and the artifacts of the trial; nil and the result of
-- why_taken if another process was faster. Raises if an artifact is not a file of the trial.
function attempts.begin(self, t, pid)
  local p = config.copy(t.provenance)
  p.label, p.data = t.label, next(t.data) and t.data or nil
  p.process_start, p.key = process.start(pid), t.key ~= t.id and t.key or nil
  return self:transaction(function()
    if not self.run then self.run, self.run_lock = alive.enter(self.folder) end
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
