-- records.lua: the rows of trials in the store of runs: everything the runner says to SQLite.
local core = require "toeplab.core"
local stop = require "toeplab.stop"

local records = {}

local Records, Trial = {}, {}
Records.__index, Trial.__index = Records, Trial

-- The results folder: the one given, TOEPLAB_DIR, or results.
function records.folder(given)
  local set = os.getenv("TOEPLAB_DIR")
  return given or (set ~= "" and set) or "results"
end

-- An empty store beside the files of trials has lost its rows; a new one is made before any file.
local function check_empty(folder)
  local path = folder .. "/runs.db"
  local lost = core.sys.size(path) == 0 and not core.sys.exists(path .. "-wal")
    and #(core.sys.list(folder .. "/runs") or {}) > 0
  if lost then
    stop.raise(stop.STORAGE, "%s is empty, but %s/runs holds trials: it is damaged; put back a "
      .. "copy, or move both away", path, folder)
  end
end

-- Opens the store in folder for reading ("r") or writing ("w"); raises with the right exit code.
function records.open(folder, mode)
  if mode == "r" and not core.sys.exists(folder .. "/runs.db") then
    stop.usage("%s holds no runs; toeplab run makes some (TOEPLAB_DIR names another folder)",
      folder)
  end
  check_empty(folder)
  local store, message, status = core.store(folder, mode)
  if not store then
    stop.raise(status == "ELOCKED" and stop.LOCKED or stop.STORAGE, "%s", message)
  end
  return setmetatable({ store = store, folder = folder }, Records)
end

function Records:close() self.store:close() end

Records.__close = Records.close

-- Runs fn() in one transaction.
function Records:transaction(fn)
  self.store:exec("BEGIN IMMEDIATE")
  local ok, result = pcall(fn)
  if not ok then
    pcall(self.store.exec, self.store, "ROLLBACK")
    error(result, 0)
  end
  self.store:exec("COMMIT")
  return result
end

-- Rows of a query; params: a list, in which nil needs n.
function Records:rows(sql, params)
  return self.store:exec(sql, params or {})
end

-- JSON text as a Lua value (objects and arrays as tables), read by SQLite.
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

-- The row of a script with its overrides; made at the first time.
function Records:sweep(s)
  local sql = "SELECT id FROM sweeps WHERE sha256 = ? AND plan = ?"
  local found = self:rows(sql, { s.sha256, s.plan })
  if found[1] then return found[1].id end
  self:rows([[INSERT INTO sweeps (experiment, script, sha256, source, command, scale, plan)
    VALUES (?, ?, ?, ?, ?, ?, ?)]],
    { s.experiment, s.script, s.sha256, s.source, s.command, s.scale, s.plan })
  return self.store:last_id()
end

function Records:status(id)
  local row = self:rows("SELECT status, step FROM trials WHERE id = ?", { id })[1]
  if row then return row.status, row.step end
end

-- Makes the row of a trial, or takes the one there is, and marks it running. Its seconds go on from
-- those of earlier attempts.
function Records:begin(t)
  local p = t.provenance
  local row = self:rows("SELECT seconds FROM trials WHERE id = ?", { t.id })[1]
  self.began = core.sys.clock() - (row and row.seconds or 0)
  self:transaction(function()
    self:rows([[INSERT INTO trials (id, sweep, experiment, config, seed, code_hash, data_hash)
      VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING]],
      { t.id, t.sweep, t.experiment, t.json, t.seed, t.code_hash, t.data_hash })
    self:rows([[UPDATE trials SET status = 'running', attempt = attempt + 1, started = ?,
      finished = NULL, error = NULL, host = ?, pid = ?, command = ?, git_commit = ?, git_dirty = ?,
      provenance = ? WHERE id = ?]],
      { core.sys.now(), p.host, p.pid, p.command, p.commit, p.dirty, t.provenance_json, t.id,
        n = 8 })
  end)
end

-- status: 'done', 'failed' or 'interrupted'; why: the message, or nil.
function Records:finish(id, status, why)
  self:rows("UPDATE trials SET status = ?, error = ?, finished = ?, seconds = ? WHERE id = ?",
    { status, why, core.sys.now(), core.sys.clock() - self.began, id, n = 5 })
end

-- The text stored in a file; if it is not there any more, or another, a line that says so.
local function stored_text(path, sha256)
  local text, why = core.sys.read_file(path)
  if not text then return ("(%s)"):format(why) end
  if core.sha256(text) == sha256 then return text end
  return ("(%s: was changed; its sha256 is not the one it was stored with)"):format(path)
end

