-- store/rebuild.lua: makes the rows of runs.db from the files of a results folder, which are the
-- truth: sweeps/N.json lists the requested trials, and the files of trials hold their results
-- (replay.lua). It makes all rows if runs.db is missing or damaged; otherwise only the rows whose
-- files other processes have changed according to the news.
local alive = require "toeplab.store.alive"
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local errors = require "toeplab.base.errors"
local files = require "toeplab.base.files"
local journal = require "toeplab.store.journal"
local news = require "toeplab.store.news"
local replay = require "toeplab.store.replay"
local sorted_keys = require "toeplab.base.sorted_keys"
local temporary = require "toeplab.base.temporary"
local trial_files = require "toeplab.store.trial_files"
local files_from_rows = require "toeplab.store.files_from_rows"

local rebuild = {}

local PAUSE_SECONDS = 0.05

-- ---- Sweeps -----------------------------------------------------------------------------------

local SWEEP = [[INSERT INTO sweeps (id, experiment, script, sha256, source, command, scale, plan,
    created)
  SELECT ?2, ?1 ->> '$.experiment', ?1 ->> '$.script', ?1 ->> '$.sha256', ?1 ->> '$.source',
    ?1 ->> '$.command', ?1 ->> '$.scale', ?1 -> '$.plan', ?1 ->> '$.created'
  WHERE ?1 ->> '$.experiment' IS NOT NULL
  ON CONFLICT (id) DO UPDATE SET experiment = excluded.experiment, script = excluded.script,
    sha256 = excluded.sha256, source = excluded.source, command = excluded.command,
    scale = excluded.scale, plan = excluded.plan, created = excluded.created]]

local TRIALS = [[INSERT INTO trials (id, sweep, experiment, config, seed, code_hash, data_hash,
    numerics, provenance, created)
  SELECT value ->> '$.id', iif(?2 > 0 AND value ->> '$.first', ?2, NULL),
    value ->> '$.experiment', value -> '$.config', value ->> '$.seed', value ->> '$.code',
    value ->> '$.data', value ->> '$.numerics', json_object('label', value ->> '$.label'),
    value ->> '$.created'
  FROM json_each(?1, '$.trials') WHERE true ORDER BY value ->> '$.created', key
  ON CONFLICT (id) DO UPDATE SET sweep = coalesce(sweep, excluded.sweep)]]

local MEMBERS = [[INSERT INTO members SELECT ?2, value ->> '$.position', value ->> '$.id'
  FROM json_each(?1, '$.trials') WHERE value ->> '$.position' IS NOT NULL]]

-- Makes the rows of sweep id, and missing rows of its trials, from its file. Sets a damaged file
-- aside: the sweep's command writes it again, and then reads the files of its trials.
local function renew_sweep(store, id)
  local path = files_from_rows.sweep_path(store.folder, id)
  local text = core.sys.read_file(path)
  store:rows("DELETE FROM members WHERE sweep = ?", { id })
  store:rows "SAVEPOINT sweep"
  local damage = files_from_rows.sweep_damage(store, id, text)
  local ok = not damage and pcall(function()
    for _, sql in ipairs { SWEEP, TRIALS, MEMBERS } do store:rows(sql, { text, id }) end
  end)
  if not ok then
    local copy = trial_files.set_aside_name(path)
    store:rows "ROLLBACK TO sweep"
    errors.stored(core.sys.rename(path, copy))
    errors.say("%s %s: it is kept as %s; run the command of its trials again: it writes the file "
      .. "and finds their results", path, damage or "holds invalid rows", copy)
  end
  store:rows "RELEASE sweep"
end

