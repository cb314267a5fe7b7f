-- store/merge.lua: copies the trials of another results folder into this one. A repeated merge
-- changes nothing. In comments, "theirs" is the other folder, "ours" this one.
--
-- A trial's files are copied to a temporary folder, and their sha256 verified. Then one transaction
-- checks that no run has begun the trial meanwhile, moves the files to their place, writes a
-- journal from their rows, and makes our rows from the journal. A kill leaves a temporary folder,
-- which `toeplab rm --purge` deletes.
local core = require "toeplab.core"
local defer = require "toeplab.base.defer"
local files = require "toeplab.base.files"
local errors = require "toeplab.base.errors"
local rebuild = require "toeplab.store.rebuild"
local sorted_keys = require "toeplab.base.sorted_keys"
local temporary = require "toeplab.base.temporary"
local trial_files = require "toeplab.store.trial_files"
local files_from_rows = require "toeplab.store.files_from_rows"

local merge = {}

local CHUNK = 1 << 20

-- ---- Decisions ---------------------------------------------------------------------------------

-- Ranks the progress of a trial: finished trials rank highest, the others by their checkpoint. At
-- the same checkpoint, a trial that was ended early ranks above an interrupted one. Without a
-- checkpoint, a queued trial ranks below one that has run.
local function progress_rank(row)
  if row.status == "queued" then return row.step or -2 end
  if row.status ~= "done" then return row.step or -1 end
  return row.ended and (row.step or -1) + 0.5 or math.huge
end

-- Words in the names of metrics that measure the machine, so that other machines differ.
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

local function describe(m)
  return m and ("%.9g at step %d"):format(m.value or 0 / 0, m.step) or "none"
end

