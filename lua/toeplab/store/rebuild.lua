-- store/rebuild.lua: builds a new database from what can be read of a damaged one.
--
-- The rows come from its pages (salvage.lua) and must pass as rows of this program. A trial counts
-- as complete only if SQLite itself, through the trees of the old file, finds as many of its rows
-- as the new file has, with the same state and the same sum of its metrics. Any other trial may
-- have lost rows: it is run again from its beginning, and its recovered rows stay until then.
local core = require "toeplab.core"
local temporary = require "toeplab.base.temporary"
local salvage = require "toeplab.store.salvage"
local errors = require "toeplab.base.errors"
local trash = require "toeplab.store.trash"
local trial_files = require "toeplab.store.trial_files"

local rebuild = {}

local LOST = "its rows come from a damaged database, and some may be lost"

-- ---- Validation of rows ------------------------------------------------------------------------

local function integer(v) return math.type(v) == "integer" end
local function number(v) return type(v) == "number" end
local function text(v) return type(v) == "string" end
local function maybe(is) return function(v) return v == nil or is(v) end end

local id, texts, integers, numbers = trial_files.is_id, maybe(text), maybe(integer), maybe(number)
local function rowid(v) return v == nil end -- stored beside the record

-- For each table: its columns in the order of its records, with what each may hold; least: the
-- number of columns in the oldest schema; rows: whether its rows have a rowid.
local tables = {
  { name = "sweeps", least = 9, rows = true, { "id", rowid }, { "experiment", text },
    { "script", text }, { "sha256", text }, { "source", text }, { "command", text },
    { "scale", text }, { "plan", text }, { "created", number } },
  { name = "trials", least = 22, rows = true, { "id", id }, { "sweep", integers },
    { "experiment", text }, { "config", text }, { "seed", integer }, { "code_hash", text },
    { "data_hash", text }, { "status", text }, { "attempt", integer }, { "step", integers },
    { "created", number }, { "started", numbers }, { "finished", numbers }, { "host", texts },
    { "pid", integers }, { "error", texts }, { "command", texts }, { "git_commit", texts },
    { "git_dirty", integers }, { "provenance", text }, { "tags", text }, { "notes", text },
    { "seconds", numbers }, { "ended", texts }, { "trashed", numbers },
    { "numerics", integers } },
  { name = "events", least = 6, rows = true, { "id", rowid }, { "trial", id },
    { "created", number }, { "step", integer }, { "kind", text }, { "text", text } },
  { name = "members", least = 3, { "sweep", integer }, { "position", integer }, { "trial", id } },
  { name = "artifacts", least = 7, { "trial", id }, { "kind", text }, { "step", integer },
    { "path", text }, { "bytes", integer }, { "sha256", id }, { "created", number } },
  { name = "metrics", least = 4, { "trial", id }, { "name", text }, { "step", integer },
    { "value", numbers }, { "at", integers } }, -- the same without `at` for table last
}

local function fits(kind, values, row)
  if values.n < kind.least or values.n > #kind or (row ~= nil) ~= (kind.rows or false) then
    return false
  end
  for i = 1, values.n do
    if not kind[i][2](values[i]) then return false end
  end
  return true
end

local function kind_of(values, row)
  for _, kind in ipairs(tables) do
    if fits(kind, values, row) then return kind end
  end
end

-- ---- Insertion ---------------------------------------------------------------------------------

-- Inserts a row; returns false if that breaks a constraint (the key is taken, the trial is
-- missing).
local function insert(new, kind, values)
  local names, places = {}, {}
  for i, column in ipairs(kind) do names[i], places[i] = column[1], "?" end
  values.n = #kind
  if kind.name == "artifacts"
    and not pcall(trial_files.check_row, "", values[1], { path = values[4] }) then
    return false
  end
  local more = kind.name == "metrics"
    and " ON CONFLICT (trial, name, step) DO UPDATE SET at = coalesce(at, excluded.at)" or ""
  local ok, why = pcall(new.exec, new, ("INSERT INTO %s (%s) VALUES (%s)%s"):format(kind.name,
    table.concat(names, ", "), table.concat(places, ", "), more), values)
  if not ok and why.status ~= "EINVAL" then error(why, 0) end
  return ok
end

-- Returns whether row a of a trial is newer than its row b; the older one is the remnant of an
-- earlier page.
local function newer_row(a, b)
  local x, y = a.values, b.values
  if x[9] ~= y[9] then return x[9] > y[9] end -- attempt
  return (x[13] or x[12] or 0) > (y[13] or y[12] or 0) -- finished, started
