-- store/rebuild.lua: makes the rows of runs.db from the files of a results folder, which are the
-- truth: what commands asked for (sweeps/N.json) and what became of the trials (replay.lua). All
-- rows are made where runs.db is missing or damaged; those that the news tell of are made again
-- where other processes have changed files.
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local files = require "toeplab.base.files"
local journal = require "toeplab.store.journal"
local news = require "toeplab.store.news"
local replay = require "toeplab.store.replay"
local temporary = require "toeplab.base.temporary"
local trial_files = require "toeplab.store.trial_files"
local written = require "toeplab.store.written"

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

-- Returns an unused name for a file that is moved aside.
local function unused_name(path)
  local name, count = ("%s.damaged-%s"):format(path, os.date "%Y%m%d-%H%M%S"), 1
  local free = name
  while core.sys.exists(free) do count, free = count + 1, ("%s-%d"):format(name, count + 1) end
  return free
end

-- Inserts the rows of sweep id, and those of its trials, from its file. A damaged file is moved
-- aside: the command of the sweep makes it again, with what the files of its trials say.
local function add_sweep(store, id, warn)
  local path = written.sweep_path(store.folder, id)
  local text = core.sys.read_file(path)
  store:rows "SAVEPOINT sweep"
  local damage = written.sweep_damage(store, id, text)
  local ok = not damage and pcall(function()
    for _, sql in ipairs { SWEEP, TRIALS, MEMBERS } do store:rows(sql, { text, id }) end
  end)
  if not ok then
    local copy = unused_name(path)
    store:rows "ROLLBACK TO sweep"
    errors.stored(core.sys.rename(path, copy))
    warn("%s %s: it is kept as %s; the command of its trials makes it again, and then has what "
      .. "their files say", path, damage or "holds rows that are wrong", copy)
  end
  store:rows "RELEASE sweep"
end

-- Returns the set of the folders of trials that there are, relative to that of the store.
local function folders(store)
  local there = {}
  for _, name in ipairs(core.sys.list(store.folder .. "/runs") or {}) do
    there["runs/" .. name] = true
  end
  return there
end

-- ---- What has changed --------------------------------------------------------------------------

-- Makes the rows of sweep id again.
local function renew_sweep(store, id, warn)
  store:rows("DELETE FROM members WHERE sweep = ?", { id })
  add_sweep(store, id, warn)
end

-- Makes the rows of trial id again, of whose attempts number `last` has begun.
local function renew_trial(store, id, last, warn)
  for _, name in ipairs { "last", "metrics", "artifacts", "events", "journals" } do
    store:rows(("DELETE FROM %s WHERE trial = ?"):format(name), { id })
  end
  local there = store:rows([[UPDATE trials SET status = 'queued', ended = NULL, attempt = 0,
    step = NULL, seconds = NULL, started = NULL, finished = NULL, error = NULL, pid = NULL,
    host = NULL, command = NULL, git_commit = NULL, git_dirty = NULL, tags = '', notes = '',
    trashed = NULL, provenance = json_object('label', provenance ->> '$.label') WHERE id = ?
    RETURNING id]], { id })[1]
  if there then replay.trial(store, id, trial_files.folder(store.folder, id), warn, last) end
end

-- Returns the trials whose journals runs of other machines write: {id=, attempt=}.
local function of_others(store)
  return store:rows([[SELECT id, j.attempt FROM trials JOIN journals j ON id = trial
    WHERE host <> ?]], { core.sys.hostname() })
end

-- Whether the files of the folder root show what a line of news tells of.
local function shows(root, kind, name, number)
  if kind == "sweep" then return core.sys.exists(written.sweep_path(root, tonumber(name))) end
  if kind ~= "begin" and kind ~= "mark" or not trial_files.is_id(name) then return true end
  local folder = trial_files.folder(root, name)
  if kind == "begin" then return core.sys.exists(root .. "/" .. journal.path(folder, number)) end
  return (core.sys.size(("%s/%s/marks.jnl"):format(root, folder)) or 0) > number
end

-- Brings the rows of a store up to date with the news, in a transaction.
function rebuild.catch_up(store, warn)
  if not news.unread(store) then return end
  if news.any_read(store) and news.foreign(store) then
    errors.raise(errors.STORAGE, "%s: another folder was put into its place: give the command "
      .. "again", store.folder)
  end
  local root = store.folder
  local changed = news.take(store, function(...) return shows(root, ...) end)
  for id in pairs(changed.gone) do replay.delete(store, id) end
  for id in pairs(changed.dropped) do store:rows("DELETE FROM sweeps WHERE id = ?", { id }) end
  local trials, there = {}, next(changed.sweep) and folders(store) or {}
  for id in pairs(changed.sweep) do
    if shows(root, "sweep", id) then renew_sweep(store, math.tointeger(tonumber(id)), warn) end
    -- A merge copies the files of trials before those of their sweeps.
    for _, row in ipairs(store:rows([[SELECT id FROM trials WHERE attempt = 0 AND (sweep = ?1
        OR id IN (SELECT trial FROM members WHERE sweep = ?1))]], { id })) do
      trials[row.id] = there[trial_files.folder(root, row.id)] and 0
    end
  end
  for _, kind in ipairs { "files", "mark", "begin" } do
    for id, number in pairs(changed[kind]) do trials[id] = kind == "begin" and number or 0 end
  end
  for id, last in pairs(trials) do renew_trial(store, id, last, warn) end
