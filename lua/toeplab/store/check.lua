-- store/check.lua: checks the integrity of a results folder (database, files of trials, journals,
-- trials marked as running), and repairs it where possible.
local alive = require "toeplab.store.alive"
local core = require "toeplab.core"
local errors = require "toeplab.base.errors"
local journal = require "toeplab.store.journal"
local quantity = require "toeplab.base.quantity"
local rebuild = require "toeplab.store.rebuild"
local replay = require "toeplab.store.replay"
local records = require "toeplab.store.records"
local selection = require "toeplab.store.selection"
local shell = require "toeplab.base.shell"
local trash = require "toeplab.store.trash"
local trial_files = require "toeplab.store.trial_files"
local files_from_rows = require "toeplab.store.files_from_rows"

local Check = {}
Check.__index = Check

function Check:__close()
  if self.store then self.store:close() end
end

-- Adds a finding. lost: whether it is damage, not only disorder; mend: a function of the check that
-- repairs it and returns a description of the repair, or nil if it failed; nil if no repair exists.
function Check:found(lost, mend, format, ...)
  table.insert(self.list, { lost = lost, mend = mend, text = format:format(...) })
end

-- Returns a repair that calls fn() in a transaction, unless a run has begun the trial since the
-- finding.
local function of_trial(check, id, fn)
  return function()
    return check.store:transaction(function()
      local row = check.store:rows(("SELECT id, %s FROM trials WHERE id = ?")
        :format(alive.COLUMNS), { id })[1]
      if row and alive.possibly(check.folder, row) then return "left: a run has begun it" end
      return fn()
    end)
  end
end

local function count_trials(store)
  return store:rows("SELECT count(*) AS n FROM trials")[1].n
end

-- ---- The database -----------------------------------------------------------------------------

-- Rebuilds the database from the files of the folder and opens it; nil if the folder has none.
local function rebuild_database(check)
  if not rebuild.possible(check.folder) then return nil end
  if check.rebuilt then return "rebuilt" end
  check.rebuilt = true
  if check.store then check.store:close() end
  local copy = rebuild.set_aside(check.folder)
  check.store = records.open(check.folder, "u")
  return ("rebuilt from the files of %s; the old database is kept as %s"):format(
    quantity.count(count_trials(check.store), "trial"), copy)
end

local WRONG_LAST = [[WITH m AS (SELECT trial, name, max(step) AS step, value FROM metrics
    GROUP BY trial, name), l AS (SELECT trial, name, step, value FROM last)
  SELECT max((SELECT count(*) FROM (SELECT * FROM m EXCEPT SELECT * FROM l)),
    (SELECT count(*) FROM (SELECT * FROM l EXCEPT SELECT * FROM m))) AS n]]

-- Returns the first damage of the database; nil if there is none. Each test is meaningful only if
-- the one before finds nothing.
local function damage_of(store, quick)
  local _, text = next(store:rows("PRAGMA " .. (quick and "quick_check" or "integrity_check"))[1])
  if text ~= "ok" then return text end
  local rows = store:rows "PRAGMA foreign_key_check"
  if #rows > 0 then
    return ("%d rows refer to missing rows; the first is in table %s"):format(#rows,
      rows[1].table)
  end
  local wrong = store:rows(WRONG_LAST)[1].n
  if wrong == 0 then return nil end
  return quantity.count(wrong, "last value") .. " of metrics disagree with the metrics"
end

local function check_database(check)
  local damage = damage_of(check.store, check.quick)
  if damage then check:found(true, rebuild_database, "runs.db: %s", damage) end
end

-- Finds rows that this program never writes: an id that is not a sha256, or a path that is not
-- runs/ID12/NAME or leads through a symbolic link.
local function check_names(check)
  local store = check.store
  local function refuse(ok, why)
    if not ok then check:found(true, rebuild_database, "%s", why.message) end
  end
  for _, row in ipairs(store:rows "SELECT id FROM trials") do
    if not trial_files.is_id(row.id) then
      refuse(pcall(trial_files.folder, store.folder, row.id))
    end
  end
  for _, row in ipairs(store:rows "SELECT trial, path FROM artifacts") do
    refuse(pcall(trial_files.path, store.folder, row.trial, row))
  end
end

-- ---- Trials -----------------------------------------------------------------------------------

local function check_running(check)
  for _, row in ipairs(selection.running(check.store)) do
    if row.killed then
      check:found(false, of_trial(check, row.id, function()
        check.store:finish(row, "interrupted", "its process is gone")
        return "marked as interrupted"
      end), "trial %s is marked as running, but process %s has died", row.id:sub(1, 12),
        row.pid or "?")
    end
  end
