-- store/merge.lua: copies the trials of another results folder into this one. Repeating a merge
-- changes nothing.
--
-- The files of a trial are copied to a temporary folder, and their sha256 verified. If the trial is
-- then still to be copied (a run may have begun it), one transaction gives them their names and
-- inserts the rows. A kill leaves a temporary folder, which toeplab rm --purge removes.
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local files = require "toeplab.base.files"
local temporary = require "toeplab.base.temporary"
local errors = require "toeplab.base.errors"
local sorted_keys = require "toeplab.base.sorted_keys"
local trial_files = require "toeplab.store.trial_files"
local written = require "toeplab.store.written"

local merge = {}

local CHUNK = 1 << 20

local copied = { "experiment", "config", "seed", "code_hash", "data_hash", "status", "attempt",
  "step", "created", "started", "finished", "host", "pid", "error", "command", "git_commit",
  "git_dirty", "provenance", "tags", "notes", "seconds", "ended", "numerics" }

-- ---- Decisions ---------------------------------------------------------------------------------

-- Ranks how far a trial has come: finished trials rank above all others, the rest rank by their
-- checkpoint, and at the same checkpoint those that were ended early rank above those that broke
-- off. Without a checkpoint, a queued trial ranks below one that has run.
local function progress_rank(row)
  if row.status == "queued" then return row.step or -2 end
  if row.status ~= "done" then return row.step or -1 end
  return row.ended and (row.step or -1) + 0.5 or math.huge
end

-- Words of the names of metrics that describe the machine, and so differ on another one.
local of_machine = {}
for word in ([[hours minutes second seconds milliseconds ms microseconds time times runtime walltime
    latency speed speedup memory bytes mb mib gb gib]]):gmatch "%S+" do
  of_machine[word] = true
end

local function is_of_machine(name)
  for word in name:lower():gmatch "%a+" do
    if of_machine[word] then return true end
  end
  return false
end

local function last_values(store, id)
  local values = {}
  for _, row in ipairs(store:rows("SELECT name, step, value FROM last WHERE trial = ?", { id })) do
    if not is_of_machine(row.name) then values[row.name] = row end
  end
  return values
end

local function word_of(m)
  return m and ("%.9g at step %d"):format(m.value or 0 / 0, m.step) or "none"
end

