-- test_damage.lua: a byte of a file of a results folder has changed: nothing else is lost with it,
-- whatever asks next, fsck finds it, and the repair keeps the file.
local t = require "harness"
local check = require "toeplab.store.check"
local core = require "toeplab.core"
local journal = require "toeplab.store.journal"
local records = require "toeplab.store.records"
local replay = require "toeplab.store.replay"
local stores = require "stores"
local sweeps = require "toeplab.store.sweeps"
local trash = require "toeplab.store.trash"
local files_from_rows = require "toeplab.store.files_from_rows"

local ID = stores.id "a"
local PATH = "runs/" .. ID:sub(1, 12)
local STEPS = 6

-- Begins the next attempt at the trial and logs steps, each in a record of its own; a file at the
-- last one. ends: the lines that end it.
local function attempt(store, from, to, ends)
  store:rows("UPDATE trials SET status = 'queued' WHERE id = ? AND status = 'interrupted'", { ID })
  local number = store:begin({ id = ID, label = "n=1", data = {}, code_hash = "c",
    provenance = { host = core.sys.hostname(), command = "toeplab run x.lua" } }, stores.gone)
  local w <close> = setmetatable({ it = journal.writer(store.folder .. "/"
    .. journal.path(PATH, number)) }, { __close = function(w) w.it:close() end })
  for step = from, to do w.it:add { { "metric", step, "loss", step + 0.5, n = 4 } } end
  local file = ("%s/step-%08d.h5"):format(PATH, to)
  t.write(store.folder .. "/" .. file, "state")
  w.it:add { { "artifact", "checkpoint", to, file, 5, core.sha256 "state", 7.0 } }
  w.it:add { ends }
  local entry = { id = ID, path = PATH, attempt = number }
  store:take(entry)
  store:end_journal(entry)
end

-- A trial that was interrupted and continued, with marks, and one that waits.
local function fill(folder)
  local store <close> = records.open(folder, "w")
  local rows = {}
  for i, name in ipairs { "a", "b" } do
    rows[i] = { id = stores.id(name), experiment = "x", config = { n = i },
      json = ('{"n":%d}'):format(i), seed = 1, code_hash = "c", data_hash = "", label = "n=" .. i }
  end
  store:enlist(store:sweep { experiment = "x", script = "x.lua", source = "-- x", sha256 = "s",
    command = "toeplab run x.lua", scale = "", plan = "{}" }, sweeps.rows_of(rows))
  attempt(store, 1, 3, { "end", "interrupted", "stopped", nil, 1.0, 8.0, n = 6 })
  attempt(store, 4, STEPS, { "end", "done", nil, nil, 2.0, 9.0, n = 6 })
  store:mark(ID, "marks", "good", "the first note")
  store:mark(ID, "marks", "good better", "the first note")
end

-- Changes the byte at a place, counted from the first place of a text in a file.
local function flip(folder, name, text, offset)
  local path = folder .. "/" .. name
  local whole = t.read(path)
  local at = assert(whole:find(text, 1, true)) + (offset or 0)
  t.write(path, whole:sub(1, at - 1) .. string.char(whole:byte(at) ~ 1) .. whole:sub(at + 1))
end

local function forget_rows(folder)
  for _, ending in ipairs { "", "-wal", "-shm" } do os.remove(folder .. "/runs.db" .. ending) end
end

-- Returns what the rows say: status, attempt, values, files and tags of the trial.
local function said(folder)
  local store <close> = records.open(folder, "r")
  local row = store:rows("SELECT * FROM trials WHERE id = ?", { ID })[1]
  if not row then return nil end
  local values = store:rows("SELECT count(*) AS n FROM metrics WHERE trial = ?", { ID })[1].n
  local files = store:rows("SELECT count(*) AS n FROM artifacts WHERE trial = ?", { ID })[1].n
  return { row.status, row.attempt, values, files, row.tags }
end

