-- store/files_from_rows.lua: writes files of a results folder from the rows of runs.db, where the
-- rows come first: sweeps/N.json, a trial of a merge or a bench, and all files of a folder that an
-- earlier version wrote.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local journal = require "toeplab.store.journal"
local news = require "toeplab.store.news"
local trial_files = require "toeplab.store.trial_files"

local files_from_rows = {}

-- ---- Sweeps -----------------------------------------------------------------------------------

-- The members of sweep ?1, and trials of which it was the first sweep.
local TRIALS = [[SELECT json_object('position', m.position, 'id', t.id, 'experiment', t.experiment,
    'config', json(t.config), 'seed', t.seed, 'code', t.code_hash, 'data', t.data_hash,
    'numerics', t.numerics, 'label', t.provenance ->> '$.label', 'created', round(t.created, 3),
    'first', t.sweep IS ?1) AS text
  FROM (SELECT position, trial FROM members WHERE sweep = ?1
    UNION ALL SELECT NULL, id FROM trials WHERE sweep IS ?1
      AND id NOT IN (SELECT trial FROM members WHERE sweep = ?1)) m
  JOIN trials t ON t.id = m.trial ORDER BY m.position IS NULL, m.position, t.rowid]]

function files_from_rows.sweep_path(root, id) return ("%s/sweeps/%d.json"):format(root, id) end

