-- store/records.lua: reads and writes the rows of trials in the store of runs; the runner uses
-- SQLite only through this file.
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local journal = require "toeplab.store.journal"
local json = require "toeplab.base.json"
local process = require "toeplab.base.process"
local secrets = require "toeplab.base.secrets"
local shell = require "toeplab.base.shell"
local errors = require "toeplab.base.errors"
local rebuild = require "toeplab.store.rebuild"
local replay = require "toeplab.store.replay"
local trial_files = require "toeplab.store.trial_files"
local written = require "toeplab.store.written"

local records = {}
local Records = {}
Records.__index = Records

-- Returns the results folder: the given one, else TOEPLAB_DIR, else "results".
function records.folder(given)
  if given == "" then errors.usage("-C: the name of the folder is empty") end
  local set = os.getenv("TOEPLAB_DIR")
  local folder = given or (set ~= "" and set) or "results"
  local ok, why, status = core.store_check_folder(folder)
  if not ok and status == "EINVAL" then errors.usage("%s", why) end
  return folder
end

local function wrap(store, folder)
  return setmetatable({ store = store, folder = folder }, Records)
end

-- Makes runs.db from the files of the folder if it is missing or empty.
local function ensure(folder)
  local path = folder .. "/runs.db"
  local empty = core.sys.size(path) == 0 and not core.sys.exists(path .. "-wal")
  if (empty or not core.sys.exists(path)) and rebuild.possible(folder) then
    core.sys.remove(path)
    rebuild.ensure(folder, wrap)
  end
end

-- Opens the store of the engine in a mode of records.open, and returns what that does. The database
-- may be removed at any moment, also now.
local function connect(folder, mode)
  local store, message, status
  for _ = 1, 10 do
    ensure(folder)
    trial_files.check_store(folder, mode)
    store, message, status = core.store(folder, mode == "u" and "w" or mode)
    if store or core.sys.exists(folder .. "/runs.db") then break end
  end
  return store, message, status
end

-- Opens the store in folder for reading ("r"), for the user's own queries ("ask"), for changes of
-- an existing store ("u"), or for writing ("w"), which creates it if necessary. Raises with the
-- matching exit code.
function records.open(folder, mode)
  local store, message, status = connect(folder, mode)
  if not store then
    if status == "ELOCKED" then
      errors.raise(errors.LOCKED, "%s (toeplab status shows how far it is; -C DIR takes another "
        .. "folder)", message)
    end
    local old = message:match "schema version (%d+) is old"
    local problem = errors.new(errors.STORAGE, "%s%s", message, old and ("; without a run, toeplab "
      .. "fsck --repair -C %s does, and keeps a copy, runs.db.v%s"):format(shell.quote(folder), old)
      or "")
    problem.status, problem.old = status, old ~= nil
    error(problem, 0)
  end
  local self = wrap(store, folder)
  if mode == "w" or mode == "u" then
    local ok, why = pcall(written.all, self)
    if not ok then
      self:close()
      if errors.is(why) then error(why, 0) end
      local problem = errors.new(errors.code_of(why), "%s", errors.text(why))
      problem.status = type(why) == "table" and rawget(why, "status") or nil
      error(problem, 0)
    end
  end
  return self
end

-- Makes runs.db of a folder anew from its files, as rebuild.replace does.
function records.rebuild(folder) return rebuild.replace(folder, wrap) end

-- Between hold() and live(), all that is read is of one moment, whatever a run or another command
-- writes meanwhile. The file of the database's log grows as long.
function Records:hold() self.store:exec "BEGIN" end

function Records:live() self.store:exec "COMMIT" end

-- Opens the store for reading what it holds at one moment.
function records.snapshot(folder)
  local self = records.open(folder, "r")
  self:hold()
  return self
end

-- Opens the store as records.open does; nil and the error if another process holds its lock.
function records.try_open(folder, mode)
  local ok, store = pcall(records.open, folder, mode)
  if ok then return store end
  if not errors.is(store) or store.code ~= errors.LOCKED then error(store, 0) end
  return nil, store
