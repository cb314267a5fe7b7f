-- store/records.lua: opens the store of a results folder, and reads and writes the rows of its
-- trials.
local alive = require "toeplab.store.alive"
local attempts = require "toeplab.store.attempts"
local config = require "toeplab.base.config"
local core = require "toeplab.core"
local journal = require "toeplab.store.journal"
local json = require "toeplab.base.json"
local logged_tensors = require "toeplab.store.logged_tensors"
local secrets = require "toeplab.base.secrets"
local shell = require "toeplab.base.shell"
local errors = require "toeplab.base.errors"
local news = require "toeplab.store.news"
local rebuild = require "toeplab.store.rebuild"
local replay = require "toeplab.store.replay"
local stored_json = require "toeplab.store.stored_json"
local trial_files = require "toeplab.store.trial_files"
local files_from_rows = require "toeplab.store.files_from_rows"

local records = {}
local Records = {}
Records.__index = Records

-- Returns "results", or, if it has no runs, the nearest such folder above that has some.
local function nearest_folder()
  local up = ""
  repeat
    local folder = up .. "results"
    if core.sys.exists(folder .. "/sweeps") or core.sys.exists(folder .. "/runs.db") then
      return folder
    end
    up = up .. "../"
  until not core.sys.exists(up) or core.sys.same(up, up .. "..")
  return "results"
end

-- Returns the results folder: the given one, else TOEPLAB_DIR, else the nearest.
function records.folder(given)
  if given == "" then errors.usage("-C: the name of the folder is empty") end
  local set = os.getenv("TOEPLAB_DIR")
  local folder = given or (set ~= "" and set) or nearest_folder()
  local ok, why, status = core.store_check_folder(folder)
  if not ok and status == "EINVAL" then errors.usage("%s", why) end
  return folder
end

local function wrap(store, folder)
  return setmetatable({ store = store, folder = folder }, Records)
end

-- Returns the status of an error of the engine; nil for other errors.
local function status_of(why) return type(why) == "table" and rawget(why, "status") or nil end

-- Raises an error of the store.
local function refuse(folder, message, status)
  if status == "ELOCKED" then errors.raise(errors.LOCKED, "%s", message) end
  local old = message:match "schema version (%d+) is old"
  local problem = errors.new(errors.STORAGE, "%s%s", message, old and shell.named("; `toeplab fsck "
    .. "--repair -C %s` converts it without a run, and keeps a copy, runs.db.v%s"):format(
    shell.quote(folder), old) or "")
  problem.status, problem.old = status, old ~= nil
  error(problem, 0)
end

-- Returns the result of fn(self); if fn fails, closes the store and raises.
local function try(self, fn)
  local ok, why = pcall(fn, self)
  if ok then return why end
  self:close()
  if not errors.storage_problem(why) then error(why, 0) end
  refuse(self.folder, errors.text(why), status_of(why))
end

-- Makes the database from the files of the folder if it is missing or empty, or imports that of an
-- earlier version.
local function ensure(folder)
  local path, possible = trial_files.database(folder), rebuild.possible(folder)
  local empty = core.sys.size(path) == 0 and not core.sys.exists(path .. "-wal")
  if empty and possible then core.sys.remove(path) end
  if core.sys.exists(path) then return end
  if possible then
    rebuild.ensure(folder, wrap)
  elseif core.sys.exists(folder .. "/runs.db") then
    rebuild.import(folder)
  end
end

-- Opens the store of the engine in a mode of records.open. Tries again, because the database may be
-- removed at any moment, and may belong to another folder.
local function connect(folder, mode)
  local store, message, status
  for _ = 1, 10 do
    ensure(folder)
    trial_files.check_store(folder, mode)
    store, message, status = core.store(folder, mode == "u" and "w" or mode)
    if store then
      if not try(wrap(store, folder), news.foreign) then return store end
      store:close()
      rebuild.remove(folder)
      rebuild.ensure(folder, wrap)
    elseif status ~= "ENOTFOUND" and core.sys.exists(trial_files.database(folder)) then
      if message:find "schema version %d+ is old" and trial_files.is_elsewhere(folder) then
        rebuild.remove(folder) -- the earlier version may still write to the original
      end
      break
    end
  end
  refuse(folder, message or folder .. "/news: other processes keep replacing it; try again", status)
