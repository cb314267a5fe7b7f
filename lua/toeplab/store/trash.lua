-- store/trash.lua: moves trials to the trash, restores them, and deletes them permanently; finds
-- files of a results folder that no row mentions.
local core = require "toeplab.core"
local process = require "toeplab.base.process"
local temporary = require "toeplab.base.temporary"
local journal = require "toeplab.store.journal"
local news = require "toeplab.store.news"
local replay = require "toeplab.store.replay"
local selection = require "toeplab.store.selection"
local errors = require "toeplab.base.errors"
local files = require "toeplab.base.files"
local trial_files = require "toeplab.store.trial_files"
local files_from_rows = require "toeplab.store.files_from_rows"

local trash = {}

-- ---- Moving and restoring ----------------------------------------------------------------------

-- Moves trials to the trash, all with the same time. Raises and moves none if one is running.
function trash.put(store, ids)
  store:transaction(function()
    local busy, now = selection.alive(store), core.sys.now()
    for _, id in ipairs(ids) do
      if busy[id] then
        errors.usage("trial %s is running (process %s on %s): stop it first; nothing was removed",
          id:sub(1, 12), busy[id].pid or "?", busy[id].host or "?")
      end
    end
    for _, id in ipairs(ids) do store:mark(id, "trash", now) end
  end)
end

function trash.restore(store, ids)
  store:transaction(function()
    for _, id in ipairs(ids) do store:mark(id, "restore") end
  end)
end