end

-- Whether value is an open store of this file.
function records.is(value) return getmetatable(value) == Records end

function Records:close() self.store:close() end

-- Raises if the folder no longer holds the files that this store writes to. A database that was
-- removed is made again.
function Records:check()
  local ok, why = pcall(self.store.check, self.store)
  if ok or core.sys.exists(self.folder .. "/runs.db") or not rebuild.possible(self.folder) then
    return errors.stored(ok, why)
  end
  self.store:close()
  self.store = errors.stored(connect(self.folder, "w"))
end

Records.__close = Records.close

-- Runs fn() in one transaction: a new one, or that of the caller.
function Records:transaction(fn)
  if self.inside then return fn() end
  self.store:exec("BEGIN IMMEDIATE")
  self.inside = true
  local ok, result = pcall(fn)
  self.inside = nil
  if not ok then
    pcall(self.store.exec, self.store, "ROLLBACK")
    error(result, 0)
  end
  self.store:exec("COMMIT")
  return result
end

-- Returns the rows of a query. params: a list, which needs a field n if it contains nil.
function Records:rows(sql, params)
  return self.store:exec(sql, params or {})
end

-- Calls fn for each row of a query, of which any number need not fit into memory.
function Records:each(sql, params, fn) self.store:each(sql, params, fn) end

-- Parses the JSON text of a configuration into a Lua table.
function Records:config(text)
  local value = self:decode(text)
  if type(value) == "table" then return value end
  errors.raise(errors.STORAGE, "%s/runs.db: this is not a configuration: %s", self.folder,
    text:sub(1, 200))
end

-- The Lua types that these members of stored JSON objects must have, where they occur; none of them
-- may hold tables in tables.
local members = { label = "string", environment = "table", build = "table", data = "table",
  overrides = "table", axes = "table", columns = "table", rows = "table|string", trials = "number",
  answers = "table|string", tuned = "string", changes = "string", rule = "string",
  with = "table", metric = "string", better = "table" }

-- Parses the JSON text of an object into a Lua table by SQLite; raises if it is none, or has
-- members of wrong types.
function Records:object(text)
  local value = self:decode(text)
  local good = type(value) == "table"
  for name, kind in pairs(good and members or {}) do
    good = good and (value[name] == nil or kind:find(type(value[name]), 1, true) ~= nil)
    for _, v in pairs(good and type(value[name]) == "table" and value[name] or {}) do
      good = good and type(v) ~= "table"
    end
  end
  if good then return value end
  errors.raise(errors.STORAGE, "%s/runs.db: this is not an object of this program: %s", self.folder,
    text:sub(1, 200))
end

-- Parses JSON text into a Lua value by SQLite; objects and arrays become tables.
function Records:decode(text)
  local nodes, root = {}, nil
  local sql = "SELECT id, parent, key, type, atom FROM json_tree(?) ORDER BY id"
  for _, row in ipairs(self:rows(sql, { text })) do
    local value = row.atom
    if row.type == "object" or row.type == "array" then value = {} end
    if row.type == "true" or row.type == "false" then value = row.type == "true" end
    nodes[row.id] = value
    local parent = row.parent and nodes[row.parent]
    if parent then
      parent[math.type(row.key) == "integer" and row.key + 1 or row.key] = value
    else
      root = value
    end
  end
  return root
end

-- Returns the time, in the whole milliseconds that the files of sweeps keep.
local function now() return math.floor(core.sys.now() * 1000) / 1000 end

-- Returns the id of the sweep of a script with its overrides; inserts its row if there is none.
-- s.created: when its command was given (nil: now).
function Records:sweep(s)
  local sql = "SELECT id FROM sweeps WHERE sha256 = ? AND plan = ? AND experiment = ?"
  local found = self:rows(sql, { s.sha256, s.plan, s.experiment })
  if found[1] then return found[1].id end
  self:rows([[INSERT INTO sweeps (experiment, script, sha256, source, command, scale, plan, created)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)]],
    { s.experiment, s.script, s.sha256, s.source, s.command, s.scale, s.plan, s.created or now() })
  return self.store:last_id()