-- Returns descriptions of the differences between the last values of a trial here and there, in
-- order of metrics; none if they are equal. Metrics of the machine are left out.
local function differences(store, other, id)
  local ours, theirs, list = last_values(store, id), last_values(other, id), {}
  for name, m in pairs(ours) do
    local n = theirs[name]
    if not n or n.step ~= m.step or n.value ~= m.value then
      list[#list + 1] = ("%s is %s here and %s there"):format(name, word_of(m), word_of(n))
    end
  end
  for name, n in pairs(theirs) do
    if not ours[name] then
      list[#list + 1] = ("%s is %s here and %s there"):format(name, "none", word_of(n))
    end
  end
  table.sort(list)
  return list
end

-- Decides what to do with a trial: "add", "replace", "same", "conflict", "ahead" (ours is further),
-- "busy" (it runs here or there, or has an unread journal), "trash" (ours is in the trash). The
-- second result of "conflict" is the list of differences. Unfinished trials of equal progress count
-- as the same.
local function decide(store, other, theirs)
  if theirs.status == "running" or theirs.open then return "busy" end
  local ours = store:rows([[SELECT status, step, ended, trashed, EXISTS (SELECT 1 FROM journals
    WHERE trial = trials.id) AS open FROM trials WHERE id = ?]], { theirs.id })[1]
  if not ours then return "add" end
  if ours.trashed then return "trash" end
  if ours.status == "running" or ours.open == 1 then return "busy" end
  if progress_rank(theirs) > progress_rank(ours) then return "replace" end
  if progress_rank(theirs) < progress_rank(ours) then return "ahead" end
  if theirs.status ~= "done" or ours.status ~= "done" then return "same" end
  local list = differences(store, other, theirs.id)
  return #list == 0 and "same" or "conflict", list
end

-- ---- Files ------------------------------------------------------------------------------------

local function pour(from, to)
  for chunk in function() return from:read(CHUNK) end do
    local ok, why = to:write(chunk)
    if not ok then return nil, why end
  end
  return core.sys.sync(to)
end

-- Copies a file to temp, unless the one at `to` has this sha256 already. Returns false if the
-- source cannot be opened or the copy has another sha256; raises if the copy cannot be written.
local function copy(from, temp, to, sha256)
  if trial_files.intact(to, sha256) then return true end
  local source <close> = io.open(from, "rb")
  if not source then return false end
  local target, why = io.open(temp, "wb")
  local ok = target ~= nil
  if ok then ok, why = pour(source, target) end
  if target then target:close() end
  if not ok then errors.raise(errors.STORAGE, "%s: %s", to, why) end
  return trial_files.intact(temp, sha256)
end

-- Copies the files of a trial and its log into a temporary folder. Returns its path, the undamaged
-- artifacts, and the paths of the damaged ones.
local function copy_files(store, other, id)
  local good, bad, folder = {}, {}, trial_files.folder(store.folder, id)
  local there = other.folder .. "/" .. trial_files.folder(other.folder, id)
  trial_files.make(store.folder, "runs")
  local temp = temporary.beside(store.folder .. "/" .. folder)
  files.remove(temp)
  errors.stored(core.sys.mkdir(temp))
  for _, a in ipairs(other:rows("SELECT * FROM artifacts WHERE trial = ?", { id })) do
    local from = trial_files.path(other.folder, id, a)
    local list = copy(from, temp .. from:match "/[^/]*$", trial_files.path(store.folder, id, a),
      a.sha256) and good or bad
    list[#list + 1] = a
  end
  local log = there .. "/log.txt"
  local kind, link = core.sys.kind(log)
  if kind == "file" and not link then
    local ok, hash = pcall(core.sha256_file, log)
    if ok then copy(log, temp .. "/log.txt", store.folder .. "/" .. folder .. "/log.txt", hash) end
  end
  for i, a in ipairs(bad) do
    core.sys.remove(temp .. a.path:match "/[^/]*$")
    bad[i] = other.folder .. "/" .. a.path
  end
  return temp, good, bad
end

-- Moves the files in the temporary folder to the folder of a trial.
local function move_files(store, temp, id)
  local here = trial_files.make(store.folder, trial_files.folder(store.folder, id))
  for _, name in ipairs(core.sys.list(temp) or {}) do
    errors.stored(core.sys.rename(temp .. "/" .. name, here .. "/" .. name))
  end
  errors.stored(core.sys.sync_folder(here)) -- the files must be durable before rows name them
end

-- ---- Rows -------------------------------------------------------------------------------------

-- Returns tags and notes of a trial here with those from there: no merge drops what a user wrote.
local function marks_of_both(store, theirs)
  local ours = store:rows("SELECT tags, notes FROM trials WHERE id = ?", { theirs.id })[1]
  if not ours then return theirs.tags, theirs.notes end
  local set, lines = {}, { ours.notes ~= "" and ours.notes or nil }
  for tag in (ours.tags .. " " .. theirs.tags):gmatch "%S+" do set[tag] = true end
  for line in theirs.notes:gmatch "[^\n]+" do
    if not ("\n" .. ours.notes .. "\n"):find("\n" .. line .. "\n", 1, true) then
      lines[#lines + 1] = line
    end
  end
  return table.concat(sorted_keys(set), " "), table.concat(lines, "\n")
end

-- Returns the id here of the sweep that has this id there, inserting its row if necessary; nil for
-- nil. known: a cache of these ids.
local function sweep_of(store, other, id, known)
  if not id then return nil end
  if not known[id] then
    local s = other:rows("SELECT *, round(created, 3) AS created FROM sweeps WHERE id = ?",
      { id })[1]
    known[id] = store:sweep(s)
    written.sweep(store, known[id])
    store:rows("UPDATE sweeps SET created = max(created, ?) WHERE id = ?", { s.created, known[id] })
  end
  return known[id]
end

local function insert_trial(store, theirs, sweep)
  local names, places, values = { "id", "sweep" }, { "?", "?" }, { theirs.id, sweep }
  for i, name in ipairs(copied) do
    names[i + 2], places[i + 2], values[i + 2] = name, "?", theirs[name]
  end
  values.n = #names
  local updates = {}
  for i, name in ipairs(copied) do updates[i] = ("%s = excluded.%s"):format(name, name) end
  store:rows(("INSERT INTO trials (%s) VALUES (%s) ON CONFLICT (id) DO UPDATE SET %s")
    :format(table.concat(names, ", "), table.concat(places, ", "), table.concat(updates, ", ")),
    values)
end

local function copy_rows(store, other, theirs, artifacts, sweep)
  local id = theirs.id
  theirs.tags, theirs.notes = marks_of_both(store, theirs)
  for _, name in ipairs { "last", "metrics", "artifacts", "events" } do
    store:rows(("DELETE FROM %s WHERE trial = ?"):format(name), { id })
  end
  insert_trial(store, theirs, sweep)
  local sql = "SELECT name, step, value, at FROM metrics WHERE trial = ? ORDER BY name, step"
  other.store:each(sql, { id }, function(m)
    store:rows("INSERT INTO metrics VALUES (?, ?, ?, ?, ?)",
      { id, m.name, m.step, m.value, m.at, n = 5 })
  end)
  for _, a in ipairs(artifacts) do
    store:rows("INSERT INTO artifacts VALUES (?, ?, ?, ?, ?, ?, ?)",
      { id, a.kind, a.step, a.path, a.bytes, a.sha256, a.created })
  end
  for _, e in ipairs(other:rows("SELECT * FROM events WHERE trial = ? ORDER BY id", { id })) do
    store:rows("INSERT INTO events (trial, created, step, kind, text) VALUES (?, ?, ?, ?, ?)",
      { id, e.created, e.step, e.kind, e.text })
  end
end

-- If both sides are finished and differ, ours stays, and a single event records the conflict.
local function note_conflict(store, theirs, list)
  local text = ("the results of %s on %s differ: %s"):format((theirs.git_commit or "?"):sub(1, 12),
    theirs.host or "?", table.concat(list, "; "))
  if #store:rows("SELECT 1 FROM events WHERE trial = ? AND kind = 'conflict' AND text = ?",
    { theirs.id, text }) == 0 then
    store:event(theirs.id, 0, "conflict", text)
  end
end

-- Gives a row if the trials a and b have equal configuration, seed and data, and only b finished.
-- Their ids differ, so other code made them.
local TWINS = [[SELECT 1 FROM trials a, trials b WHERE a.id = ? AND b.id = ?
  AND (a.status <> 'done' OR a.ended IS NOT NULL)
  AND b.status = 'done' AND b.ended IS NULL AND b.trashed IS NULL
  AND a.config = b.config AND a.seed = b.seed AND a.data_hash = b.data_hash]]

-- Copies the members of sweeps in order, as far as their trials are here. An unfinished member of
-- ours is replaced by a finished one that other code made. Returns the number of replacements.
local function copy_members(store, other, known)
  local others = 0
  for _, s in ipairs(other:rows "SELECT id FROM sweeps") do
    local sweep = sweep_of(store, other, s.id, known)
    for _, m in ipairs(other:rows("SELECT * FROM members WHERE sweep = ?", { s.id })) do
      local ours = store:rows("SELECT trial FROM members WHERE sweep = ? AND position = ?",
        { sweep, m.position })[1]
      if ours and #store:rows(TWINS, { ours.trial, m.trial }) > 0 then
        store:rows("UPDATE members SET trial = ? WHERE sweep = ? AND position = ?",
          { m.trial, sweep, m.position })
        others = others + 1
      end
      store:rows([[INSERT OR IGNORE INTO members SELECT ?, ?, id FROM trials WHERE id = ?]],
        { sweep, m.position, m.trial })
    end
  end
  return others
end

-- ---- The merge ---------------------------------------------------------------------------------

-- Decides again about an unfinished trial that is further there, by its newest checkpoint that is
-- intact: damaged ones must not displace those of the trial here. Returns the decision, and the
-- paths of the damaged ones if these are why the trial here stays.
local function decide_by_checkpoints(store, other, theirs)
  local bad, step = {}, nil
  for _, a in ipairs(other:rows([[SELECT * FROM artifacts WHERE trial = ? AND kind = 'checkpoint'
      ORDER BY step DESC]], { theirs.id })) do
    if trial_files.intact(trial_files.path(other.folder, theirs.id, a), a.sha256) then
      step = a.step
      break
    end
    bad[#bad + 1] = other.folder .. "/" .. a.path
  end
  if #bad > 0 then theirs.step = step end
  local what = decide(store, other, theirs)
  return what, what == "replace" and {} or bad
end

-- Refuses the other folder as a whole, before any change, if one of its rows is not as this program
-- writes them.
local function check_rows(other)
  for _, row in ipairs(other:rows "SELECT id FROM trials") do
    trial_files.folder(other.folder, row.id)
  end
  other.store:each("SELECT trial, path FROM artifacts", {}, function(a)
    trial_files.check_row(other.folder, a.trial, a)
  end)
end

-- Merges the trials of other into store (both of records, this one opened for writing). dry: only
-- decides. Returns counts by decision, with lists conflicts ({id=, differences=}) and damaged
-- (paths), and others: the number of our members that trials of other code replaced.
function merge.run(store, other, dry)
  local result = { add = 0, replace = 0, same = 0, conflict = 0, ahead = 0, busy = 0, trash = 0,
    others = 0, conflicts = {}, damaged = {} }
  local known = {}
  other:hold()
  check_rows(other)
  for _, row in ipairs(other:rows [[SELECT id FROM trials WHERE trashed IS NULL
      ORDER BY created, rowid]]) do
    local theirs = other:rows("SELECT *, round(created, 3) AS created FROM trials WHERE id = ?",
      { row.id })[1]
    theirs.open = #other:rows("SELECT 1 FROM journals WHERE trial = ?", { row.id }) > 0
    local what, list = decide(store, other, theirs)
    if what == "replace" and theirs.status ~= "done" then
      what, list = decide_by_checkpoints(store, other, theirs)
      table.move(list, 1, #list, #result.damaged + 1, result.damaged)
    end
    result[what] = result[what] + 1
    if what == "conflict" then
      table.insert(result.conflicts, { id = row.id, differences = list })
      if not dry then note_conflict(store, theirs, list) end
    elseif (what == "add" or what == "replace") and not dry then
      local temp, good, bad = copy_files(store, other, row.id)
      local guard <close> = defer(function() files.remove(temp) end)
      table.move(bad, 1, #bad, #result.damaged + 1, result.damaged)
      store:transaction(function()
        local now = decide(store, other, theirs)
        if now ~= what then -- a run has begun it, or rm moved it to the trash
          result[what], result[now] = result[what] - 1, result[now] + 1
          return
        end
        move_files(store, temp, row.id)
        copy_rows(store, other, theirs, good, sweep_of(store, other, theirs.sweep, known))
        written.trial(store, row.id)
      end)
    end
  end
  if not dry then
    store:transaction(function()
      result.others = copy_members(store, other, known)
      for _, id in pairs(known) do written.sweep(store, id) end
    end)
  end
  other:live()
  return result
end

return merge