end

Records.refresh = rebuild.refresh

-- Opens the store in folder for reading ("r"), for the user's own queries ("ask"), for changes of
-- an existing store ("u"), or for writing ("w"), which creates it if necessary. Raises errors with
-- an exit code.
function records.open(folder, mode)
  local self = wrap(connect(folder, mode), folder)
  if mode == "w" or mode == "u" then
    try(self, files_from_rows.all)
    try(self, self.refresh)
  elseif rebuild.is_behind(self) then
    local ok, writer = pcall(records.open, folder, "u") -- if this fails, read the old rows
    if ok then writer:close() end
  end
  return self
end

-- Opens the store for reading a snapshot, which other processes do not change, until live(). The
-- write-ahead log of the database grows until then.
function records.snapshot(folder)
  local self = records.open(folder, "r")
  self.store:exec "BEGIN"
  return self
end

function Records:live() self.store:exec "COMMIT" end

function Records:close()
  if self.run then alive.leave(self.folder, self.run, self.run_lock) end
  self.run = nil
  self.store:close()
end

-- Raises if the folder no longer holds the files of this store. Reopens a database that was removed
-- or that another process has rebuilt. Updates the rows from the news.
function Records:check()
  local ok, why = pcall(self.store.check, self.store)
  local again = not ok and status_of(why) == "ENOTFOUND"
    and (rebuild.possible(self.folder) or not core.sys.exists(self.folder .. "/runs"))
  if again then
    self.store:close()
    self.store = connect(self.folder, "w")
  else
    errors.stored(ok, why)
  end
  if news.unread(self) then self:transaction(function() end) end
end

Records.__close = Records.close

-- Begins a transaction. Reopens a database that was removed.
local function begin(self)
  local ok, why
  for _ = 1, 10 do
    ok, why = pcall(self.store.exec, self.store, "BEGIN IMMEDIATE")
    if ok then return end
    if status_of(why) ~= "ENOTFOUND" then break end
    self:check()
  end
  errors.check_signals()
  if status_of(why) == "ELOCKED" then errors.raise(errors.LOCKED, "%s", errors.text(why)) end
  error(why, 0)
end

-- Calls fn() in a transaction, a new one or the caller's, and returns the results of fn. All news
-- are read before fn, and no other process writes to the store during the transaction.
function Records:transaction(fn)
  if self.inside then return fn() end
  begin(self)
  self.inside = true
  local results = table.pack(pcall(function()
    if not self.filling then rebuild.catch_up(self) end
    return fn()
  end))
  self.inside = nil
  local ok, why = results[1], results[2]
  if ok then ok, why = pcall(self.store.exec, self.store, "COMMIT") end
  if ok then return table.unpack(results, 2, results.n) end
  pcall(self.store.exec, self.store, "ROLLBACK")
  error(why, 0)
end

-- Returns the rows of a query. params: a list; if it contains nil, it needs a field n.
function Records:rows(sql, params)
  return self.store:exec(sql, params or {})
end