end

-- Finds journals of dead writers that the store has not read; the repair reads them.
local function check_journals(check)
  local store = check.store
  for _, entry in ipairs(store:open_journals()) do
    local path = journal.path(entry.path, entry.attempt)
    if not journal.in_use(store.folder .. "/" .. path) then
      local damage
      if not check.quick then damage = select(3, replay.ends(store.folder .. "/" .. path)) end
      check:found(damage ~= nil, function()
        store:take(entry)
        store:end_journal(entry)
        return "copied to the store"
      end, "%s%s", path, damage and ": " .. damage
        or " is not copied to the store, because a run was killed; the next run copies it")
    end
  end
end

-- Returns the name of a trial's file that disagrees with the row, and why; nil if all agree.
local function damaged_file(folder, row)
  local last_name = ("events-%d.jnl"):format(row.attempt)
  local first, last, why
  for _, name in ipairs(replay.journals(folder)) do
    local at_first, at_last, damage = replay.ends(folder .. "/" .. name)
    if damage then return name, damage end
    if name == last_name then first, last = at_first, at_last end
  end
  if row.attempt > 0 then
    if not core.sys.exists(folder .. "/" .. last_name) then
      why = "is missing"
    elseif not (first and first[1] == "begin" and first[2] == row.attempt
        and first[3] == row.started) then
      why = "is not the journal of the attempt"
    elseif row.status == "done" and last[1] ~= "end" then
      why = "has lost its end"
    end
    if why then return last_name, why end
  end
  if row.marked == 1 and not replay.ends(folder .. "/marks.jnl") then
    return "marks.jnl", "has lost its marks"
  end
end

-- Finds journals and files of sweeps that are missing or damaged; the repair writes them from the
-- rows.
local function check_sources(check)
  local store = check.store
  if check.quick or not rebuild.possible(check.folder) then return end -- of an earlier version
  if check.left > 0 and not check.repair then return end -- damaged rows cannot judge the files
  for _, row in ipairs(store:rows [[SELECT id, attempt, started, status,
      tags <> '' OR notes <> '' OR trashed IS NOT NULL AS marked FROM trials
      WHERE id NOT IN (SELECT trial FROM journals)]]) do
    local folder = trial_files.check_all(store.folder, row.id)
    local name, why = damaged_file(folder, row)
    if why then
      check:found(true, of_trial(check, row.id, function()
        for _, file in ipairs(replay.journals(folder)) do
          local path = folder .. "/" .. file
          if file == name or select(3, replay.ends(path)) then
            errors.stored(core.sys.link(path, trial_files.set_aside_name(path)))
          end
        end
        files_from_rows.again(store, row.id)
        return "written again from the database"
      end), "%s/%s: %s", trial_files.folder(store.folder, row.id), name, why)
    end
  end
  for _, row in ipairs(store:rows "SELECT id FROM sweeps") do
    local path = files_from_rows.sweep_path(store.folder, row.id)
    local why = files_from_rows.sweep_damage(store, row.id, core.sys.read_file(path))
    if why then
      check:found(true, function()
        store:transaction(function() files_from_rows.sweep(store, row.id) end)
        return "written again from the database"
      end, "sweeps/%d.json: %s", row.id, why)
    end
  end
end

-- Finds damaged files of sweeps that were set aside.
local function check_set_aside(check)
  for _, name in ipairs(files_from_rows.damaged_sweeps(check.folder)) do
    check:found(true, nil, "sweeps/%s: damaged: run the command of its trials again, then remove "
      .. "this file", name)
  end
end

-- ---- Files ------------------------------------------------------------------------------------

local function state_of(path, row, quick)
  local file <close> = io.open(path, "rb")
  if not file then return "is missing" end
  if file:seek("end") ~= row.bytes then return "has a different size than when it was stored" end
  if quick then return nil end
  local ok, hash = pcall(core.sha256_file, path)
  if not ok then return "cannot be read: " .. tostring(hash) end
  return hash ~= row.sha256 and "has a different sha256 than when it was stored" or nil
end

-- Returns the set of trials whose files may differ from their rows: running ones, and killed ones
-- whose unread journal may say that files were deleted.
local function busy_trials(store)
  local busy = selection.alive(store)
  for _, row in ipairs(store:rows "SELECT trial FROM journals") do busy[row.trial] = true end
  return busy
end