end

-- Reads all rows of a file except metrics: {values=, row= (its rowid, or nil)} by table, in order
-- of their rowids; of several rows of one trial, only the newest. The second result is the number
-- of unreadable pages.
local function read_rows(file)
  local found, known = {}, {}
  for _, kind in ipairs(tables) do found[kind.name] = {} end
  local bad = file:records(function(values, row)
    local kind = kind_of(values, row)
    if not kind or kind.name == "metrics" then return end
    if kind[1][1] == "id" and row and kind.name ~= "trials" then values[1] = row end
    local item = { values = values, row = row }
    local other = kind.name == "trials" and known[values[1]]
    if other then
      if newer_row(item, other) then other.values = values end
      return
    end
    if kind.name == "trials" then known[values[1]] = item end
    table.insert(found[kind.name], item)
  end)
  for _, list in pairs(found) do
    table.sort(list, function(a, b) return (a.row or 0) < (b.row or 0) end)
  end
  return found, bad
end

-- Returns the id of the trial that a row belongs to; nil for a table without such a column.
local function trial_of(kind, values)
  for i, column in ipairs(kind) do
    if column[1] == "trial" then return values[i] end
  end
end

-- Fills the new store from file. Returns {kept=, dropped=} by table, with lost= (the number of
-- trials that rows of other tables name and that have no row of their own), and the number of bad
-- pages.
local function fill(new, file)
  local counts, missing = { lost = 0 }, {}
  local found, bad = read_rows(file)
  local function add(kind, values)
    local count = counts[kind.name] or { kept = 0, dropped = 0 }
    local how = insert(new, kind, values) and "kept" or "dropped"
    counts[kind.name], count[how] = count, count[how] + 1
    local trial = how == "dropped" and trial_of(kind, values)
    if trial and missing[trial] == nil then
      missing[trial] = #new:exec("SELECT 1 FROM trials WHERE id = ?", { trial }) == 0
      counts.lost = counts.lost + (missing[trial] and 1 or 0)
    end
  end
  for _, kind in ipairs(tables) do
    for _, item in ipairs(found[kind.name]) do
      local sweep = item.values[2]
      if kind.name == "trials" and sweep
        and #new:exec("SELECT 1 FROM sweeps WHERE id = ?", { sweep }) == 0 then
        item.values[2] = nil
      end
      add(kind, item.values)
    end
  end
  file:records(function(values, row)
    local kind = kind_of(values, row)
    if kind and kind.name == "metrics" then
      if values[4] then values[4] = values[4] + 0.0 end
      add(kind, values)
    end
  end)
  return counts, bad
end

-- ---- Completeness of trials --------------------------------------------------------------------

-- Returns what SQLite finds of a trial in store, as text; nil if it has no row or its last values
-- disagree with its metrics. Raises if SQLite cannot read all of it.
local function trial_digest(store, trial)
  local row = store:exec([[SELECT status, attempt, coalesce(step, -1) AS step,
    (SELECT count(*) FROM metrics WHERE trial = ?1) AS metrics,
    (SELECT total(value) FROM metrics WHERE trial = ?1) AS sum,
    (SELECT count(*) FROM artifacts WHERE trial = ?1) AS artifacts,
    (SELECT count(*) FROM last l WHERE trial = ?1 AND NOT EXISTS (SELECT 1 FROM metrics m
      WHERE m.trial = ?1 AND m.name = l.name AND m.step = l.step AND m.value IS l.value)) AS odd
    FROM trials WHERE id = ?1]], { trial })[1]
  return row and row.odd == 0 and ("%s %d %d %d %a %d"):format(row.status, row.attempt,
    row.step, row.metrics, row.sum, row.artifacts) or nil
end

-- Copies how far the journal of a trial has been read; raises if that cannot be read.
local function copy_journal(old, new, trial)
  for _, j in ipairs(old:exec("SELECT attempt, bytes FROM journals WHERE trial = ?", { trial })) do
    new:exec("INSERT INTO journals VALUES (?, ?, ?)", { trial, j.attempt, j.bytes })
  end
end

-- Queues the trial to run again. Its checkpoints stay, under kinds from which no run resumes.
local function start_over(new, trial)
  new:exec([[UPDATE trials SET status = CASE status WHEN 'queued' THEN status ELSE 'interrupted'
    END, ended = NULL, step = NULL, seconds = NULL, error = ? WHERE id = ?]], { LOST, trial })
  new:exec([[UPDATE artifacts SET kind = 'recovered-' || kind WHERE trial = ?
    AND kind IN ('checkpoint', 'best')]], { trial })
  -- The new run overwrites rows at its own steps; it never meets those below zero.
  new:exec("DELETE FROM metrics WHERE trial = ? AND coalesce(at, step) < 0", { trial })