-- Returns the ids of the trials that have been in the trash for `days` days and are not running.
function trash.expired(store, days)
  local ids, busy = {}, selection.alive(store)
  local sql = "SELECT id FROM trials WHERE trashed <= ? ORDER BY trashed, id"
  for _, row in ipairs(store:rows(sql, { core.sys.now() - days * 86400.0 })) do
    if not busy[row.id] then ids[#ids + 1] = row.id end
  end
  return ids
end

-- ---- Files ------------------------------------------------------------------------------------

-- Returns whether name is a temporary file that a dead process of this machine has left.
local function is_dead_temporary(name)
  local host, pid = temporary.owner(name)
  return pid and process.has_died(host, pid)
end

-- Returns whether the folder of a trial has a damaged journal, or one that was set aside.
local function has_damage(folder)
  for _, name in ipairs(core.sys.list(folder) or {}) do
    if name:find("%.jnl%.damaged") then return true end
  end
  for _, name in ipairs(replay.journals(folder)) do
    if select(3, replay.ends(folder .. "/" .. name)) then return true end
  end
  return false
end

-- Adds the stale files in the folder of a trial. A file is not stale if an unread or damaged
-- journal may mention it.
local function add_stale(store, id, add)
  local path, known, damaged = trial_files.folder(store.folder, id), {}, nil
  local open = store:rows("SELECT attempt FROM journals WHERE trial = ?", { id })[1]
  for _, row in ipairs(store:rows("SELECT path FROM artifacts WHERE trial = ?", { id })) do
    known[row.path] = true
  end
  for _, file in ipairs(core.sys.list(store.folder .. "/" .. path) or {}) do
    local whole = path .. "/" .. file
    if is_dead_temporary(file) then
      add(whole, "a temporary file of a dead process")
    elseif not open and trial_files.keeps(file) and not known[whole] then
      if damaged == nil then damaged = has_damage(store.folder .. "/" .. path) end
      if not damaged then add(whole, "no row mentions it") end
    end
  end
end

-- Returns whether name is the log of a worker (worker_process.lua) that has ended. busy: whether
-- trials are running.
local function is_dead_log(name, busy)
  local host, pid = name:match "^worker%-(.+)%.(%d+)%-%d+%.log$"
  if host == core.sys.hostname() then return process.has_died(host, pid) end
  return not busy and (host ~= nil or name:find "^worker%-[%d%-]+%.log$" ~= nil)
end

-- Returns whether trials without rows may have files: the file of their sweep is damaged (its
-- command finds them again), or was not read yet.
local function misses_sweeps(store)
  for id in pairs(trial_files.sweeps(store.folder)) do
    local row = store:rows("SELECT 1 FROM sweeps WHERE id = ?", { id })[1]
    if not row and id > 0 then return true end
  end
  return files_from_rows.damaged_sweeps(store.folder)[1] ~= nil
end

-- Returns whether a worker is writing a journal in the folder of a trial.
local function has_writer(folder)
  for _, name in ipairs(core.sys.list(folder) or {}) do
    if name:find "^events" and journal.in_use(folder .. "/" .. name) then return true end
  end
  return false
end

-- Lists the files in the results folder that no row mentions or that dead processes have left:
-- {path= (relative), why=, bytes=}. Skips running trials.
function trash.stale(store)
  local list, ids, busy = {}, {}, selection.alive(store)
  local function add(path, why)
    list[#list + 1] = { path = path, why = why, bytes = files.bytes(store.folder .. "/" .. path) }
  end
  for _, row in ipairs(store:rows "SELECT id FROM trials") do ids[row.id:sub(1, 12)] = row.id end
  local incomplete = misses_sweeps(store)
  local _, link = core.sys.kind(store.folder .. "/runs") -- never follow a link
  for _, name in ipairs(not link and core.sys.list(store.folder .. "/runs") or {}) do
    local id = ids[name]
    if id and not busy[id] then
      add_stale(store, id, add)
    elseif not id and #name == 12 and name:find("^%x+$") and not incomplete
      and not has_writer(store.folder .. "/runs/" .. name) then
      add("runs/" .. name, "no trial has that name")
    elseif is_dead_temporary(name) then
      add("runs/" .. name, "a temporary folder of a dead process")
    end
  end
  for _, name in ipairs(core.sys.list(store.folder) or {}) do
    if is_dead_temporary(name) then add(name, "a temporary file of a dead process") end
    if is_dead_log(name, next(busy)) then add(name, "the log of a dead worker") end
  end
  return list
end

-- ---- Deleting ----------------------------------------------------------------------------------

-- Deletes trials with their folders, and sweeps that then have no trials. Changes the files of the
-- sweeps first: after a kill, the next purge finds a folder without a trial, whereas a trial
-- without its files would be damage. The caller must choose the trials in the same transaction.
function trash.delete(store, ids)
  local sweeps = {}
  for _, id in ipairs(ids) do
    for _, row in ipairs(store:rows([[SELECT sweep FROM members WHERE trial = ?1
        UNION SELECT sweep FROM trials WHERE id = ?1]], { id })) do
      sweeps[row.sweep or 0] = true
    end
    news.append(store, "gone", id)
    replay.delete(store, id)
  end
  for _, row in ipairs(store:rows [[DELETE FROM sweeps WHERE id NOT IN (SELECT sweep FROM members)
      AND id NOT IN (SELECT sweep FROM trials WHERE sweep IS NOT NULL) RETURNING id]]) do
    sweeps[row.id] = true
  end
  for id in pairs(sweeps) do files_from_rows.sweep(store, id) end
  for _, id in ipairs(ids) do
    files.remove(store.folder .. "/" .. trial_files.folder(store.folder, id))
  end
end

-- Returns the size of the folders of trials.
function trash.bytes(store, ids)
  local bytes = 0
  for _, id in ipairs(ids) do
    bytes = bytes + files.bytes(store.folder .. "/" .. trial_files.folder(store.folder, id))
  end
  return bytes
end

-- Returns a function that deletes rows inserted after this call: the row of the given sweep, and
-- the trials of list ({id=} each) that do not exist yet, with their folders. It keeps a trial that
-- a process has begun since.
function trash.undo(store, list)
  local last, new = store:rows("SELECT coalesce(max(id), 0) AS id FROM sweeps")[1].id, {}
  for _, t in ipairs(list) do
    if not store:status(t.id) then new[#new + 1] = t.id end
  end
  return function(sweep)
    store:transaction(function()
      local unused = {}
      for _, id in ipairs(new) do
        local _, row = store:status(id)
        if row and row.attempt == 0 then unused[#unused + 1] = id end
      end
      if sweep > last then store:rows("DELETE FROM members WHERE sweep = ?", { sweep }) end
      trash.delete(store, unused)
    end)
  end
end

-- Frees unused pages of the database if they are a quarter of it or more. Returns their size in
-- bytes.
function trash.shrink(store)
  local pages = store:rows [[SELECT page_count AS count, freelist_count AS free, page_size AS bytes
    FROM pragma_page_count, pragma_page_size, pragma_freelist_count]][1]
  if pages.free * 4 < pages.count then return 0 end
  store:rows "VACUUM"
  return pages.free * pages.bytes
end

return trash