end

-- Returns the status of a trial and its row: {step=, attempt=, seconds=, code_hash=, mixed=
-- (whether other code continued it than began it)}; nil if there is none.
function Records:status(id)
  local row = self:rows([[SELECT coalesce(ended, status) AS status, step, attempt, seconds,
    code_hash, EXISTS (SELECT 1 FROM events WHERE trial = ?1 AND kind = 'code') AS mixed
    FROM trials WHERE id = ?1]], { id })[1]
  if not row then return nil end
  row.mixed = row.mixed == 1
  return row.status, row
end

-- Returns how a trial ended: {status=, error=, ended=}.
function Records:outcome(id)
  return self:rows("SELECT status, error, ended FROM trials WHERE id = ?", { id })[1]
end

-- Returns the trials of ids in the order of their declaration: {id=, experiment=, config= (a
-- table), seed=, started=, status=}.
function Records:declared(ids)
  local list = {}
  for i, id in ipairs(ids) do
    list[i] = self:rows([[SELECT rowid AS place, created, id, experiment, config, seed, started,
      coalesce(ended, status) AS status FROM trials WHERE id = ?]], { id })[1]
  end
  table.sort(list, function(a, b)
    if a.created ~= b.created then return a.created < b.created end
    return a.place < b.place
  end)
  for _, t in ipairs(list) do
    t.config, t.place, t.created = self:config(t.config), nil, nil
  end
  return list
end