-- Returns descriptions of the differences between our and their last values of a trial, sorted by
-- metric. Ignores metrics of the machine.
local function differences(store, other, id)
  local ours, theirs, names, list = last_values(store, id), last_values(other, id), {}, {}
  for name in pairs(ours) do names[name] = true end
  for name in pairs(theirs) do names[name] = true end
  for _, name in ipairs(sorted_keys(names)) do
    local m, n = ours[name], theirs[name]
    if not (m and n and m.step == n.step and m.value == n.value) then
      list[#list + 1] = ("%s is %s here and %s there"):format(name, describe(m), describe(n))
    end
  end
  return list
end

-- Decides what to do with a trial: "add", "replace", "same", "conflict", "ahead" (ours has more
-- progress), "busy" (ours or theirs is running or has an unread journal), "trash" (ours is in the
-- trash). "conflict" comes with the list of differences. Unfinished trials of equal progress are
-- "same".
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

-- Copies a file. Returns false if it cannot open the source; raises if it cannot write the copy.
local function copy(from, to)
  local source <close> = io.open(from, "rb")
  if not source then return false end
  local target <close> = errors.stored(io.open(to, "wb"))
  for chunk in function() return source:read(CHUNK) end do
    errors.stored(target:write(chunk))
  end
  errors.stored(core.sys.sync(target))
  return true
end

-- Lists their artifacts of trial id whose files we lack, or have with a different size. same:
-- whether the trials agree; otherwise only artifacts of equal content count.
local function lacking(store, other, id, same)
  local list, ours = {}, {}
  local sql = "SELECT *, kind || ' ' || step AS name FROM artifacts WHERE trial = ?"
  for _, a in ipairs(store:rows(sql, { id })) do ours[a.name] = a end
  for _, a in ipairs(other:rows(sql, { id })) do
    local own = ours[a.name]
    local counts = same or own and own.sha256 == a.sha256
    if counts and not (own and own.sha256 == a.sha256
      and core.sys.size(trial_files.path(store.folder, id, own)) == own.bytes) then
      list[#list + 1] = a
    end
  end
  return list
end

-- Copies the files of these artifacts into a temporary folder. Returns its path, the undamaged
-- artifacts, and the paths of the damaged files.
local function copy_files(store, other, id, artifacts)
  local good, bad, folder = {}, {}, trial_files.folder(store.folder, id)
  trial_files.make(store.folder, "runs")
  local temp = temporary.beside(store.folder .. "/" .. folder)
  files.remove(temp)
  errors.stored(core.sys.mkdir(temp))
  for _, a in ipairs(artifacts) do
    local from = trial_files.path(other.folder, id, a)
    local to = temp .. from:match "/[^/]*$"
    if copy(from, to) and trial_files.intact(to, a.sha256) then
      good[#good + 1] = a
    else
      core.sys.remove(to)
      bad[#bad + 1] = from
    end
  end
  return temp, good, bad
end

local function copy_log(other, id, temp)
  local log = ("%s/%s/log.txt"):format(other.folder, trial_files.folder(other.folder, id))
  local kind, link = core.sys.kind(log)
  if kind == "file" and not link then copy(log, temp .. "/log.txt") end
end

-- Moves the files in the temporary folder to the folder of a trial.
local function move_files(store, temp, id)
  local here = trial_files.make(store.folder, trial_files.folder(store.folder, id))
  for _, name in ipairs(core.sys.list(temp) or {}) do
    errors.stored(core.sys.rename(temp .. "/" .. name, here .. "/" .. name))
  end
  errors.stored(core.sys.sync_folder(here)) -- rows must not name files that a crash can lose
end

-- ---- Rows -------------------------------------------------------------------------------------

-- Returns the union of our and their tags, that of the notes, and whether we lack any: a merge
-- never drops a tag or note.
local function united_marks(store, theirs)
  local ours = store:rows("SELECT tags, notes FROM trials WHERE id = ?", { theirs.id })[1]
  local set, notes = {}, ours.notes
  for tag in (ours.tags .. " " .. theirs.tags):gmatch "%S+" do set[tag] = true end
  for line in theirs.notes:gmatch "[^\n]+" do
    if not ("\n" .. notes .. "\n"):find("\n" .. line .. "\n", 1, true) then
      notes = (notes ~= "" and notes .. "\n" or "") .. line
    end
  end
  local tags = table.concat(sorted_keys(set), " ")
  return tags, notes, tags ~= ours.tags or notes ~= ours.notes
end

-- Returns what `run --adopt` stored with a trial: {key=, code=, events=, at= (the time of the last
-- event)}.
local function adoption(store, id)
  local a = store:rows([[SELECT provenance ->> '$.key' AS key, provenance -> '$.code' AS code
    FROM trials WHERE id = ?]], { id })[1] or {}
  a.events = store:rows([[SELECT coalesce(step, 0) AS step, text, created FROM events
    WHERE trial = ? AND kind = 'adopt' ORDER BY created, id]], { id })
  a.at = a.events[1] and a.events[#a.events].created or 0
  return a
end

-- Adds their adoption of trial id to ours; a newer key replaces ours. Returns whether there was
-- anything to add. dry: changes nothing.
local function adopt(store, id, from, dry)
  local ours, known, adds = adoption(store, id), {}, false
  for _, e in ipairs(ours.events) do known[e.step .. e.text] = true end
  for _, e in ipairs(from.events) do
    if not known[e.step .. e.text] then
      if not dry then store:mark_at(e.created, id, "event", e.step, "adopt", e.text) end
      adds = true
    end
  end
  if from.key and from.key ~= ours.key and (not ours.key or from.at > ours.at) then
    if not dry then store:mark(id, "adopt", from.key, not ours.code and from.code or nil) end
    adds = true
  end
  return adds
end

-- Adds their tags, notes and adoption of a trial to ours. Returns whether we lacked any.
local function add_marks(store, other, theirs, dry)
  if #store:rows("SELECT 1 FROM trials WHERE id = ? AND trashed IS NULL", { theirs.id }) == 0 then
    return false
  end
  local tags, notes, adds = united_marks(store, theirs)
  if adds and not dry then store:mark(theirs.id, "marks", tags, notes) end
  return adopt(store, theirs.id, adoption(other, theirs.id), dry) or adds
end

-- Returns our id of the sweep that has this id in their store; inserts the sweep if necessary. nil
-- for nil. known: a cache of these ids.
local function sweep_of(store, other, id, known)
  if not id then return nil end
  if not known[id] then
    local s = other:rows("SELECT *, round(created, 3) AS created FROM sweeps WHERE id = ?",
      { id })[1]
    known[id] = store:sweep(s)
    files_from_rows.sweep(store, known[id])
    store:rows("UPDATE sweeps SET created = max(created, ?) WHERE id = ?", { s.created, known[id] })
  end
  return known[id]
end

-- Writes our files of a trial from their rows, and makes our rows from the files.
local function copy_rows(store, other, theirs, artifacts, sweep)
  local ours = adoption(store, theirs.id)
  store:declare(sweep, theirs)
  theirs.tags, theirs.notes = united_marks(store, theirs)
  files_from_rows.trial(store, theirs, other, artifacts)
  rebuild.renew_trial(store, theirs.id)
  adopt(store, theirs.id, ours)
end

-- Records files that were copied to our trial.
local function add_files(store, id, artifacts)
  for _, a in ipairs(artifacts) do
    store:mark_at(a.created, id, "artifact", a.kind, a.step, a.path, a.bytes, a.sha256)
  end
end

-- Records in one event that both trials are finished and differ; ours stays.
local function note_conflict(store, theirs, list)
  local text = ("the results of %s on %s differ: %s"):format((theirs.git_commit or "?"):sub(1, 12),
    theirs.host or "?", table.concat(list, "; "))
  if #store:rows("SELECT 1 FROM events WHERE trial = ? AND kind = 'conflict' AND text = ?",
    { theirs.id, text }) == 0 then
    store:event(theirs.id, 0, "conflict", text)
  end
end

-- Replaces member ?2 of sweep ?1 by trial ?3 if only trial ?3 is finished, and both have the same
-- configuration, seed and data. Their ids differ, because their code differs.
local REPLACE = [[UPDATE members SET trial = ?3 WHERE sweep = ?1 AND position = ?2
  AND EXISTS (SELECT 1 FROM trials a, trials b WHERE a.id = members.trial AND b.id = ?3
    AND (a.status <> 'done' OR a.ended IS NOT NULL)
    AND b.status = 'done' AND b.ended IS NULL AND b.trashed IS NULL
    AND a.config = b.config AND a.seed = b.seed AND a.data_hash = b.data_hash) RETURNING trial]]

-- Copies the members of their sweeps whose trials we have. Returns the number of our members that
-- were replaced.
local function copy_members(store, other, known)
  local others = 0
  for _, m in ipairs(other:rows "SELECT * FROM members ORDER BY sweep, position") do
    local member = { sweep_of(store, other, m.sweep, known), m.position, m.trial }
    others = others + #store:rows(REPLACE, member)
    store:rows("INSERT OR IGNORE INTO members SELECT ?1, ?2, id FROM trials WHERE id = ?3", member)
  end
  return others
end

-- ---- The merge ---------------------------------------------------------------------------------

-- Sets the step of their unfinished trial to its newest intact checkpoint, so that damaged ones do
-- not displace ours. Returns the paths of the damaged checkpoints.
local function skip_damaged(other, theirs)
  local bad = {}
  for _, a in ipairs(other:rows([[SELECT * FROM artifacts WHERE trial = ? AND kind = 'checkpoint'
      ORDER BY step DESC]], { theirs.id })) do
    local path = trial_files.path(other.folder, theirs.id, a)
    theirs.step = a.step
    if trial_files.intact(path, a.sha256) then return bad end
    bad[#bad + 1], theirs.step = path, nil
  end
  return bad
end

-- Raises, before any change, if their store has a row that this program never writes.
local function check_rows(other)
  for _, row in ipairs(other:rows "SELECT id FROM trials") do
    trial_files.folder(other.folder, row.id)
  end
  other.store:each("SELECT trial, path FROM artifacts", {}, function(a)
    trial_files.check_row(other.folder, a.trial, a)
  end)
end

-- Copies these artifacts of their trial; if `what`, the decision, is "add" or "replace", also its
-- log and rows. known: see sweep_of.
local function copy_trial(store, other, theirs, what, artifacts, result, known)
  local id, new = theirs.id, what == "add" or what == "replace"
  local temp, good, bad = copy_files(store, other, id, artifacts)
  local guard <close> = defer(function() files.remove(temp) end)
  if new then copy_log(other, id, temp) end
  table.move(bad, 1, #bad, #result.damaged + 1, result.damaged)
  store:transaction(function()
    local now = decide(store, other, theirs)
    if now ~= what then -- meanwhile a run has begun it, or rm has moved it to the trash
      result[what], result[now] = result[what] - 1, result[now] + 1
      return
    end
    move_files(store, temp, id)
    if new then
      copy_rows(store, other, theirs, good, sweep_of(store, other, theirs.sweep, known))
    else
      add_files(store, id, good)
      result.files = result.files + #good
    end
  end)
end

-- Merges the trials of other, a snapshot of records, into store, opened for writing. dry: only
-- decides. Returns the counts by decision, the lists conflicts ({id=, differences=}) and damaged
-- (paths), and the counts others (our members that trials of other code replaced), marked (our
-- trials that gained tags, notes or adoptions), and files (files that our trials lacked).
function merge.run(store, other, dry)
  local result = { add = 0, replace = 0, same = 0, conflict = 0, ahead = 0, busy = 0, trash = 0,
    others = 0, marked = 0, files = 0, conflicts = {}, damaged = {} }
  local known, both = {}, {}
  check_rows(other)
  for _, row in ipairs(other:rows [[SELECT id FROM trials WHERE trashed IS NULL
      ORDER BY created, rowid]]) do
    local theirs = other:rows("SELECT *, round(created, 3) AS created FROM trials WHERE id = ?",
      { row.id })[1]
    theirs.open = #other:rows("SELECT 1 FROM journals WHERE trial = ?", { row.id }) > 0
    local what, list = decide(store, other, theirs)
    if what == "replace" and theirs.status ~= "done" then
      local bad = skip_damaged(other, theirs)
      what, list = decide(store, other, theirs)
      if what ~= "replace" then table.move(bad, 1, #bad, #result.damaged + 1, result.damaged) end
    end
    result[what] = result[what] + 1
    local new = what == "add" or what == "replace"
    local artifacts = {}
    if new then
      artifacts = other:rows("SELECT * FROM artifacts WHERE trial = ?", { row.id })
    elseif what ~= "busy" and what ~= "trash" then
      both[#both + 1] = { id = row.id, tags = theirs.tags, notes = theirs.notes }
      artifacts = lacking(store, other, row.id, what == "same")
      if dry then result.files = result.files + #artifacts end
    end
    if what == "conflict" then
      table.insert(result.conflicts, { id = row.id, differences = list })
      if not dry then note_conflict(store, theirs, list) end
    end
    if (new or #artifacts > 0) and not dry then
      copy_trial(store, other, theirs, what, artifacts, result, known)
    end
  end
  local function mark_all()
    for _, theirs in ipairs(both) do
      result.marked = result.marked + (add_marks(store, other, theirs, dry) and 1 or 0)
    end
  end
  if dry then
    mark_all()
  else
    store:transaction(function()
      mark_all()
      result.others = copy_members(store, other, known)
      for _, id in pairs(known) do files_from_rows.sweep(store, id) end
    end)
  end
  return result
end

return merge