end

-- Compares all trials of the new store with the old one (nil: SQLite cannot open it). Returns how
-- many must run again.
local function compare(old, new)
  local again = 0
  for _, row in ipairs(new:exec "SELECT id FROM trials") do
    local is = trial_digest(new, row.id)
    local fine, was = pcall(trial_digest, old, row.id)
    fine = fine and was ~= nil and was == is
    if not (fine and pcall(copy_journal, old, new, row.id)) then
      start_over(new, row.id)
      again = again + 1
    end
  end
  return again
end

-- ---- Files ------------------------------------------------------------------------------------

local function copy(from, to)
  if not core.sys.exists(from) then return end
  local source <close> = errors.stored(io.open(from, "rb"))
  local target <close> = errors.stored(io.open(to, "wb"))
  for block in function() return source:read(1 << 20) end do errors.stored(target:write(block)) end
  errors.stored(core.sys.sync(target))
end

-- Returns an unused name for a file that is moved aside.
local function unused_name(path)
  local name, count = ("%s.damaged-%s"):format(path, os.date "%Y%m%d-%H%M%S"), 1
  local free = name
  while core.sys.exists(free) do count, free = count + 1, ("%s-%d"):format(name, count + 1) end
  return free
end

-- Opens a copy of the damaged database with SQLite: as it is, else with the header of its first
-- page repaired from model, else with the whole page of model. Returns nil if nothing helps.
local function open_old(folder, path, model)
  for _, mend in ipairs { "none", "header", "page" } do
    copy(path, folder .. "/runs.db")
    copy(path .. "-wal", folder .. "/runs.db-wal")
    if mend ~= "none" then
      salvage.mend_header(folder .. "/runs.db", model, mend == "page")
      core.sys.remove(folder .. "/runs.db-shm")
    end
    local old = core.store(folder, "r")
    if old then return old end
  end
end

-- Builds folder/new/runs.db from the database at path.
local function build_database(folder, path)
  local new = errors.stored(core.store(folder .. "/new", "w"))
  new:close() -- flushes the log: its first page serves as model
  local model = assert(io.open(folder .. "/new/runs.db", "rb")):read(4096)
  new = errors.stored(core.store(folder .. "/new", "w"))
  local file = salvage.open(path)
  new:exec "BEGIN IMMEDIATE"
  local counts, bad = fill(new, file)
  local old = open_old(folder .. "/old", path, model)
  counts.again, counts.bad, counts.pages = compare(old, new), bad, file.count
  new:exec "COMMIT"
  new:close()
  if old then old:close() end
  file:close()
  return counts
end

-- Locks root against other writers until the returned file is closed; raises a LOCKED error if the
-- folder is in use.
local function lock(root)
  errors.stored(core.store_check_folder(root))
  local file = errors.stored(io.open(root .. "/lock", "a"))
  if not core.sys.lock(file) then
    errors.raise(errors.LOCKED, "%s: another process writes here", root)
  end
  return file
end

-- Replaces the damaged database in the results folder root by a new one, and keeps the damaged one
-- beside it. Returns {kept=, dropped=} by table, again (the number of trials to run again), bad
-- (the number of unreadable pages) of pages (all of them), and copy (the new path of the damaged
-- one).
function rebuild.run(root)
  local guard <close> = lock(root)
  local path = root .. "/runs.db"
  local folder = temporary.beside(root .. "/rebuild")
  local kind, link = core.sys.kind(folder)
  if kind or link then errors.raise(errors.STORAGE, "%s exists already", folder) end
  for _, name in ipairs { "old", "new" } do errors.stored(core.sys.mkdir(folder .. "/" .. name)) end
  local ok, counts = pcall(build_database, folder, path)
  if ok then
    counts.copy = unused_name(path)
    for _, ending in ipairs { "", "-wal", "-journal" } do
      copy(path .. ending, counts.copy .. ending)
    end
    for _, ending in ipairs { "-wal", "-shm", "-journal" } do core.sys.remove(path .. ending) end
    errors.stored(core.sys.rename(folder .. "/new/runs.db", path)) -- so that runs.db always exists
    errors.stored(core.sys.sync_folder(root))
  end
  trash.remove(folder)
  if not ok then error(counts, 0) end
  return counts
end

return rebuild