-- Inserts a row with status queued for each trial that has none, restores those in the trash, and
-- makes these trials, in order, the only members of the sweep, which becomes the newest one, even
-- if the clock was set back. rows: those of sweeps.rows_of.
function Records:enlist(sweep, rows)
  self:transaction(function()
    local at = now()
    self:rows([[UPDATE sweeps SET created = round(max(?, (SELECT max(created) FROM sweeps) + 0.001),
      3) WHERE id = ?]], { at, sweep })
    self:rows("DELETE FROM members WHERE sweep = ?", { sweep })
    local trashed = {}
    for _, row in ipairs(self:rows "SELECT id FROM trials WHERE trashed IS NOT NULL") do
      trashed[row.id] = true
    end
    for i, t in ipairs(rows) do
      self:rows([[INSERT INTO trials (id, sweep, experiment, config, seed, code_hash, data_hash,
        numerics, provenance, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (id) DO NOTHING]],
        { t.id, sweep, t.experiment, t.config, t.seed, t.code_hash, t.data_hash, core.numerics,
          t.provenance, at })
      self:rows("INSERT INTO members VALUES (?, ?, ?)", { sweep, i, t.id })
      if trashed[t.id] then self:mark(t.id, "restore") end
    end
    written.sweep(self, sweep)
  end)
end

-- Makes the folder of a trial; returns its path relative to that of the store, and its path.
function Records:make_folder(id)
  local path = trial_files.folder(self.folder, id)
  trial_files.make(self.folder, "runs")
  return path, trial_files.make(self.folder, path)
end

-- Appends a line to the marks of a trial (journal.lua lists the kinds) and applies it.
function Records:mark(id, kind, ...)
  local row = self:rows("SELECT attempt FROM trials WHERE id = ?", { id })[1]
  local line = table.pack(kind, row.attempt, core.sys.now(), ...)
  local path = self:make_folder(id) .. "/marks.jnl"
  journal.append(trial_files.path(self.folder, id, { path = path }), line)
  self:transaction(function() replay.apply_mark(self, id, line) end)
end

-- Marks trial id as running in process pid since `started`, by the code with this hash. p: its
-- provenance.
function Records:mark_running(id, attempt, started, pid, code, p)
  replay.apply(self, id, { "begin", attempt, started, pid, code, json.encode(p), n = 6 })
end

-- Begins the next attempt at a trial, in process pid. Returns its number, the seconds of earlier
-- attempts, and the artifacts of the trial; raises if one of these is not a file of the trial.
function Records:begin(t, pid)
  local p = config.copy(t.provenance)
  p.label, p.data = t.label, next(t.data) and t.data or nil
  p.process_start, p.key = process.start(pid), t.key ~= t.id and t.key or nil
  local path = self:make_folder(t.id)
  local attempt = self:rows("SELECT attempt FROM trials WHERE id = ?", { t.id })[1].attempt
  local line
  repeat -- a killed run may have left the first record of an attempt alone
    attempt = attempt + 1
    line = { "begin", attempt, core.sys.now(), pid, t.code_hash, json.encode(p), n = 6 }
  until journal.create(self.folder .. "/" .. journal.path(path, attempt), line)
  self:transaction(function() replay.apply(self, t.id, line) end)
  trial_files.check_all(self.folder, t.id)
  local row, artifacts = self:resumable(t.id)
  return row.attempt, (row.seconds or 0) + 0.0, artifacts
end

-- Returns what a trial would continue from: {attempt=, step=, seconds=, open= (1: its journal may
-- say more)} and its artifacts.
function Records:resumable(id)
  local row = self:rows([[SELECT attempt, step, seconds, EXISTS (SELECT 1 FROM journals
    WHERE trial = ?1) AS open FROM trials WHERE id = ?1]], { id })[1]
  local artifacts = self:rows([[SELECT kind, step, path, bytes, sha256 FROM artifacts
    WHERE trial = ?]], { id })
  for _, a in ipairs(artifacts) do trial_files.check_row(self.folder, id, a) end
  return row or { attempt = 0 }, artifacts
end

-- Records the end of a trial in place of its worker. status: 'done', 'failed' or 'interrupted';
-- why: the message, or nil; ended: why it was ended early, or nil.
function Records:finish(id, status, why, ended)
  self:mark(id, "end", status, secrets.text(why), ended)
end

-- ---- Journals ---------------------------------------------------------------------------------

-- Ends a trial that has no worker: stores its metrics, a list of {name, step, value}, and its
-- seconds, and marks it as done.
function Records:complete(id, metrics, seconds)
  self:transaction(function()
    for _, m in ipairs(metrics) do
      replay.apply(self, id, { "metric", m[2], m[1], m[3], n = 4 })
    end
    replay.apply(self, id, { "end", "done", nil, nil, seconds, core.sys.now(), n = 6 })
    self:rows("DELETE FROM journals WHERE trial = ?", { id })
    written.trial(self, id)
  end)
end

-- Reads the unread rest of a journal into the rows of its trial, in one transaction with the new
-- offset. path: of the trial; some: reads about a megabyte at most, so that a fast writer does not
-- block the caller; heard: called with the lines once they are stored, or nil. Returns whether the
-- lines read now include the end of the trial, and why the rest cannot be read (nil: it can).
-- Raises a storage error if the system cannot read it.
function Records:take(id, path, some, heard)
  local row = self:rows("SELECT attempt, bytes FROM journals WHERE trial = ?", { id })[1]
  if not row then return false end
  local file, ended, damage = self.folder .. "/" .. journal.path(path, row.attempt), false, nil
  repeat
    local list, offset, why = journal.read(file, row.bytes)
    damage = why
    if #list > 0 then
      self:transaction(function()
        for _, line in ipairs(list) do
          replay.apply(self, id, line)
          ended = ended or line[1] == "end"
        end
        self:rows("UPDATE journals SET bytes = ? WHERE trial = ?", { offset, id })
      end)
      row.bytes = offset
      if heard then heard(list) end
    end
  until #list == 0 or why or some
  return ended, damage
end

-- Records an event of a trial.
function Records:event(id, step, kind, text)
  self:mark(id, "event", step, kind, secrets.text(text))
end

-- Records a file of a trial. path: within the results folder.
function Records:artifact(id, kind, step, path, bytes, sha256)
  self:mark(id, "artifact", kind, step, path, bytes, sha256)
end

-- Records that the store holds all lines of a trial's journal.
function Records:end_journal(id) self:rows("DELETE FROM journals WHERE trial = ?", { id }) end

-- Returns the path of a trial's journal and how many of its bytes the store holds; nil if the trial
-- has none.
function Records:journal(id)
  local row = self:rows("SELECT attempt, bytes FROM journals WHERE trial = ?", { id })[1]
  if not row then return nil end
  local path = journal.path(trial_files.folder(self.folder, id), row.attempt)
  return self.folder .. "/" .. path, row.bytes
end

-- Returns how many trials have a journal: those at work, and those of killed coordinators.
function Records:count_journals()
  return self:rows("SELECT count(*) AS n FROM journals")[1].n
end

-- Lists the journals that killed coordinators left behind: {id=, path=, attempt=, pid=, host=,
-- process_start=} of each trial that has one.
function Records:open_journals()
  local list = self:rows [[SELECT j.trial AS id, j.attempt, t.pid, t.host, t.provenance ->>
    '$.process_start' AS process_start FROM journals j JOIN trials t ON t.id = j.trial]]
  for _, row in ipairs(list) do
    row.path = trial_files.folder(self.folder, row.id)
    trial_files.check_all(self.folder, row.id)
  end
  return list
end

-- Returns the text of a stored file, or a line that says that the file is missing or has changed.
local function stored_text(path, sha256)
  local text, why = core.sys.read_file(path)
  if not text then return ("(%s)"):format(why) end
  if core.sha256(text) == sha256 then return text end
  return ("(%s: was changed: its sha256 differs from the stored one)"):format(path)
end

-- Returns the newest value of each metric of a trial (NaN for NULL) and the texts stored with it:
-- kind -> text.
function Records:results(id)
  local metrics, texts = {}, {}
  for _, row in ipairs(self:rows("SELECT name, value FROM v_last WHERE trial = ?", { id })) do
    metrics[row.name] = row.value or 0 / 0
  end
  local sql = [[SELECT kind, path, sha256 FROM v_artifacts
    WHERE trial = ? AND kind NOT IN ('checkpoint', 'best') ORDER BY step]]
  for _, row in ipairs(self:rows(sql, { id })) do
    texts[row.kind] = stored_text(trial_files.path(self.folder, id, row), row.sha256)
  end
  return metrics, texts
end

-- Returns what produced the results of a trial: {command=, commit=, dirty= (whether the checkout
-- had changes), host=, threads=}; nil if the trial was removed.
function Records:origin(id)
  local row = self:rows([[SELECT command, git_commit AS "commit", git_dirty AS dirty, host,
    json_extract(provenance, '$.threads') AS threads FROM v_trials WHERE id = ?]], { id })[1]
  if row then row.dirty = row.dirty == 1 end
  return row
end

-- Returns the list that an experiment's report receives: of each of the given trials that is done
-- and was not removed since {id=, label=, seed=, config= (a copy), metrics=, texts=, made= (as
-- origin returns), series= (called as t:series(name), it returns steps and values of a metric)}.
function Records:finished(trials)
  local list = {}
  for _, t in ipairs(trials) do
    local made = t.status == "done" and self:origin(t.id)
    if made then
      local metrics, texts = self:results(t.id)
      list[#list + 1] = { id = t.id, label = t.label, seed = t.seed, config = config.copy(t.config),
        metrics = metrics, texts = texts, made = made,
        series = function(_, name) return self:series(t.id, name) end }
    end
  end
  return list
end

-- Returns the values of a metric of trial id in order of steps: lists of steps and of values (NaN
-- for NULL).
function Records:series(id, name)
  local steps, values = {}, {}
  local sql = "SELECT step, value FROM v_metrics WHERE trial = ? AND name = ? ORDER BY step"
  for i, row in ipairs(self:rows(sql, { id, name })) do
    steps[i], values[i] = row.step, row.value or 0 / 0
  end
  return steps, values
end

return records