-- The newest value of each metric of a trial, and the texts stored with it.
function Records:results(id)
  local metrics, texts = {}, {}
  for _, row in ipairs(self:rows("SELECT name, value FROM v_last WHERE trial = ?", { id })) do
    metrics[row.name] = row.value or 0 / 0
  end
  local sql = [[SELECT kind, path, sha256 FROM v_artifacts
    WHERE trial = ? AND kind NOT IN ('checkpoint', 'best') ORDER BY step]]
  for _, row in ipairs(self:rows(sql, { id })) do
    texts[row.kind] = stored_text(self.folder .. "/" .. row.path, row.sha256)
  end
  return metrics, texts
end

-- What made the results of a trial: {command=, commit=, dirty=, host=, threads=}.
function Records:origin(id)
  return self:rows([[SELECT command, git_commit AS "commit", git_dirty AS dirty, host,
    json_extract(provenance, '$.threads') AS threads FROM v_trials WHERE id = ?]], { id })[1]
end

-- The row of v_trials that word names: a prefix of its id, or @last.
function Records:find(word)
  if word == "@last" then
    local row = self:rows("SELECT * FROM v_trials ORDER BY started DESC, id LIMIT 1")[1]
    return row or stop.usage("%s holds no trials", self.folder)
  end
  if not word:find("^%x+$") then
    stop.usage("'%s' is not the id of a trial (see toeplab ls)", word)
  end
  local found = self:rows("SELECT * FROM v_trials WHERE substr(id, 1, ?) = ? LIMIT 2",
    { #word, word:lower() })
  if #found == 0 then stop.usage("no trial's id begins with '%s' (see toeplab ls)", word) end
  if #found > 1 then stop.usage("more than one trial's id begins with '%s'", word) end
  return found[1]
end

-- What a trial's own row is handled by.
function Records:of(id)
  return setmetatable({ all = self, id = id }, Trial)
end

local function add_metrics(self, list)
  for _, m in ipairs(list) do
    self.all:rows([[INSERT INTO metrics (trial, name, step, value) VALUES (?, ?, ?, ?)
      ON CONFLICT (trial, name, step) DO UPDATE SET value = excluded.value]],
      { self.id, m.name, m.step, m.value })
  end
end

-- list: {step=, name=, value=} each, in one transaction.
function Trial:add_metrics(list)
  self.all:transaction(function() add_metrics(self, list) end)
end

local function add_artifact(self, a)
  self.all:rows([[INSERT OR REPLACE INTO artifacts (trial, kind, step, path, bytes, sha256)
    VALUES (?, ?, ?, ?, ?, ?)]], { self.id, a.kind, a.step, a.path, a.bytes, a.sha256 })
end

function Trial:add_artifact(a)
  add_artifact(self, a)
end

-- The sha256 of a file of the trial; nil if it has none of that kind and step.
function Trial:hash_of(kind, step)
  local row = self.all:rows([[SELECT sha256 FROM artifacts
    WHERE trial = ? AND kind = ? AND step = ?]], { self.id, kind, step })[1]
  return row and row.sha256
end

function Trial:drop_artifact(a)
  self.all:rows("DELETE FROM artifacts WHERE path = ?", { a.path })
end

-- The trial's checkpoints of both kinds, newest first.
function Trial:checkpoints()
  return self.all:rows([[SELECT step, kind, path, sha256 FROM artifacts
    WHERE trial = ? AND kind IN ('checkpoint', 'best') ORDER BY step DESC, kind DESC]],
    { self.id })
end

-- Commits a checkpoint with the metrics up to it and forgets all of its kind but the last keep;
-- returns the rows that were forgotten, whose files may go.
function Trial:add_checkpoint(a, metrics, keep)
  local old = {}
  self.all:transaction(function()
    add_metrics(self, metrics)
    add_artifact(self, a)
    self.all:rows("UPDATE trials SET step = ?, seconds = ? WHERE id = ?",
      { a.step, core.sys.clock() - self.all.began, self.id })
    local same = 0
    for _, row in ipairs(self:checkpoints()) do
      if row.kind == a.kind then same = same + 1 end
      if row.kind == a.kind and same > keep then
        self:drop_artifact(row)
        old[#old + 1] = row
      end
    end
  end)
  return old
end

-- Forgets the metrics and artifacts of steps after the one a trial is taken up from.
function Trial:forget_after(step)
  self.all:transaction(function()
    self.all:rows("DELETE FROM metrics WHERE trial = ? AND step > ?", { self.id, step })
    self.all:rows("DELETE FROM artifacts WHERE trial = ? AND step > ?", { self.id, step })
    self.all:rows("UPDATE trials SET step = ? WHERE id = ?", { step, self.id })
  end)
end

-- The values of a metric in order of steps: lists of steps and values.
function Trial:series(name)
  local steps, values = {}, {}
  local sql = "SELECT step, value FROM v_metrics WHERE trial = ? AND name = ? ORDER BY step"
  for i, row in ipairs(self.all:rows(sql, { self.id, name })) do
    steps[i], values[i] = row.step, row.value or 0 / 0
  end
  return steps, values
end

return records