-- Returns the list of the values of a query for one column.
function Records:values(sql, params)
  local list = {}
  self.store:tuples(sql, params or {}, function(value) list[#list + 1] = value end)
  return list
end

-- Calls fn for each row of a query, without keeping all rows in memory.
function Records:each(sql, params, fn) self.store:each(sql, params, fn) end

Records.config, Records.object, Records.decode = stored_json.config, stored_json.object,
  stored_json.decode

-- Returns the time in whole milliseconds, the resolution of the files of sweeps.
local function now() return math.floor(core.sys.now() * 1000) / 1000 end

-- Returns the id of the sweep of a script with its overrides; inserts its row if it is new.
-- s.created: the time of its command (nil: now).
function Records:sweep(s)
  return self:transaction(function()
    local sql = "SELECT id FROM sweeps WHERE sha256 = ? AND plan = ? AND experiment = ?"
    local found = self:rows(sql, { s.sha256, s.plan, s.experiment })
    if found[1] then return found[1].id end
    local last = self:rows "SELECT coalesce(max(id), 0) AS id FROM sweeps"[1].id
    for id in pairs(trial_files.sweeps(self.folder)) do last = math.max(last, id) end
    self:rows("INSERT INTO sweeps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", { last + 1, s.experiment,
      s.script, s.sha256, s.source, s.command, s.scale, s.plan, s.created or now() })
    return last + 1
  end)
end

-- Returns the status of a trial and its row: {step=, seconds=, code_hash=, mixed= (whether
-- different code began and continued it), busy= (whether a process runs it), whole= (whether it can
-- be stopped only with its whole run), trashed= (the time, or nil), alive.COLUMNS}; nil if there is
-- none.
function Records:status(id)
  local row = self:rows(([[SELECT id, coalesce(ended, status) AS shown, step, seconds, code_hash,
    EXISTS (SELECT 1 FROM events WHERE trial = ?1 AND kind = 'code') AS mixed,
    provenance ->> '$.whole' AS whole, trashed, %s FROM trials WHERE id = ?1]])
    :format(alive.COLUMNS), { id })[1]
  if not row then return nil end
  row.mixed = row.mixed == 1
  row.busy = row.status == "running" and (alive.has_run(self.folder, row)
    or alive.has_worker(self.folder, row))
  return row.shown, row
end

-- Returns how a trial ended: {status=, error=, ended=}.
function Records:outcome(id)
  return self:rows("SELECT status, error, ended FROM trials WHERE id = ?", { id })[1]
end

-- Returns the trials with these ids, oldest first: {id=, experiment=, config= (a table), seed=,
-- started=, status=}.
function Records:declared(ids)
  local list = self:rows([[SELECT id, experiment, config, seed, started,
    coalesce(ended, status) AS status FROM trials
    WHERE id IN (SELECT value FROM json_each(?)) ORDER BY created, rowid]], { json.encode(ids) })
  for _, t in ipairs(list) do t.config = self:config(t.config) end
  return list
end

-- Inserts the row of trial t with status queued, unless there is one; returns whether it did.
-- sweep: the first sweep of the trial.
function Records:declare(sweep, t)
  return self:rows([[INSERT INTO trials (id, sweep, experiment, config, seed, code_hash, data_hash,
    numerics, provenance, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO NOTHING RETURNING id]], { t.id, sweep, t.experiment, t.config, t.seed,
    t.code_hash, t.data_hash, t.numerics, t.provenance, t.created, n = 10 })[1] ~= nil
end

-- Makes these trials, in order, the only members of the sweep, and the sweep the newest one, even
-- if the clock was set back. Inserts missing rows of trials with status queued; restores trials
-- from the trash and returns their number. rows: of sweeps.rows_of. If a new row's trial already
-- has files (its sweep's file was damaged when the database was rebuilt), it takes their content.
function Records:enlist(sweep, rows)
  return self:transaction(function()
    local at = now()
    self:rows([[UPDATE sweeps SET created = round(max(?, (SELECT max(created) FROM sweeps) + 0.001),
      3) WHERE id = ?]], { at, sweep })
    self:rows("DELETE FROM members WHERE sweep = ?", { sweep })
    for i, t in ipairs(rows) do
      t.numerics, t.created = core.numerics, at
      local new = self:declare(sweep, t)
      local folder = trial_files.folder(self.folder, t.id)
      if new and core.sys.exists(self.folder .. "/" .. folder) then replay.trial(self, t.id) end
      self:rows("INSERT INTO members VALUES (?, ?, ?)", { sweep, i, t.id })
    end
    local trashed = self:rows([[SELECT id FROM members JOIN trials ON id = trial
      WHERE members.sweep = ? AND trashed IS NOT NULL]], { sweep })
    for _, row in ipairs(trashed) do self:mark(row.id, "restore") end
    files_from_rows.sweep(self, sweep)
    return #trashed
  end)
end

-- Makes the folder of a trial. Returns its path relative to the results folder, and its full path.
function Records:make_folder(id)
  local path = trial_files.folder(self.folder, id)
  trial_files.make(self.folder, "runs")
  return path, trial_files.make(self.folder, path)
end

-- Appends a line to a trial's marks.jnl (journal.lua lists the kinds) and applies it to the rows.
function Records:mark(id, ...) self:mark_at(core.sys.now(), id, ...) end

-- Does the same for a line with an earlier time, e.g. from another folder.
function Records:mark_at(at, id, kind, ...)
  local rest = table.pack(...)
  self:transaction(function()
    local row = self:rows("SELECT attempt FROM trials WHERE id = ?", { id })[1]
    if not row then errors.usage("trial %s was removed", id:sub(1, 12)) end
    local line = table.pack(kind, row.attempt, at, table.unpack(rest, 1, rest.n))
    local path = trial_files.path(self.folder, id, { path = self:make_folder(id) .. "/marks.jnl" })
    news.append(self, "mark", id, tostring(core.sys.size(path) or 0))
    journal.append(path, line)
    replay.apply_mark(self, id, line)
  end)
end

Records.begin = attempts.begin

-- Records the end of attempt t.attempt at trial t on behalf of its worker, if it is the last
-- attempt. status: 'done', 'failed' or 'interrupted'; why: the message, or nil; ended: the reason
-- of an early end, or nil.
function Records:finish(t, status, why, ended)
  self:transaction(function()
    local row = self:rows("SELECT attempt FROM trials WHERE id = ?", { t.id })[1]
    if row and row.attempt == t.attempt then
      self:mark(t.id, "end", status, secrets.text(why), ended)
    end
  end)
end

-- ---- Journals ---------------------------------------------------------------------------------

-- Marks a trial without a worker as done, and stores its metrics, a list of {name, step, value},
-- and its seconds.
function Records:complete(id, metrics, seconds)
  self:transaction(function()
    for _, m in ipairs(metrics) do
      replay.apply(self, id, { "metric", m[2], m[1], m[3], n = 4 })
    end
    replay.apply(self, id, { "end", "done", nil, nil, seconds, core.sys.now(), n = 6 })
    self:rows("DELETE FROM journals WHERE trial = ?", { id })
    files_from_rows.again(self, id)
  end)
end

-- Reads the rest of the journal of attempt t.attempt at trial t, and stores it part by part, each
-- in one transaction with the new offset. Other processes may store parts of it meanwhile; this one
-- still gets all lines from its own offset, t.read_bytes. some: reads about a megabyte at most, so
-- that a fast writer does not block the caller; on_lines: called with lines after they are stored,
-- or nil. Returns whether these lines include the end of the trial, and why the rest cannot be read
-- (nil: it can). Raises a storage error if the file cannot be read.
function Records:take(t, some, on_lines)
  local file = ("%s/%s"):format(self.folder, journal.path(t.path, t.attempt))
  local ended, list, why = false, nil, nil
  if t.read == t.attempt and core.sys.size(file) == t.read_bytes then return false end
  repeat
    list, why = {}, nil
    self:transaction(function()
      local row = self:rows("SELECT bytes FROM journals WHERE trial = ? AND attempt = ?",
        { t.id, t.attempt })[1]
      local from = t.read == t.attempt and t.read_bytes or row and row.bytes
      if not from then return end
      local offset
      list, offset, why = journal.read(file, from)
      t.read, t.read_bytes = t.attempt, offset
      local unstored, stored = list, offset
      if row and row.bytes ~= from then unstored, stored = journal.read(file, row.bytes) end
      for _, line in ipairs(row and unstored or {}) do replay.apply(self, t.id, line) end
      for _, line in ipairs(list) do ended = ended or line[1] == "end" end
      if row and stored > row.bytes then
        self:rows("UPDATE journals SET bytes = ? WHERE trial = ?", { stored, t.id })
      end
    end)
    if on_lines and #list > 0 then on_lines(list) end
  until #list == 0 or why or some
  return ended, why
end

-- Records an event of a trial.
function Records:event(id, step, kind, text)
  self:mark(id, "event", step, kind, secrets.text(text))
end

-- Records a file of a trial. path: relative to the results folder.
function Records:artifact(id, kind, step, path, bytes, sha256)
  self:mark(id, "artifact", kind, step, path, bytes, sha256)
end

-- Records that all lines of the journal of attempt t.attempt at trial t are stored.
function Records:end_journal(t)
  self:transaction(function()
    self:rows("DELETE FROM journals WHERE trial = ? AND attempt = ?", { t.id, t.attempt })
  end)
end

-- Returns the signal to send to the worker of attempt t.attempt at trial t: INT if a user has
-- stopped the trial (changes.stop), KILL if another process considered the worker dead and began
-- a later attempt; otherwise nil.
function Records:stop_signal(t)
  local row = self:rows([[SELECT attempt > ?2 AS lost, EXISTS (SELECT 1 FROM events
    WHERE trial = ?1 AND kind = 'stop' AND text = ?3) AS asked FROM trials WHERE id = ?1]],
    { t.id, t.attempt, replay.stop_text(t.attempt) })[1]
  return row and (row.lost == 1 and "KILL" or row.asked == 1 and "INT") or nil
end

-- Returns the path of a trial's open journal and the number of bytes read from it; nil if the trial
-- has none.
function Records:journal(id)
  local row = self:rows("SELECT attempt, bytes FROM journals WHERE trial = ?", { id })[1]
  if not row then return nil end
  local path = journal.path(trial_files.folder(self.folder, id), row.attempt)
  return self.folder .. "/" .. path, row.bytes
end

-- Returns the number of trials with an open journal: running ones, and those of killed
-- coordinators.
function Records:count_journals()
  return self:rows("SELECT count(*) AS n FROM journals")[1].n
end

-- Lists the trials whose journals killed coordinators have left open: {id=, path=, alive.COLUMNS}.
-- A worker may still be saving and ending.
function Records:open_journals()
  local list = {}
  for _, row in ipairs(self:rows(([[SELECT id, %s FROM trials
      WHERE id IN (SELECT trial FROM journals)]]):format(alive.COLUMNS))) do
    local elsewhere = row.host ~= core.sys.hostname() and alive.has_worker(self.folder, row)
    if not elsewhere and not alive.has_run(self.folder, row) then
      row.path = trial_files.folder(self.folder, row.id)
      trial_files.check_all(self.folder, row.id)
      list[#list + 1] = row
    end
  end
  return list
end

-- Returns the text of a stored file, or a message that the file is missing or has changed.
local function stored_text(path, sha256)
  local text, why = core.sys.read_file(path)
  if not text then return ("(%s)"):format(why) end
  if core.sha256(text) == sha256 then return text end
  return ("(%s has changed: its sha256 differs from the stored one)"):format(path)
end

-- Returns the newest value of each metric of a trial (NaN for NULL) and the texts stored with it:
-- kind -> text.
function Records:results(id)
  local metrics, texts = {}, {}
  for _, row in ipairs(self:rows("SELECT name, value FROM v_last WHERE trial = ?", { id })) do
    metrics[row.name] = row.value or 0 / 0
  end
  local sql = [[SELECT kind, path, sha256 FROM v_artifacts
    WHERE trial = ? AND kind NOT IN ('checkpoint', 'best') AND kind NOT GLOB 'tensor:*'
    ORDER BY step]]
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

-- Returns the argument of an experiment's report: for each given trial that is done and was not
-- removed since, {id=, label=, seed=, config= (a copy), metrics=, texts=, made= (the result of
-- origin), series= (t:series(name) returns steps and values of a metric), tensors= (t:tensors(name)
-- returns steps and a tensor [steps, ...])}.
function Records:finished(trials)
  local list = {}
  for _, t in ipairs(trials) do
    local made = t.status == "done" and self:origin(t.id)
    if made then
      local metrics, texts = self:results(t.id)
      list[#list + 1] = { id = t.id, label = t.label, seed = t.seed, config = config.copy(t.config),
        metrics = metrics, texts = texts, made = made,
        series = function(_, name) return self:series(t.id, name) end,
        tensors = function(_, name) return logged_tensors.series(self, t.id, name) end }
    end
  end
  return list
end

-- Returns a metric of trial id: the list of steps, in order, and the list of values (NaN for NULL).
function Records:series(id, name)
  local steps, values = {}, {}
  local sql = "SELECT step, value FROM v_metrics WHERE trial = ? AND name = ? ORDER BY step"
  for i, row in ipairs(self:rows(sql, { id, name })) do
    steps[i], values[i] = row.step, row.value or 0 / 0
  end
  return steps, values
end

return records