end

-- Brings the rows up to date with what other processes have written.
function rebuild.refresh(store)
  if not of_others(store)[1] and not news.unread(store) then return end
  store:transaction(function()
    for _, row in ipairs(of_others(store)) do
      row.path = trial_files.folder(store.folder, row.id)
      if store:take(row) then store:end_journal(row) end
    end
  end)
end

-- Whether the rows may be behind the files. A process of this machine that holds the store is about
-- to store what it has told of.
function rebuild.is_behind(store)
  return of_others(store)[1] ~= nil or news.unread(store) and (store:is_elsewhere()
    or not journal.in_use(store.folder .. "/lock"))
end

-- ---- The whole folder -------------------------------------------------------------------------

-- Fills the empty store from the files in its folder. Returns the number of trials.
local function fill(store, warn)
  local ids = {}
  for id in pairs(trial_files.sweeps(store.folder)) do ids[#ids + 1] = id end
  table.sort(ids)
  local there = folders(store)
  store.filling = true
  store:transaction(function()
    for _, id in ipairs(ids) do add_sweep(store, id, warn) end
  end)
  local list = store:rows "SELECT id FROM trials"
  store:transaction(function()
    for _, row in ipairs(list) do
      local folder = trial_files.folder(store.folder, row.id)
      if there[folder] then replay.trial(store, row.id, folder, warn) end
    end
    news.skip(store)
  end)
  return #list
end

-- Whether the files in the results folder root can make a database.
function rebuild.possible(root) return next(trial_files.sweeps(root)) ~= nil end

-- Locks root against other writers until the returned file is closed, and waits for one that is at
-- work. Returns nil where this user may only read and the database lies elsewhere.
local function lock(root)
  errors.stored(core.store_check_folder(root))
  local file, why = io.open(root .. "/lock", "a")
  if not file and core.store_place(root) ~= root then return nil end
  errors.stored(file, why)
  while not journal.lock(file, root .. "/lock") do
    core.sys.sleep(PAUSE_SECONDS)
    errors.check_signals()
  end
  return file
end

-- Makes the database of the results folder root while it is locked. open: makes a store of the
-- records from that of the engine and its folder.
local function make(root, open, warn)
  local place = trial_files.database(root):match "^(.*)/"
  local folder = temporary.beside(place .. "/rebuild")
  files.remove(folder)
  errors.stored(core.sys.mkdir(folder))
  local from = errors.stored(core.store_place(folder))
  local ok, count = pcall(function()
    local store <close> = open(errors.stored(core.store(folder, "w")), root)
    return fill(store, warn)
  end)
  if ok then
    local path = place .. "/runs.db"
    for _, ending in ipairs { "-wal", "-shm", "-journal" } do core.sys.remove(path .. ending) end
    errors.stored(core.sys.rename(from .. "/runs.db", path))
    errors.stored(core.sys.sync_folder(place))
  end
  files.remove(from)
  files.remove(folder)
  if not ok then error(count, 0) end
  return count
end

-- Makes the database of the results folder root if there is none.
function rebuild.ensure(root, open)
  local guard <close> = lock(root)
  if not core.sys.exists(trial_files.database(root)) then make(root, open, errors.say) end
end

-- Copies a database that an earlier version has left in the results folder root to its place.
function rebuild.import(root)
  local guard <close> = lock(root)
  local path = trial_files.database(root)
  errors.stored(core.sys.mkdir(path:match "^(.*)/"))
  for _, ending in ipairs { "-wal", "" } do
    local text = core.sys.read_file(root .. "/runs.db" .. ending)
    if text then errors.stored(core.sys.write_file(path .. ending, text)) end
  end
end

-- Removes a copy that is not upgraded yet: the earlier version may go on to write to the original.
function rebuild.forget_import(root)
  local path = trial_files.database(root)
  if path == root .. "/runs.db" then return end
  for _, ending in ipairs { "", "-wal", "-shm" } do core.sys.remove(path .. ending) end
end

-- Makes the database of the results folder root again: its rows are not those of the folder.
function rebuild.again(root, open)
  local guard <close> = lock(root)
  make(root, open, errors.say)
end

-- Makes the database of the results folder root again, and keeps the damaged one beside it. Returns
-- the number of trials, and the new path of the damaged one.
function rebuild.replace(root, open)
  local guard <close> = lock(root)
  local path = trial_files.database(root)
  local copy = unused_name(path)
  for _, ending in ipairs { "", "-wal", "-journal" } do
    if core.sys.exists(path .. ending) then
      errors.stored(core.sys.link(path .. ending, copy .. ending))
    end
  end
  return make(root, open, errors.say), copy
end

return rebuild