-- Returns the path of the copy of a damaged file that was kept; nil if there is none.
local function kept(folder, file)
  local place, name = (folder .. "/" .. file):match "^(.*)/(.*)$"
  for _, other in ipairs(core.sys.list(place)) do
    if other:sub(1, #name + 9) == name .. ".damaged-" then return place .. "/" .. other end
  end
end

-- Returns the texts of what a check finds, and how much damage is left.
local function fsck(folder, repair)
  local list = {}
  local result = check.run(folder, { repair = repair }, function(item)
    if item.text then list[#list + 1] = item.text end
  end)
  return table.concat(list, "\n"), result.left
end

local FIRST, LAST = PATH .. "/events-1.jnl", PATH .. "/events-2.jnl"

-- name; file, text in it, and the place of the byte behind that; what rows that are made again say
local cases = {
  { "a value", LAST, "metric 5", 0, { "done", 2, STEPS - 1, 2, "good better" } },
  { "a hash", LAST, "\n= ", 4, { "done", 2, STEPS, 2, "good better" } },
  { "the beginning of an attempt", LAST, "begin 2", 2, { "done", 2, STEPS, 2, "good better" } },
  { "the record of a file", LAST, "artifact", 0, { "done", 2, STEPS, 1, "good better" } },
  { "the end of a trial", LAST, "end +done", 1, { "running", 2, STEPS, 2, "good better" } },
  { "a value of an earlier attempt", FIRST, "metric 2", 0, { "done", 2, STEPS - 1, 2,
    "good better" } },
  { "the beginning of an earlier attempt", FIRST, "begin 1", 2, { "done", 2, STEPS, 2,
    "good better" } },
  { "a mark before others", PATH .. "/marks.jnl", "marks", 0, { "done", 2, STEPS, 2,
    "good better" } },
  { "the last mark", PATH .. "/marks.jnl", "better", 0, { "done", 2, STEPS, 2, "good" } },
}

for _, case in ipairs(cases) do
  local name, file, text, offset, want = table.unpack(case, 1, 5)
  t.test("a changed byte in " .. name .. " costs its record alone", function()
    t.in_folder(function(folder)
      fill(folder)
      local whole = said(folder)
      t.eq(whole, { "done", 2, STEPS, 2, "good better" })
      flip(folder, file, text, offset)
      -- rows that know more mend the file
      local found, left = fsck(folder)
      t.holds(found, file .. ": a record is damaged")
      t.eq({ left, said(folder) }, { 1, whole })
      forget_rows(folder)
      if name == "a hash" then want = nil end -- whose record is any
      t.eq(want and said(folder) or nil, want)
      found, left = fsck(folder)
      t.holds(found, file .. ": a record is damaged")
      t.eq(left, 1)
      -- no file of the trial is taken for one that nobody needs
      do
        local store <close> = records.open(folder, "w")
        t.eq(trash.stale(store), {})
        store:mark(ID, "event", 3, "note", "marks are heard")
      end
      forget_rows(folder)
      t.eq(#stores.dump(folder, "SELECT 1 FROM events WHERE kind = 'note'"), 1)
      local before = said(folder)
      found, left = fsck(folder, true)
      t.eq(left, 0)
      t.ok(kept(folder, file), found)
      forget_rows(folder)
      t.eq(said(folder)[3], before[3])
      t.eq(said(folder)[5], before[5])
    end)
  end)
end

t.test("fsck rewrites a damaged journal from more complete rows, and keeps the file", function()
  t.in_folder(function(folder)
    fill(folder)
    local whole = said(folder)
    flip(folder, LAST, "metric 5")
    local damaged = t.read(folder .. "/" .. LAST)
    local _, left = fsck(folder, true)
    t.eq({ left, (fsck(folder)) }, { 0, "" })
    t.eq(t.read(kept(folder, LAST)), damaged)
    forget_rows(folder)
    t.eq(said(folder), whole)
  end)
end)

-- What it logs again then is what is lost.
t.test("an unfinished trial resumes from before the damage", function()
  for text, values in pairs { ["begin 2"] = 3, ["metric 5"] = 4 } do
    t.in_folder(function(folder)
      fill(folder)
      flip(folder, LAST, text)
      flip(folder, LAST, "end +done")
      forget_rows(folder)
      t.eq(said(folder), { "running", 2, values, 1, "good better" })
      t.holds(fsck(folder), LAST .. ": a record is damaged", "is marked as running, but process")
      local store <close> = records.open(folder, "w")
      attempt(store, 4, STEPS, { "end", "done", nil, nil, 2.0, 9.0, n = 6 })
      t.eq(store:rows("SELECT status, attempt FROM trials WHERE id = ?", { ID }),
        { { status = "done", attempt = 3 } })
      forget_rows(folder)
      t.eq(said(folder)[3], STEPS)
    end)
  end
end)

t.test("fsck finds damage beside the journal of a killed run", function()
  t.in_folder(function(folder)
    fill(folder)
    do
      local store <close> = records.open(folder, "w")
      store:begin({ id = stores.id "b", label = "n=2", data = {}, code_hash = "c",
        provenance = { host = core.sys.hostname(), command = "toeplab run x.lua" } }, stores.gone)
    end
    flip(folder, FIRST, "metric 2")
    local found, left = fsck(folder)
    t.holds(found, FIRST .. ": a record is damaged", "a run was killed")
    t.eq(left, 1)
  end)
end)

t.test("a rewritten journal has several records", function()
  t.in_folder(function(folder)
    fill(folder)
    local store <close> = records.open(folder, "w")
    for step = 1, 1000 do
      replay.apply(store, ID, { "metric", step, "x", 0.5 })
    end
    store:transaction(function() files_from_rows.again(store, ID) end)
    local _, count = t.read(folder .. "/" .. LAST):gsub("\n= %x+\n", "")
    t.ok(count > 9, count)
  end)
end)

t.test("a changed byte in the file of a sweep is found, and no trial is purged", function()
  for _, text in ipairs { ID, '"n":1', '"seed":1' } do
    t.in_folder(function(folder)
      fill(folder)
      flip(folder, "sweeps/1.json", text, #text - 1)
      t.holds(fsck(folder), "sweeps/1.json: is damaged")
      forget_rows(folder)
      t.eq(said(folder), nil)
      local found, left = fsck(folder)
      t.holds(found, "sweeps/1.json.damaged", "damaged: run the command of its trials again")
      t.eq(left, 1)
      local store <close> = records.open(folder, "w")
      t.eq(trash.stale(store), {})
    end)
  end
end)

t.done()