-- Finds missing and damaged artifacts. The repair keeps a damaged file under another name: parts of
-- it may still be useful.
local function check_artifacts(check)
  local store, busy, count = check.store, busy_trials(check.store), 0
  store.store:each("SELECT trial, kind, step, path, bytes, sha256 FROM artifacts ORDER BY path", {},
    function(row)
      count = count + 1
      local ours, path = pcall(trial_files.path, store.folder, row.trial, row)
      local why = ours and not busy[row.trial] and state_of(path, row, check.quick)
      if not why then return end
      check:found(true, of_trial(check, row.trial, function()
        store:rows("DELETE FROM artifacts WHERE path = ?", { row.path })
        store:rows([[UPDATE trials SET step = (SELECT max(step) FROM artifacts WHERE trial = ?1
          AND kind = 'checkpoint') WHERE id = ?1 AND status <> 'done']], { row.trial })
        files_from_rows.again(store, row.trial)
        if core.sys.exists(path) then core.sys.rename(path, path .. ".damaged") end
        return "its row was dropped" .. (core.sys.exists(path .. ".damaged")
          and ", the file is kept as " .. row.path .. ".damaged" or "")
      end), "%s (%s of step %d) %s", row.path, row.kind, row.step, why)
    end)
  check.files = count
end

local function check_stale(check)
  for _, item in ipairs(trash.stale(check.store)) do
    check:found(false, nil, shell.named "%s: %s (`toeplab rm --purge` deletes it)", item.path,
      item.why)
  end
end

-- ---- The check ---------------------------------------------------------------------------------

-- Copies the database with SQLite or, if it is too damaged for SQLite, byte by byte.
local function backup(store)
  local path = ("%s/runs.db.before-fsck-%s"):format(store.folder, os.date "%Y%m%d-%H%M%S")
  if not pcall(function()
    local reader <close> = records.open(store.folder, "ask") -- does not block writers
    reader:rows "PRAGMA trusted_schema = ON" -- VACUUM parses the CHECKs; it runs no views
    reader:rows("VACUUM INTO ?", { path })
  end) then
    for _, ending in ipairs { "", "-wal" } do
      local text = core.sys.read_file(trial_files.database(store.folder) .. ending)
      if text then errors.stored(core.sys.write_file(path .. ending, text)) end
    end
  end
  return path
end

-- The order matters: journals are copied before their trials are checked.
local checks = { check_database, check_names, check_journals, check_sources, check_set_aside,
  check_running, check_artifacts, check_stale }

-- Runs a check. An error of the store or of the file system counts as damage; others are raised.
local function run_check(check, fn)
  local ok, why = pcall(fn, check)
  if ok then return end
  local damaged = errors.storage_problem(why) or errors.is(why) and why.code == errors.STORAGE
  if not damaged then error(why, 0) end
  check:found(true, rawget(why, "status") == "ECORRUPT" and rebuild_database or nil, "%s",
    errors.text(why))
end

-- Repairs the new findings, if requested, and reports each to the caller.
function Check:settle()
  for _, item in ipairs(self.list) do
    if self.repair and item.mend then
      if self.store and not self.copy then
        self.copy = backup(self.store)
        self.report { copy = self.copy }
      end
      item.how = item.mend(self)
    end
    if item.lost and not item.how then self.left = self.left + 1 end
    self.mendable, self.all = self.mendable or item.mend ~= nil, self.all + 1
    self.report(item)
  end
  self.list = {}
end

-- Opens the store. With repair, rebuilds a corrupt one; raises if it cannot be opened otherwise.
local function open_store(check)
  local folder, repair = check.folder, check.repair
  local ok, store = pcall(records.open, folder, repair and "u" or "r")
  if ok then
    check.store = store
    return
  end
  local text = errors.text(store)
  local damaged = errors.is(store) and store.status == "ECORRUPT"
    and not text:find("newer than", 1, true)
  if not damaged or text:find "schema version %d+ is old" then error(store, 0) end
  if not repair then
    errors.raise(errors.STORAGE, "%s\n`toeplab fsck --repair` rebuilds it from the files of the "
      .. "trials", text)
  end
  check:found(true, rebuild_database, "%s", text)
  check:settle()
end

-- Checks the folder. o: quick (compare sizes of files, not their sha256; skip journals), repair
-- (repair, after a copy of the database). Calls report(item) for each finding: {text=, lost=, how=
-- (the repair, or nil)}, and report {copy= (its path)} when the database has been copied. Returns
-- {trials=, files=, all= (findings), left= (remaining damage), mendable=, copy=}.
local function check_folder(folder, o, report)
  local self <close> = setmetatable({ folder = folder, quick = o.quick, repair = o.repair,
    report = report, list = {}, left = 0, all = 0, files = 0 }, Check)
  open_store(self)
  for _, check in ipairs(checks) do
    run_check(self, check)
    self:settle()
  end
  self.trials = count_trials(self.store)
  return self
end

return { run = check_folder }