-- Writes the file of sweep id; removes it if there is no such sweep. Sweep 0 holds the trials of
-- unknown sweeps.
function files_from_rows.sweep(store, id)
  local path = files_from_rows.sweep_path(store.folder, id)
  local head = store:rows([[SELECT json_object('experiment', experiment, 'script', script,
    'sha256', sha256, 'source', source, 'command', command, 'scale', scale, 'plan', json(plan),
    'created', round(created, 3)) AS text FROM sweeps WHERE id = ?]], { id })[1]
  local dropped = not head and id > 0
  news.append(store, dropped and "dropped" or "sweep", tostring(id))
  if dropped then
    core.sys.remove(path)
    return
  end
  trial_files.make(store.folder, "sweeps")
  local parts = {}
  store:each(TRIALS, { id > 0 and id or nil, n = 1 }, function(row)
    parts[#parts + 1] = row.text
  end)
  local text = ('%s"trials":[\n%s\n]'):format(head and head.text:sub(1, -2) .. "," or "{",
    table.concat(parts, ",\n"))
  errors.stored(core.sys.write_file(path, ('%s,"seal":"%s"}\n'):format(text, core.sha256(text))))
end

-- Returns why text is not the file of sweep id; nil if it is. Files of earlier versions have no
-- seal.
function files_from_rows.sweep_damage(store, id, text)
  local sealed, seal = (text or ""):match '^(.*),"seal":"(%x+)"}%s*$'
  if seal and core.sha256(sealed) ~= seal then return "is damaged" end
  local row = store:rows([[SELECT coalesce(iif(json_valid(?1), json_type(?1, '$.trials') = 'array'
    AND (?2 = 0 OR json_type(?1, '$.experiment') = 'text'), 0), 0) AS ok]], { text or "", id })[1]
  return not text and "is missing" or row.ok == 0 and "is not the file of a sweep" or nil
end

-- Lists the names of the damaged files of sweeps that were set aside (rebuild.lua).
function files_from_rows.damaged_sweeps(root)
  local list = {}
  for _, name in ipairs(trial_files.plain(root, "sweeps")) do
    if name:find(".damaged", 1, true) then list[#list + 1] = name end
  end
  return list
end

-- ---- Trials -----------------------------------------------------------------------------------

-- Returns the lines of a journal with the content of a trial's rows. artifacts: the rows of
-- artifacts to include.
local function journal_lines(store, row, artifacts)
  local id = row.id
  local lines = { { "begin", row.attempt, row.started, row.pid, row.code_hash, row.provenance,
    n = 6 } }
  store:each("SELECT * FROM metrics WHERE trial = ? ORDER BY name, step", { id }, function(m)
    lines[#lines + 1] = { "metric", m.step, m.name, m.value or 0 / 0, m.at, n = 5 }
  end)
  for _, a in ipairs(artifacts) do
    lines[#lines + 1] = { "artifact", a.kind, a.step, a.path, a.bytes, a.sha256, a.created }
  end
  for _, e in ipairs(store:rows("SELECT * FROM events WHERE trial = ? ORDER BY id", { id })) do
    lines[#lines + 1] = { "event", e.step, e.kind, e.text, e.created }
  end
  lines[#lines + 1] = { "step", row.step, row.seconds, n = 3 }
  if row.status ~= "running" then
    local status = row.status == "queued" and "interrupted" or row.status
    lines[#lines + 1] = { "end", status, row.error, row.ended, row.seconds, row.finished, n = 6 }
  end
  return lines
end

local RECORD_LINES = 100

-- Returns lines as several records: damage to one does not affect the others.
local function records_of(lines)
  local texts = {}
  for i = 1, #lines, RECORD_LINES do
    texts[#texts + 1] = journal.record(table.move(lines, i, math.min(#lines, i + RECORD_LINES - 1),
      1, {}))
  end
  return table.concat(texts)
end

-- Writes the files of a trial from its row: one journal, and marks.jnl. from: the store with the
-- rows of its metrics and events; artifacts: the rows of artifacts to include.
function files_from_rows.trial(store, row, from, artifacts)
  local marks = {}
  if row.status == "queued" and row.attempt > 0 then
    marks[#marks + 1] = { "queue", row.attempt, row.created }
  end
  if row.tags ~= "" or row.notes ~= "" then
    marks[#marks + 1] = { "marks", row.attempt, row.created, row.tags, row.notes }
  end
  if row.trashed then marks[#marks + 1] = { "trash", row.attempt, row.trashed, row.trashed } end
  if row.attempt == 0 and #marks == 0 then return end
  news.append(store, "files", row.id)
  local _, root = store:make_folder(row.id)
  local kept = ("events-%d.jnl"):format(row.attempt)
  if row.attempt > 0 then
    errors.stored(core.sys.write_file(root .. "/" .. kept,
      records_of(journal_lines(from, row, artifacts))))
  end
  if #marks > 0 then
    errors.stored(core.sys.write_file(root .. "/marks.jnl", journal.record(marks)))
  else
    core.sys.remove(root .. "/marks.jnl")
  end
  for _, name in ipairs(core.sys.list(root) or {}) do
    if name:find "^events%-%d+%.jnl$" and name ~= kept then core.sys.remove(root .. "/" .. name) end
  end
end

local function row_of(store, id)
  return store:rows("SELECT * FROM trials WHERE id = ?", { id })[1]
end

-- Writes the files of trial id from its rows.
function files_from_rows.again(store, id)
  files_from_rows.trial(store, row_of(store, id), store,
    store:rows("SELECT * FROM artifacts WHERE trial = ?", { id }))
end

-- ---- A folder of an earlier version ------------------------------------------------------------

-- Adds the missing first record to the journal of a killed run. Resets its offset, because to apply
-- lines again changes nothing.
local function add_begin(store, id)
  local path = store:journal(id)
  local head = journal.read(path, 0)[1]
  if not head or head[1] ~= "begin" then
    if journal.in_use(path) then
      errors.raise(errors.LOCKED, "%s: a process still writes this file: run the command again "
        .. "after it has ended", path)
    end
    head = journal.record { journal_lines(store, row_of(store, id), {})[1] }
    errors.stored(core.sys.write_file(path, head .. (core.sys.read_file(path) or "")))
  end
  store:rows("UPDATE journals SET bytes = 0 WHERE trial = ?", { id })
end

-- Returns whether a trial has files with the content of its rows.
local function has_files(store, id, attempt)
  local root = store.folder .. "/" .. trial_files.folder(store.folder, id)
  return core.sys.exists(("%s/events-%d.jnl"):format(root, attempt))
    or attempt == 0 and core.sys.exists(root .. "/marks.jnl")
end

-- Returns the ids of the sweeps that have no file; 0 stands for trials without a sweep.
local function missing_sweeps(store)
  local there, missing = trial_files.sweeps(store.folder), {}
  for _, row in ipairs(store:rows [[SELECT id FROM sweeps
      UNION SELECT 0 FROM trials WHERE sweep IS NULL ORDER BY id]]) do
    if not there[row.id] then missing[#missing + 1] = row.id end
  end
  return missing
end

-- Writes the files of all trials and of these sweeps.
local function write_all(store, missing)
  for _, name in ipairs { "trials", "sweeps" } do -- the files keep whole milliseconds
    store:rows(("UPDATE %s SET created = round(created, 3)"):format(name))
  end
  for _, row in ipairs(store:rows [[SELECT t.id, t.attempt, j.trial IS NOT NULL AS open
      FROM trials t LEFT JOIN journals j ON j.trial = t.id
      WHERE t.attempt > 0 OR t.tags <> '' OR t.notes <> '' OR t.trashed IS NOT NULL]]) do
    if row.open == 1 then
      add_begin(store, row.id)
    elseif not has_files(store, row.id, row.attempt) then
      files_from_rows.again(store, row.id)
    end
  end
  for _, id in ipairs(missing) do files_from_rows.sweep(store, id) end
end

-- Writes the files of a folder whose rows an earlier version wrote. Writes the sweeps last, so that
-- the next call continues after a kill.
function files_from_rows.all(store)
  if #missing_sweeps(store) == 0 then return end
  store:transaction(function()
    local missing = missing_sweeps(store) -- another process may have written them meanwhile
    if #missing > 0 then write_all(store, missing) end
  end)
end

return files_from_rows