-- Makes the rows of the sweeps in a set again. Returns the set of the trials without an attempt
-- that have a folder: a merge copies the files of trials before the files of their sweeps.
local function renew_sweeps(store, set)
  local ids, trials, there = {}, {}, {}
  for id in pairs(set) do ids[#ids + 1] = id end
  if #ids == 0 then return trials end
  table.sort(ids)
  for _, id in ipairs(ids) do renew_sweep(store, id) end
  for _, name in ipairs(core.sys.list(store.folder .. "/runs") or {}) do there[name] = true end
  for _, row in ipairs(store:rows "SELECT id FROM trials WHERE attempt = 0") do
    trials[row.id] = there[row.id:sub(1, 12)] and 0
  end
  return trials
end

-- ---- Trials -----------------------------------------------------------------------------------

-- Makes the rows of trial id again. last: the number of an attempt that is known to exist, or nil.
function rebuild.renew_trial(store, id, last)
  for _, name in ipairs { "last", "metrics", "artifacts", "events", "journals" } do
    store:rows(("DELETE FROM %s WHERE trial = ?"):format(name), { id })
  end
  local there = store:rows([[UPDATE trials SET status = 'queued', ended = NULL, attempt = 0,
    step = NULL, seconds = NULL, started = NULL, finished = NULL, error = NULL, pid = NULL,
    host = NULL, command = NULL, git_commit = NULL, git_dirty = NULL, tags = '', notes = '',
    trashed = NULL, provenance = json_object('label', provenance ->> '$.label') WHERE id = ?
    RETURNING id]], { id })[1]
  if there then replay.trial(store, id, last) end
end

-- Makes the rows of trials again: id -> the number of an attempt that is known to exist, or 0.
local function renew_trials(store, trials)
  for _, id in ipairs(sorted_keys(trials)) do rebuild.renew_trial(store, id, trials[id]) end
end

-- ---- What has changed --------------------------------------------------------------------------

-- Returns the trials with unread journals: {id=, attempt=, path=}. Their writer may use another
-- database, even on a machine of this name or by another path of the folder. If there is only one
-- database, skips journals of a running run, which reads them itself.
local function unread_journals(store)
  local list, shared = {}, not trial_files.is_elsewhere(store.folder)
  for _, row in ipairs(store:rows(([[SELECT id, bytes, %s FROM trials JOIN
      (SELECT trial, bytes FROM journals) ON trial = id]]):format(alive.COLUMNS))) do
    row.path = trial_files.folder(store.folder, row.id)
    local size = core.sys.size(store.folder .. "/" .. journal.path(row.path, row.attempt))
    local unread = size and size ~= row.bytes and not (shared and alive.has_run(store.folder, row))
    if unread then list[#list + 1] = row end
  end
  return list
end

-- Returns whether the change that a line of news announces is visible in the folder root.
local function is_visible(root, kind, name, number)
  if kind == "sweep" then
    return core.sys.exists(files_from_rows.sweep_path(root, tonumber(name)))
  end
  if kind ~= "begin" and kind ~= "mark" or not trial_files.is_id(name) then return true end
  local folder = trial_files.folder(root, name)
  if kind == "begin" then return core.sys.exists(root .. "/" .. journal.path(folder, number)) end
  return (core.sys.size(("%s/%s/marks.jnl"):format(root, folder)) or 0) > number
end

-- Brings the rows of a store up to date with the news, in a transaction.
function rebuild.catch_up(store)
  if not news.unread(store) then return end
  local root, sweeps = store.folder, {}
  local changed = news.take(store, function(...) return is_visible(root, ...) end)
  for id in pairs(changed.gone) do replay.delete(store, id) end
  for id in pairs(changed.dropped) do store:rows("DELETE FROM sweeps WHERE id = ?", { id }) end
  for id in pairs(changed.sweep) do
    if is_visible(root, "sweep", id) then sweeps[math.tointeger(tonumber(id))] = true end
  end
  local trials = renew_sweeps(store, sweeps)
  for _, kind in ipairs { "files", "mark", "begin" } do
    for id, number in pairs(changed[kind]) do trials[id] = kind == "begin" and number or 0 end
  end
  renew_trials(store, trials)
end

-- Updates the rows from journals and news of other processes.
function rebuild.refresh(store)
  if not unread_journals(store)[1] and not news.unread(store) then return end
  store:transaction(function()
    for _, row in ipairs(unread_journals(store)) do
      if store:take(row) then store:end_journal(row) end
    end
  end)
end

-- Returns whether the rows may be behind the files. Not if a process holds the lock of a store with
-- one database: it is about to store its news.
function rebuild.is_behind(store)
  return (news.unread(store) or unread_journals(store)[1] ~= nil)
    and (trial_files.is_elsewhere(store.folder) or not journal.in_use(store.folder .. "/lock"))
end

-- ---- The whole folder -------------------------------------------------------------------------

-- Returns whether the results folder root has files from which to make a database.
function rebuild.possible(root) return next(trial_files.sweeps(root)) ~= nil end

-- Locks root against other writers until the returned file is closed; waits for a running one.
-- Returns nil if this user may only read and the database lies elsewhere.
local function lock(root)
  errors.stored(core.store_check_folder(root))
  local file, why = io.open(root .. "/lock", "a")
  if not file and trial_files.is_elsewhere(root) then return nil end
  errors.stored(file, why)
  while not journal.lock(file, root .. "/lock") do
    core.sys.sleep(PAUSE_SECONDS)
    errors.check_signals()
  end
  return file
end

-- Fills the empty store from the files in its folder.
local function fill(store)
  store.filling = true
  store:transaction(function()
    renew_trials(store, renew_sweeps(store, trial_files.sweeps(store.folder)))
    news.skip(store)
  end)
end

-- Makes the database of the results folder root if there is none. open(store, root): wraps a store
-- of the engine in Records.
function rebuild.ensure(root, open)
  local guard <close> = lock(root)
  local path = trial_files.database(root)
  if core.sys.exists(path) then return end
  local folder = temporary.beside(path:match "^(.*)/" .. "/rebuild")
  files.remove(folder)
  errors.stored(core.sys.mkdir(folder))
  local from = errors.stored(core.store_place(folder))
  local restore <close> = defer(function()
    files.remove(from)
    files.remove(folder)
  end)
  do
    local store <close> = open(errors.stored(core.store(folder, "w")), root)
    fill(store)
  end
  rebuild.remove(root)
  errors.stored(core.sys.rename(from .. "/runs.db", path))
  errors.stored(core.sys.sync_folder(path:match "^(.*)/"))
end

-- Removes the database of the results folder root; records.open makes it again.
function rebuild.remove(root)
  for _, ending in ipairs { "", "-wal", "-shm", "-journal" } do
    core.sys.remove(trial_files.database(root) .. ending)
  end
end

-- Removes the database of the results folder root, and keeps a copy beside it. Returns the copy's
-- path.
function rebuild.set_aside(root)
  local guard <close> = lock(root)
  local path = trial_files.database(root)
  local copy = trial_files.set_aside_name(path)
  for _, ending in ipairs { "-wal", "-journal", "" } do
    if core.sys.exists(path .. ending) then
      errors.stored(core.sys.link(path .. ending, copy .. ending))
    end
  end
  rebuild.remove(root)
  return copy
end

-- Copies the database of an earlier version from the results folder root to its new place.
function rebuild.import(root)
  local guard <close> = lock(root)
  local path = trial_files.database(root)
  errors.stored(core.sys.mkdir(path:match "^(.*)/"))
  for _, ending in ipairs { "-wal", "" } do
    local text = core.sys.read_file(root .. "/runs.db" .. ending)
    if text then errors.stored(core.sys.write_file(path .. ending, text)) end
  end
end

return rebuild
